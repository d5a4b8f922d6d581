"""From arguments to a request that is worth sending (checks 4 to 6, 8, 9 and 10), and to its JSON body."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from plimsoll.client import inputs
from plimsoll.client.errors import InvalidRequest
from plimsoll.contract import bounds
from plimsoll.contract.content import file_text
from plimsoll.contract.refusals import FieldFault, Reason
from plimsoll.contract.requests import File, JavaScript, Payload, Project, Python, RunRequest, SoftwareRule
from plimsoll.contract.tiers import FLOORS, Tier

Script = JavaScript | Python

_WIRE_MAX_MS = 2**53 - 1
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class RunOptions(TypedDict, total=False):
    """What may stand beside the code. None is the same as absent.

    A broken rule names the argument, `code` or one of these, never the field it becomes in a request.

    `floor` is the weakest wall accepted (`process`, `container`, `kernel`, `vm`; absent: any), `timeout` the program's own
    seconds (absent: the service's default), `software_rule` which software may run it, `trace_id` 1 to 64 characters of
    `[A-Za-z0-9._:-]` for the service's logs. `idempotency_key`, 1 to 255 visible ASCII characters, names one piece of work:
    within 24 hours the service runs it at most once, however often it is asked for under this key. `grant_profile` names the
    profile that the program may call an API by (`Client.grants`).
    """

    floor: str | None
    timeout: float | None
    software_rule: SoftwareRule | None
    trace_id: str | None
    idempotency_key: str | None
    grant_profile: str | None


def script_request(payload: Script, **how: Unpack[RunOptions]) -> RunRequest:
    """The request for one snippet. Raises InvalidRequest naming every broken rule; then nothing was sent."""
    rule = _text_rule(payload.code, bounds.code_rule)  # check 4
    return _request(payload, [FieldFault("code", rule)] if rule else [], how)


def project_request(files: object, steps: object, artifacts: object, **how: Unpack[RunOptions]) -> RunRequest:
    """The request for one project, its files read. Raises InvalidRequest as `script_request`."""
    payload, faults = inputs.project(files, steps, artifacts)  # checks 5 and 6
    return _request(payload, faults, how)


def _request(payload: Script | Project, faults: list[FieldFault], how: RunOptions) -> RunRequest:
    # A misspelled floor must not become "any wall".
    if unknown := how.keys() - RunOptions.__annotations__.keys():
        raise TypeError(f"unexpected option: {', '.join(sorted(unknown))}")
    floor, timeout, profile = how.get("floor"), how.get("timeout"), how.get("grant_profile")
    software_rule, trace_id = how.get("software_rule"), how.get("trace_id")
    faults = [*faults, *_faults(floor, timeout), *_extra_faults(software_rule, trace_id)]
    faults += [*_key_faults(how.get("idempotency_key")), *_profile_faults(profile)]
    if faults:
        raise invalid(*faults)
    return RunRequest(
        payload if profile is None else replace(payload, grant_profile=profile),
        minimum_isolation=None if floor is None else Tier(floor),
        timeout_ms=0 if timeout is None else milliseconds(timeout),
        software_rule=None if software_rule is None else _own(software_rule),
        trace_id=trace_id or "",
    )


def _own(rule: SoftwareRule) -> SoftwareRule:
    """A copy that nobody else can change: the answer is checked against it later."""
    return SoftwareRule(rule.mode, tuple(rule.identities))


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, rounded up so that no positive duration becomes 0, clamped to what JSON carries exactly."""
    return math.ceil(min(seconds * 1000, _WIRE_MAX_MS))  # check 10


def invalid(*faults: FieldFault) -> InvalidRequest:
    """The error for broken rules, marked: nothing was sent. Its message has the first, its `faults` all."""
    first = faults[0]
    return InvalidRequest(f"{first.field}: {first.rule}", not_dispatched=Reason.REQUEST, faults=faults)


# A caller's values are objects until they are checked, whatever the annotations of the methods say.
def _faults(floor: object, timeout: object) -> Iterator[FieldFault]:
    if floor is not None and not (isinstance(floor, str) and floor in FLOORS):  # check 8
        yield FieldFault("floor", f"must be one of {', '.join(FLOORS)}")
    if timeout is not None and (rule := _timeout_rule(timeout)):
        yield FieldFault("timeout", rule)


def _text_rule(value: object, rule: Callable[[str], str | None]) -> str | None:
    return rule(value) if isinstance(value, str) else "must be text"


def seconds_rule(value: object) -> str | None:
    """Rule broken by what should be a duration: one phrase, or None for a finite number, whatever its sign."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number of seconds"
    # An integer is finite; one beyond every float must not even be asked.
    return (
        "must be a finite number of seconds"
        if isinstance(value, float) and not math.isfinite(value)
        else None
    )


def _timeout_rule(timeout: Any) -> str | None:
    if rule := seconds_rule(timeout):
        return rule
    if timeout <= 0:
        return "must be positive"
    most = bounds.TIMEOUT_CEILING_MS
    return None if milliseconds(timeout) <= most else f"at most {most // 1000} seconds"


def _extra_faults(rule: object, trace_id: object) -> Iterator[FieldFault]:
    if trace_id is not None and (broken := _text_rule(trace_id, bounds.trace_id_rule)):  # check 8
        yield FieldFault("trace_id", broken)
    if isinstance(rule, SoftwareRule):  # check 9
        yield from _rule_faults(rule.mode, rule.identities)
    elif rule is not None:
        yield FieldFault(
            "software_rule", 'must be a plimsoll.SoftwareRule, like SoftwareRule("exact", (identity,))'
        )


def _key_faults(key: object) -> Iterator[FieldFault]:
    if key is not None and not (isinstance(key, str) and _KEY.fullmatch(key)):  # check 8
        yield FieldFault("idempotency_key", "must be 1 to 255 visible ASCII characters")


def _profile_faults(name: object) -> Iterator[FieldFault]:
    # Nor must an empty name become "no grant": whoever gives one wants one.
    if name is not None and not (isinstance(name, str) and bounds.NAME.fullmatch(name)):  # check 8
        yield FieldFault("grant_profile", "must be the name of a profile, 1 to 64 characters of [a-z0-9-]")


def _rule_faults(mode: object, identities: object) -> Iterator[FieldFault]:
    most = {"exact": 1, "approved": bounds.SOFTWARE_IDENTITIES}.get(mode) if isinstance(mode, str) else None
    if most is None:
        yield FieldFault("software_rule.mode", "must be exact or approved")
    elif not isinstance(identities, tuple | list) or not all(isinstance(each, str) for each in identities):
        yield FieldFault("software_rule.identities", "must be a tuple of text, also when it holds one")
    else:
        rules = _identity_rules(identities, f"must hold 1 to {most} identities in mode {mode}", most)
        yield from (FieldFault("software_rule.identities", rule) for rule in rules)


def _identity_rules(identities: Sequence[str], count_rule: str, most: int) -> Iterator[str]:
    if not 1 <= len(identities) <= most:
        yield count_rule
    if len(set(identities)) != len(identities):
        yield "must be distinct"
    yield from filter(None, map(bounds.identity_rule, identities))


def body(request: RunRequest) -> bytes:
    """The JSON body that says exactly this request: what is absent is not sent."""
    said = {"payload": _payload(request.payload), **_sent(request)}
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


def _payload(payload: Payload) -> dict[str, Any]:
    if not isinstance(payload, JavaScript | Python | Project):
        raise TypeError("this kind has no body here")
    said: dict[str, Any] = {"kind": payload.kind.value}
    if isinstance(payload, Project):
        files = [_file(file) for file in payload.files]
        lists = {"files": files, "steps": list(payload.steps), "artifacts": list(payload.artifacts)}
        said |= {name: items for name, items in lists.items() if items}
    else:
        said["code"] = payload.code
    return said | ({"grant_profile": payload.grant_profile} if payload.grant_profile else {})


def _file(file: File) -> dict[str, str]:
    content, encoding = file_text(file.content)
    more = {} if encoding == "utf-8" else {"content_encoding": encoding}
    return {"path": file.path, "content": content} | more


def _sent(request: RunRequest) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    if request.minimum_isolation is not None:
        sent["minimum_isolation"] = request.minimum_isolation.value
    if request.timeout_ms:
        sent["timeout_ms"] = request.timeout_ms
    if request.software_rule is not None:
        rule = request.software_rule
        sent["software_rule"] = {"mode": rule.mode, "identities": list(rule.identities)}
    if request.trace_id:
        sent["trace_id"] = request.trace_id
    return sent
