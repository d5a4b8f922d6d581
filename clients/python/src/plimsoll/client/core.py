"""The client without any input or output: what to send, and what an answer means.

`Core` builds a `Prepared` exchange, a shell sends it and collects a `Received` answer, `check` gives the value or raises.
Both shells are those few lines; every rule of trust is here and in the modules this one calls.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, Unpack
from urllib.parse import urlencode

from plimsoll.client import answers, refusals, requests, verify, views
from plimsoll.client.answers import Received
from plimsoll.client.errors import InvalidRequest, PlimsollError
from plimsoll.client.options import Options
from plimsoll.client.results import Run
from plimsoll.client.seen import Seen
from plimsoll.contract import bounds
from plimsoll.contract.record import RunRecord
from plimsoll.contract.refusals import FieldFault, Reason
from plimsoll.contract.rest import DescribeBody, EvidenceBody, RunPage, RunView

T = TypeVar("T")

USER_AGENT = "plimsoll-python"
_WAIT_MAX_S = 60
_PAGE_MAX = 100


def random_id() -> str:
    """A fresh request id: 128 random bits as 32 hex digits."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Prepared(Generic[T]):
    """One exchange, ready to be sent. `path` includes the base URL's own path; `accept` reads a bound success."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    request_id: str
    accept: Callable[[dict[str, Any], Received], T] = field(repr=False)


class Core:
    """Builds exchanges under one set of options, and remembers the sandboxes it was told of."""

    def __init__(self, options: Options, *, new_id: Callable[[], str] = random_id) -> None:
        self._options = options
        self._new_id = new_id
        self._seen = Seen()

    def script(self, payload: requests.Script, **how: Unpack[requests.RunOptions]) -> Prepared[Run]:
        """One snippet's run. Raises InvalidRequest, marked: nothing is sent."""
        request = requests.script_request(payload, **how)
        request_id = self._new_id()
        check_run = partial(
            verify.run_answer, request, request_id, skew_ms=self._options.skew_ms, seen=self._seen
        )
        return self._prepare("POST", "/v1/runs", check_run, requests.body(request), request_id)

    def describe(self) -> Prepared[DescribeBody]:
        return self._get("/v1/describe", views.description)

    def get_run(self, run_id: str, wait: int) -> Prepared[RunView]:
        query = f"?wait={_whole('wait', wait, 0, _WAIT_MAX_S)}" if wait else ""
        return self._get(f"/v1/runs/{_hex('id', run_id, bounds.RUN_ID)}{query}", views.view)

    def record(self, run_id: str) -> Prepared[RunRecord]:
        return self._get(f"/v1/runs/{_hex('id', run_id, bounds.RUN_ID)}/record", views.record)

    def runs(self, limit: int | None, cursor: str | None) -> Prepared[RunPage]:
        query: dict[str, str] = {}
        if limit is not None:
            query["limit"] = str(_whole("limit", limit, 1, _PAGE_MAX))
        if cursor is not None:
            query["cursor"] = cursor
        return self._get("/v1/runs" + (f"?{urlencode(query)}" if query else ""), views.page)

    def evidence(self, sha256: str) -> Prepared[EvidenceBody]:
        name = _hex("sha256", sha256, bounds.SHA256)
        return self._get(f"/v1/evidence/{name}", partial(views.evidence, name))

    def _get(self, path: str, read: Callable[[dict[str, Any]], T]) -> Prepared[T]:
        return self._prepare("GET", path, lambda answer, _: read(answer), b"", self._new_id())

    def _prepare(
        self,
        method: str,
        path: str,
        accept: Callable[[dict[str, Any], Received], T],
        body: bytes,
        request_id: str,
    ) -> Prepared[T]:
        headers = [
            ("accept", "application/json"),
            ("accept-encoding", "identity"),
            ("user-agent", USER_AGENT),
            (answers.REQUEST_ID, request_id),
        ]
        if body:
            headers.append(("content-type", "application/json"))
        if self._options.token:
            headers.append(("authorization", f"Bearer {self._options.token}"))
        full = self._options.prefix + path
        return Prepared(method, full, tuple(headers), body, request_id, accept)


def _hex(name: str, value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _invalid(name, "must be lower-case hex digits of the right length")
    return value


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _invalid(name, f"must be an integer from {least} to {most}")
    return value


def _invalid(name: str, rule: str) -> InvalidRequest:
    return InvalidRequest(f"{name}: {rule}", not_dispatched=Reason.REQUEST, faults=[FieldFault(name, rule)])


def check(prepared: Prepared[T], received: Received) -> T:
    """The value an answer gives, after every check. Raises a PlimsollError that names our request id."""
    try:
        answers.check_head(received.head)  # 18, 19
        if len(received.body) > answers.BODY_LIMIT:  # 19
            raise answers.too_large()
        if received.head.is_error:
            raise refusals.refusal(received, prepared.request_id)  # 21, 22
        answers.require_bound(received.head, prepared.request_id)  # 21
        return prepared.accept(answers.json_object(received), received)  # 20, 23-33, S8
    except PlimsollError as error:
        error.request_id = prepared.request_id
        raise
