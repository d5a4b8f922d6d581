"""Is this the answer to our run? The rule book of every run answer; numbers as in docs/python-client.md.

24 a record is present                         32 one result, of the kind asked
25-31 the record holds (plimsoll.records.checks)
32 of a project: steps as asked, in order, none after one that failed; artifacts asked for, each once, 8 MiB together
33 the stated wall meets the floor             S8 its times are ours, its sandbox was never seen before
S18 of a stream: the digest of 27 covers exactly the bytes that were streamed

In that order; from 25 on the error carries the result that came. None of these errors is a reason to send again.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic

from plimsoll.client import errors
from plimsoll.client.answers import Received, shaped
from plimsoll.client.results import AnyRun, ProjectRun, R, Run
from plimsoll.client.seen import Seen
from plimsoll.contract import bounds
from plimsoll.contract.advice import Advice
from plimsoll.contract.record import RECORD_VERSION, RunRecord
from plimsoll.contract.requests import Project, RunRequest
from plimsoll.contract.rest import RunAnswer
from plimsoll.contract.results import Outcome, ProjectResult, ScriptResult, StepResult
from plimsoll.contract.tiers import Tier
from plimsoll.records import Stated, check_answer
from plimsoll.records.rest import record_from_body, result_from_body

_PLACEHOLDER = asdict(RunRecord(version=0, record_sha256="0" * 64))
_TIERS = frozenset(Tier)
_COMMON = (
    "id",
    "provider",
    "isolation",
    "cancelled",
    "oom_killed",
    "duration_ms",
    "start_ms",
    "environment",
    "software_identity",
    "instance",
    "evidence_sha256",
    "recorded",
)
"""What an answer says of every run as it stands."""


KEPT_MS = 24 * 3_600_000
"""How long a service keeps an answer under its key."""


Result = ScriptResult | ProjectResult
Build = Callable[[dict[str, Any], RunRequest, Result], R]
"""Makes the run of one kind: from the values every kind has, the request and the result."""


@dataclass(frozen=True, slots=True)
class Expected(Generic[R]):
    """What our own side knows of a run. `skew_ms` is how far the service's clock may be from ours.

    `build` makes the kind of run that was asked for. An answer under a `key`, or of the asynchronous run `run_id`, may come
    more than once, and a key's may be a day old.
    """

    request: RunRequest
    build: Build[R] = field(repr=False)
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


Streamed = Callable[[Result], Result]
"""The result with what came as events in the place of its own."""


def script_run(common: dict[str, Any], _: RunRequest, result: Result) -> Run:
    """A snippet's run. Raises MalformedResponse for another kind."""
    if not isinstance(result, ScriptResult):
        raise errors.MalformedResponse("the answer's result is not that of a snippet")
    return Run(**common, **asdict(result))


def project_run(common: dict[str, Any], request: RunRequest, result: Result) -> ProjectRun:
    """A project's run. Raises MalformedResponse for another kind."""
    if not isinstance(result, ProjectResult) or not isinstance(request.payload, Project):
        raise errors.MalformedResponse("the answer's result is not that of a project")
    own = {name: getattr(result, name) for name in ProjectResult.__slots__}
    return ProjectRun(**common, **own, steps_asked=len(request.payload.steps))


def run_answer(
    expected: Expected[R],
    request_id: str,
    answer: dict[str, Any],
    received: Received,
    streamed: Streamed | None = None,
) -> R:
    """The run that `answer` states, once everything holds. Raises DataLoss's kinds and MalformedResponse.

    `received` gives our own times of sending (for a run that was started before: of that) and receiving.
    """
    request = expected.request
    if answer.get("record") is None:  # 24
        raise errors.NoRecord("the answer has no record", result=_unproven(expected, answer, request_id))
    _kind(request, answer)  # 32
    run, stated, result = _read(expected, answer, request_id)
    if streamed is not None:  # S18
        _record(request, run, stated, streamed(result))
    _record(request, run, stated, result)  # 25-31
    if broken := next(_unasked(request, result), None):  # 32
        raise errors.ResultMismatch(f"the result is not of what was asked: {broken}", result=run)
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


def _unasked(request: RunRequest, result: Result) -> Iterator[str]:
    """What a consistent record can still not make true: more than was asked for, or something else."""
    asked = request.payload
    if not isinstance(asked, Project) or not isinstance(result, ProjectResult):
        return
    commands, paths = [step.command for step in result.steps], [each.path for each in result.artifacts]
    if commands != list(asked.steps[: len(commands)]):
        yield "its steps are others"
    if any(map(_stops, result.steps[:-1])):
        yield "a step came after one that failed"
    if result.outcome is Outcome.SETUP_FAILED and commands:
        yield "a step was begun although the setup failed"
    if result.outcome is Outcome.COMPLETED and not _went_through(asked, result):
        yield "a step is missing"
    if not set(paths) <= set(asked.artifacts) or len(set(paths)) != len(paths):
        yield "its artifacts are others"
    if sum(len(each.content) for each in result.artifacts) > bounds.ARTIFACTS_BYTES:
        yield "its artifacts are too large"


def _stops(step: StepResult) -> bool:
    return step.exit_code != 0 or step.timed_out


def _went_through(asked: Project, result: ProjectResult) -> bool:
    return len(result.steps) == len(asked.steps) or any(map(_stops, result.steps))


def _unproven(expected: Expected[R], answer: dict[str, Any], request_id: str) -> R | None:
    try:
        run, _, _ = _read(expected, answer | {"record": _PLACEHOLDER}, request_id)
    except errors.MalformedResponse:
        return None
    return replace(run, record=RunRecord(version=0))


def _read(expected: Expected[R], answer: dict[str, Any], request_id: str) -> tuple[R, Stated, Result]:
    """The answer as values. A word for a tier that nobody here knows becomes `none`, which meets no floor."""
    isolation = answer.get("isolation")
    unknown = {"isolation": Tier.NONE} if isinstance(isolation, str) and isolation not in _TIERS else {}
    body = shaped(RunAnswer, answer | unknown)
    try:
        result = result_from_body(body.result)
    except ValueError as error:
        raise errors.MalformedResponse(f"the answer's output {error}") from None
    stated = Stated(body.provider, str(isolation), body.environment, body.software_identity, body.instance)
    common = {name: getattr(body, name) for name in _COMMON}
    advice = tuple(Advice(**each.model_dump()) for each in body.advice or ())
    more = {"record": record_from_body(body.record), "request_id": request_id, "advice": advice}
    return expected.build(common | more, expected.request, result), stated, result


def _record(request: RunRequest, run: AnyRun, stated: Stated, result: Result) -> None:
    faults = check_answer(request, result, run.record, stated)
    if faults == ("version",):
        version = run.record.version
        message = f"the record is of version {version}, and this protocol requires {RECORD_VERSION}"
        raise errors.RecordVersion(message, version=version, result=run)
    if faults:
        message = f"the record does not hold: {', '.join(faults)}"
        raise errors.RecordMismatch(message, fields=faults, result=run)


def _fresh(expected: Expected[Any], run: AnyRun, received: Received) -> None:
    kept_ms = KEPT_MS if expected.key else 0
    earliest = received.sent_ms - kept_ms - expected.skew_ms
    latest = received.received_ms + expected.skew_ms
    times = (run.record.started_unix_ms, run.record.ended_unix_ms)
    if not run.instance or any(not earliest <= time <= latest for time in times):
        raise errors.StaleAnswer("the run's times lie outside our own sending and receiving", result=run)
