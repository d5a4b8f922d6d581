"""The client without any input or output: what to send, and what an answer means.

`Core` builds a `Prepared` exchange, a shell sends it and collects a `Received` answer, `check` gives the value or raises.
Both shells are those few lines; every rule of trust is here and in the modules this one calls.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Never, TypeVar, Unpack
from urllib.parse import urlencode

from plimsoll.client import answers, kept, refusals, requests, verify, views
from plimsoll.client.answers import LATER, OK, Received
from plimsoll.client.errors import MalformedResponse, PlimsollError
from plimsoll.client.inputs import Files
from plimsoll.client.kept import Started
from plimsoll.client.options import Options
from plimsoll.client.results import ProjectRun, R, Run
from plimsoll.client.seen import Seen
from plimsoll.client.streaming import Reading
from plimsoll.contract import bounds
from plimsoll.contract.record import RunRecord
from plimsoll.contract.refusals import FieldFault
from plimsoll.contract.requests import RunRequest
from plimsoll.contract.rest import DescribeBody, EvidenceBody, GrantBody, RunPage, RunView

T = TypeVar("T")
Accept = Callable[[dict[str, Any], Received], T]

USER_AGENT = "plimsoll-python"
_WAIT_MAX_S = 60
_PAGE_MAX = 100


def random_id() -> str:
    """A fresh request id: 128 random bits as 32 hex digits."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Prepared(Generic[T]):
    """One exchange, ready to be sent. `path` includes the base URL's own path; `accept` reads a bound success.

    `statuses` are those of a success. `starts`: it is this exchange that starts a run (or reads what concerns no run), so its
    failure can prove that nothing ran; asking for a run that was started before, no failure proves anything about that run.
    """

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    request_id: str
    accept: Accept[T] = field(repr=False)
    statuses: tuple[int, ...] = (OK,)
    starts: bool = True


@dataclass(frozen=True, slots=True)
class Streaming(Generic[R]):
    """One exchange whose success is a stream, and how that is read. `prepared` reads every other answer: it raises."""

    prepared: Prepared[Never]
    reading: Reading[R]


@dataclass(frozen=True, slots=True)
class Asked(Generic[R]):
    """What is to be run, checked: the request, its key (or nothing), and how its answer is made a run."""

    request: RunRequest
    build: verify.Build[R] = field(repr=False)
    key: str = field(default="", repr=False)


def snippet(payload: requests.Script, **how: Unpack[requests.RunOptions]) -> Asked[Run]:
    """One snippet. Raises InvalidRequest, marked: nothing is sent."""
    return Asked(requests.script_request(payload, **how), verify.script_run, how.get("idempotency_key") or "")


def project(
    files: Files, steps: Sequence[str], artifacts: Sequence[str], **how: Unpack[requests.RunOptions]
) -> Asked[ProjectRun]:
    """One project. Raises InvalidRequest, marked: nothing is sent."""
    request = requests.project_request(files, steps, artifacts, **how)
    return Asked(request, verify.project_run, how.get("idempotency_key") or "")


