"""Callers as JSON lines: what `callers list --json` writes and `callers import` reads.

One object a line: `name`, `id` (made when absent), `scopes`, `tokens` (each `sha256` and `expires`), and `revoked` for a
caller that only keeps its name taken. Times are ISO 8601, null is never.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from app.identity import ANONYMOUS, Scope
from app.store.callers import Faults
from app.store.values import CallerToken, NewCaller, StoredCaller
from plimsoll.contract import bounds

RESERVED = frozenset({ANONYMOUS.name, "local"})
"""Names of callers that no database holds: those of insecure mode and of a service started by a program."""
_ID = re.compile(r"[0-9a-f]{32}")
_KNOWN = {"name", "id", "scopes", "tokens", "revoked"}


def name_rule(name: object) -> str | None:
    """The rule a caller's name breaks, or None."""
    if not isinstance(name, str) or not bounds.NAME.fullmatch(name):
        return "name: must match [a-z0-9-]{1,64}"
    return "name: is reserved" if name in RESERVED else None


def iso(unix_ms: int | None) -> str | None:
    """A time as ISO 8601 in UTC, to the millisecond."""
    if unix_ms is None:
        return None
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


def unix_ms(text: str) -> int:
    """The time an ISO 8601 date or date and time stands for, in UTC unless it says otherwise. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def line(caller: StoredCaller) -> str:
    """One caller as one line, without its end."""
    shape: dict[str, Any] = {"name": caller.name, "id": caller.id, "scopes": sorted(caller.scopes)}
    shape["tokens"] = [
        {"sha256": token.sha256, "expires": iso(token.expires_unix_ms)} for token in caller.tokens
    ]
    if caller.revoked_unix_ms is not None:
        shape["revoked"] = iso(caller.revoked_unix_ms)
    return json.dumps(shape, separators=(",", ":"))


class Reader:
    """Reads lines and collects every fault as (line number, rule); nothing read is to be used if there is one."""

    def __init__(self, make_id: Callable[[], str]) -> None:
        """`make_id` gives ids for lines without one."""
        self.faults: Faults = []
        self.numbers: list[int] = []
        self._make_id = make_id
        self._seen: set[tuple[str, str]] = set()

    def read(self, text: str) -> list[NewCaller]:
        """The callers in `text`; empty lines are skipped. `numbers` then holds the line of each."""
        found = []
        for number, content in enumerate(text.split("\n"), 1):
            if not content.strip():
                continue
            shape = _parsed(content)
            faults = [(number, rule) for rule in self._rules(shape)]
            self.faults += faults
            if not faults and isinstance(shape, dict):
                found.append(self._caller(shape))
                self.numbers.append(number)
        return found

    def _rules(self, shape: object) -> Iterator[str]:
        """Every rule one line breaks."""
        if not isinstance(shape, dict):
            yield "must be one JSON object, no member twice"
            return
        for member in sorted(shape.keys() - _KNOWN):
            yield f"{member!a}: is no member of a caller"
        if rule := name_rule(shape.get("name")):
            yield rule
        identity = shape.get("id")
        if identity is not None and not (isinstance(identity, str) and _ID.fullmatch(identity)):
            yield "id: must be 32 hex digits"
        if identity == ANONYMOUS.id:
            yield "id: is reserved"
        yield from _scope_rules(shape.get("scopes"))
        yield from _token_rules(shape.get("tokens"))
        yield from _time_rules("revoked", shape.get("revoked"))
        yield from self._twice(shape)

    def _twice(self, shape: dict[str, Any]) -> Iterator[str]:
        tokens = shape.get("tokens")
        tokens = tokens if isinstance(tokens, list) else []
        keys = [("name", shape.get("name")), ("id", shape.get("id"))]
        keys += [("tokens", token.get("sha256")) for token in tokens if isinstance(token, dict)]
        for member, value in keys:
            if isinstance(value, str):
                if (member, value) in self._seen:
                    yield f"{member}: stands in an earlier place too"
                self._seen.add((member, value))

    def _caller(self, shape: dict[str, Any]) -> NewCaller:
        return NewCaller(
            shape.get("id") or self._make_id(),
            shape["name"],
            frozenset(map(Scope, shape["scopes"])),
            tuple(CallerToken(token["sha256"], _time(token.get("expires"))) for token in shape["tokens"]),
            _time(shape.get("revoked")),
        )


def _parsed(content: str) -> object:
    try:
        shape: object = json.loads(content, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None
    return shape


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    shape = dict(pairs)
    if len(shape) != len(pairs):
        raise ValueError
    return shape


def _scope_rules(scopes: object) -> Iterator[str]:
    words = {scope.value for scope in Scope}
    if not isinstance(scopes, list) or not all(isinstance(scope, str) and scope in words for scope in scopes):
        yield f"scopes: must be a list of {', '.join(sorted(words))}"


def _token_rules(tokens: object) -> Iterator[str]:
    if not isinstance(tokens, list):
        yield "tokens: must be a list"
        return
    for token in tokens:
        if not isinstance(token, dict) or token.keys() - {"sha256", "expires"}:
            yield "tokens: each must be an object of sha256 and expires"
            continue
        sha256 = token.get("sha256")
        if not (isinstance(sha256, str) and bounds.SHA256.fullmatch(sha256)):
            yield "tokens: sha256 must be 64 hex digits"
        yield from _time_rules("tokens: expires", token.get("expires"))


def _time_rules(member: str, text: object) -> Iterator[str]:
    try:
        if text is not None:
            unix_ms(text if isinstance(text, str) else "")
    except (ValueError, OverflowError):
        yield f"{member}: must be an ISO 8601 time or null"


def _time(text: str | None) -> int | None:
    return None if text is None else unix_ms(text)
