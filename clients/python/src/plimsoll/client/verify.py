"""Is this the answer to our run? The rule book of every run answer; numbers as in docs/python-client.md.

24 a record is present                         32 one result, of the kind asked
25-31 the record holds (plimsoll.records.checks)
33 the stated wall meets the floor             S8 its times are ours, its sandbox was never seen before
S18 of a stream: the digest of 27 covers exactly the bytes that were streamed

In that order; from 25 on the error carries the result that came. None of these errors is a reason to send again.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from plimsoll.client import errors
from plimsoll.client.answers import Received, shaped
from plimsoll.client.results import Run
from plimsoll.client.seen import Seen
from plimsoll.contract.record import RECORD_VERSION, RunRecord
from plimsoll.contract.requests import RunRequest
from plimsoll.contract.rest import RunAnswer
from plimsoll.contract.results import ScriptResult
from plimsoll.contract.tiers import Tier
from plimsoll.records import Stated, check_answer
from plimsoll.records.rest import record_from_body, result_from_body

_PLACEHOLDER = asdict(RunRecord(version=0, record_sha256="0" * 64))
_TIERS = frozenset(Tier)


KEPT_MS = 24 * 3_600_000
"""How long a service keeps an answer under its key."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What our own side knows of a run. `skew_ms` is how far the service's clock may be from ours.

    An answer under a `key`, or of the asynchronous run `run_id`, may come more than once, and a key's may be a day old.
    """

    request: RunRequest
    skew_ms: int
    seen: Seen = field(repr=False)
    key: str = field(default="", repr=False)
    run_id: str = ""

    @property
    def owner(self) -> str:
        """Who may be told of the same sandbox again; empty: nobody."""
        if self.key:
            return f"key {self.key}"
        return f"run {self.run_id}" if self.run_id else ""


@dataclass(frozen=True, slots=True)
class Streamed:
    """The bytes that came as events before the result."""

    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)


def run_answer(
    expected: Expected,
    request_id: str,
    answer: dict[str, Any],
    received: Received,
    streamed: Streamed | None = None,
) -> Run:
    """The run that `answer` states, once everything holds. Raises DataLoss's kinds and MalformedResponse.

    `received` gives our own times of sending (for a run that was started before: of that) and receiving.
    """
    request = expected.request
    if answer.get("record") is None:  # 24
        raise errors.NoRecord("the answer has no record", result=_unproven(answer, request_id))
    _kind(request, answer)  # 32
    run, stated, result = _read(answer, request_id)
    if streamed is not None:  # S18
        _record(request, run, stated, replace(result, stdout=streamed.stdout, stderr=streamed.stderr))
    _record(request, run, stated, result)  # 25-31
    if not run.isolation.meets(request.minimum_isolation):  # 33; an unknown tier meets nothing
        raise errors.IsolationEvidenceMismatch("the wall stated does not meet the floor", result=run)
    _fresh(expected, run, received)  # S8
    if not expected.seen.add(run.instance, expected.owner):  # S8
        raise errors.StaleAnswer("the sandbox stated already ran something else for us", result=run)
    return run


def _kind(request: RunRequest, answer: dict[str, Any]) -> None:
    result = answer.get("result")
    kind = result.get("kind") if isinstance(result, dict) else None
    if isinstance(kind, str) and kind != request.payload.kind.value:
        raise errors.ResultKindMismatch("the result is of another kind than what was sent")


def _unproven(answer: dict[str, Any], request_id: str) -> Run | None:
    try:
        run, _, _ = _read(answer | {"record": _PLACEHOLDER}, request_id)
    except errors.MalformedResponse:
        return None
    return replace(run, record=RunRecord(version=0))


def _read(answer: dict[str, Any], request_id: str) -> tuple[Run, Stated, ScriptResult]:
    """The answer as values. A word for a tier that nobody here knows becomes `none`, which meets no floor."""
    isolation = answer.get("isolation")
    unknown = {"isolation": Tier.NONE} if isinstance(isolation, str) and isolation not in _TIERS else {}
    body = shaped(RunAnswer, answer | unknown)
    try:
        result = result_from_body(body.result)
    except ValueError as error:
        raise errors.MalformedResponse(f"the answer's output {error}") from None
    stated = Stated(body.provider, str(isolation), body.environment, body.software_identity, body.instance)
    return _run(body, result, request_id), stated, result


def _run(body: RunAnswer, result: ScriptResult, request_id: str) -> Run:
    return Run(
        id=body.id,
        kind=result.kind,
        provider=body.provider,
        isolation=body.isolation,
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        cancelled=body.cancelled,
        oom_killed=body.oom_killed,
        stdout=result.stdout,
        stderr=result.stderr,
        stdout_truncated=result.stdout_truncated,
        stderr_truncated=result.stderr_truncated,
        duration_ms=body.duration_ms,
        start_ms=body.start_ms,
        environment=body.environment,
        software_identity=body.software_identity,
        instance=body.instance,
        evidence_sha256=body.evidence_sha256,
        recorded=body.recorded,
        record=record_from_body(body.record),
        request_id=request_id,
    )


def _record(request: RunRequest, run: Run, stated: Stated, result: ScriptResult) -> None:
    faults = check_answer(request, result, run.record, stated)
    if faults == ("version",):
        version = run.record.version
        message = f"the record is of version {version}, and this protocol requires {RECORD_VERSION}"
        raise errors.RecordVersion(message, version=version, result=run)
    if faults:
        message = f"the record does not hold: {', '.join(faults)}"
        raise errors.RecordMismatch(message, fields=faults, result=run)


def _fresh(expected: Expected, run: Run, received: Received) -> None:
    kept_ms = KEPT_MS if expected.key else 0
    earliest = received.sent_ms - kept_ms - expected.skew_ms
    latest = received.received_ms + expected.skew_ms
    times = (run.record.started_unix_ms, run.record.ended_unix_ms)
    if not run.instance or any(not earliest <= time <= latest for time in times):
        raise errors.StaleAnswer("the run's times lie outside our own sending and receiving", result=run)