class Core:
    """Builds exchanges under one set of options, and remembers the sandboxes it was told of."""

    def __init__(self, options: Options, *, new_id: Callable[[], str] = random_id) -> None:
        self._options = options
        self._new_id = new_id
        self._seen = Seen()

    @property
    def deadline_s(self) -> float:
        """Longest whole exchange, seconds."""
        return self._options.deadline_s

    def run(self, asked: Asked[R]) -> Prepared[R]:
        """One run, waited for. Under a key the answer may be RunPending."""
        expected, request_id = self._expected(asked), self._new_id()
        statuses = (OK, LATER) if expected.key else (OK,)

        def accept(answer: dict[str, Any], received: Received) -> R:
            if received.head.status == LATER:
                raise kept.pending(answer)
            return verify.run_answer(expected, request_id, answer, received)

        return self._run(expected, request_id, accept, statuses=statuses)

    def start(self, asked: Asked[R]) -> Prepared[Started[R]]:
        """One run that is answered later."""
        expected, request_id = self._expected(asked), self._new_id()

        def accept(answer: dict[str, Any], received: Received) -> Started[R]:
            return kept.started(expected, request_id, answer, received)

        prefer = ("prefer", "respond-async")
        return self._run(expected, request_id, accept, prefer, statuses=(OK, LATER))

    def stream(self, asked: Asked[R]) -> Streaming[R]:
        """One run as events."""
        expected, request_id = self._expected(asked), self._new_id()

        def accept(answer: dict[str, Any], received: Received) -> Never:
            if received.head.status == LATER:
                raise kept.pending(answer)
            raise MalformedResponse("the answer is no event stream")

        statuses = (OK, LATER) if expected.key else (OK,)
        prepared = self._run(expected, request_id, accept, accept=answers.EVENTS, statuses=statuses)
        return Streaming(prepared, Reading(expected, request_id))

    def final_run(self, run: Started[R], wait: int) -> Prepared[R | None]:
        """The end of a started run, None before it."""
        request_id = self._new_id()

        def accept(answer: dict[str, Any], received: Received) -> R | None:
            return kept.final_run(run, request_id, answer, received)

        return replace(self._prepare("GET", _run_path(run.id, wait), accept, request_id), starts=False)

    def settled(self, run_id: str, wait: int) -> Prepared[RunView | None]:
        """The final state of a run, None before it. Raises InvalidRequest, marked: nothing is sent."""
        read = partial(kept.settled_view, run_id)
        return replace(self._get(_run_path(run_id, wait), read), starts=False)

    def look(self, run_id: str) -> Prepared[RunView]:
        """A started run as it stands."""
        return replace(self.get_run(run_id, 0), starts=False)

    def cancel(self, run_id: str) -> Prepared[str]:
        """Asking a run to end. Raises InvalidRequest, marked: nothing is sent."""
        path, request_id = f"{_run_path(run_id, 0)}/cancel", self._new_id()
        read = partial(kept.outcome, run_id)
        prepared = self._prepare("POST", path, lambda answer, _: read(answer), request_id)
        return replace(prepared, starts=False)

    def _expected(self, asked: Asked[R]) -> verify.Expected[R]:
        return verify.Expected(asked.request, asked.build, self._options.skew_ms, self._seen, asked.key)

    def describe(self) -> Prepared[DescribeBody]:
        return self._get("/v1/describe", views.description)

    def grants(self) -> Prepared[list[GrantBody]]:
        return self._get("/v1/grants", views.grants)

    def get_run(self, run_id: str, wait: int) -> Prepared[RunView]:
        return self._get(_run_path(run_id, wait), partial(views.view, run_id))

    def record(self, run_id: str) -> Prepared[RunRecord]:
        return self._get(f"{_run_path(run_id, 0)}/record", views.record)

    def runs(self, limit: int | None, cursor: str | None) -> Prepared[RunPage]:
        query: dict[str, str] = {}
        if limit is not None:
            query["limit"] = str(_whole("limit", limit, 1, _PAGE_MAX))
        if cursor is not None:
            query["cursor"] = _text("cursor", cursor)
        return self._get("/v1/runs" + (f"?{urlencode(query)}" if query else ""), views.page)

    def evidence(self, sha256: str) -> Prepared[EvidenceBody]:
        name = _hex("sha256", sha256, bounds.SHA256)
        return self._get(f"/v1/evidence/{name}", partial(views.evidence, name))

    def _get(self, path: str, read: Callable[[dict[str, Any]], T]) -> Prepared[T]:
        return self._prepare("GET", path, lambda answer, _: read(answer), self._new_id())

    def _run(
        self,
        expected: verify.Expected[Any],
        request_id: str,
        read: Accept[T],
        *headers: tuple[str, str],
        accept: str = answers.JSON,
        statuses: tuple[int, ...],
    ) -> Prepared[T]:
        sent = [("content-type", answers.JSON), *headers]
        if expected.key:
            sent.append(("idempotency-key", expected.key))
        prepared = self._prepare("POST", "/v1/runs", read, request_id, *sent, accept=accept)
        return replace(prepared, body=requests.body(expected.request), statuses=statuses)

    def _prepare(
        self,
        method: str,
        path: str,
        read: Accept[T],
        request_id: str,
        *more: tuple[str, str],
        accept: str = answers.JSON,
    ) -> Prepared[T]:
        headers = [
            ("accept", accept),
            ("accept-encoding", "identity"),
            ("user-agent", USER_AGENT),
            (answers.REQUEST_ID, request_id),
            *more,
        ]
        if self._options.token:
            headers.append(("authorization", f"Bearer {self._options.token}"))
        full = self._options.prefix + path
        return Prepared(method, full, tuple(headers), b"", request_id, read)


def _run_path(run_id: str, wait: int) -> str:
    query = f"?wait={_whole('wait', wait, 0, _WAIT_MAX_S)}" if wait else ""
    return f"/v1/runs/{_hex('id', run_id, bounds.RUN_ID)}{query}"


def _hex(name: str, value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise requests.invalid(FieldFault(name, "must be lower-case hex digits of the right length"))
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise requests.invalid(FieldFault(name, "must be text"))
    return value


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise requests.invalid(FieldFault(name, f"must be an integer from {least} to {most}"))
    return value


def _refusal(prepared: Prepared[Any], received: Received) -> PlimsollError:
    error = refusals.refusal(received, prepared.request_id)
    if not prepared.starts:
        error.not_dispatched = None
    return error


def check(prepared: Prepared[T], received: Received) -> T:
    """The value an answer gives, after every check. Raises a PlimsollError that names our request id."""
    try:
        answers.check_head(received.head, prepared.statuses)  # 18, 19
        if len(received.body) > answers.BODY_LIMIT:  # 19
            raise answers.too_large()
        if received.head.is_error:
            raise _refusal(prepared, received)  # 21, 22
        answers.require_bound(received.head, prepared.request_id)  # 21
        return prepared.accept(answers.json_object(received), received)  # 20, 23-33, S8
    except PlimsollError as error:
        error.request_id = prepared.request_id
        raise
