"""What a stream says, event by event, and when its end may be believed; pure.

    accepted ── stdout | stderr | step … ── result ── end of the stream: the run, once everything holds
        └───────────────────────────────── error ─── end of the stream: the error
    error (nothing was accepted) ─────────────────── end of the stream: the error, with its mark

`step` is there of a project alone: it ends the step that is under way, and the output that follows is the next one's.
Everything else (another order, a second result, anything after it, a name nobody knows) is malformed, and never marked.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal

from pydantic import BaseModel, ConfigDict, Field

from plimsoll.client import errors, refusals, verify
from plimsoll.client.answers import BODY_LIMIT, Head, Received, shaped, too_large
from plimsoll.client.results import AnyRun, ProjectRun, R, Run
from plimsoll.client.sse import LINE_BYTES, Event, Parser
from plimsoll.contract import bounds
from plimsoll.contract.content import Encoding
from plimsoll.contract.requests import Project
from plimsoll.contract.rest import RunId, Sha256
from plimsoll.contract.results import ProjectResult, StepResult
from plimsoll.contract.tiers import Tier
from plimsoll.records import strictjson
from plimsoll.records.rest import stream_bytes

Stream = Literal["stdout", "stderr"]

STREAM_LIMIT = 8 * BODY_LIMIT
"""Most of a project's whole stream: its output a few bytes an event, and the result. Nothing but one line of it is held."""

_TIERS = frozenset(Tier)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A worker took the run. `isolation` meets the floor that was sent, or the stream is refused."""

    id: str
    provider: str
    isolation: Tier
    evidence_sha256: str


@dataclass(frozen=True, slots=True)
class Output:
    """The next bytes of one stream, exactly. `step` is a project's, from 0; a snippet is step 0."""

    stream: Stream
    data: bytes = field(repr=False)
    step: int = 0


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A project's step is over, after all its output. `step` is its number, from 0; the rest is as of a result's step."""

    step: int
    command: str = field(repr=False)
    exit_code: int
    timed_out: bool
    stdout_truncated: bool
    stderr_truncated: bool
    duration_ms: int


StreamEvent = Accepted | Output | StepEnded


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, hide_input_in_errors=True)


class _AcceptedShape(_Shape):
    id: RunId
    provider: str
    isolation: Tier = Field(strict=False)
    evidence_sha256: Sha256


class _ChunkShape(_Shape):
    data: str = Field(repr=False)
    encoding: Encoding


class _StepShape(_Shape):
    step: int
    exit_code: int
    timed_out: bool
    stdout_truncated: bool
    stderr_truncated: bool
    duration_ms: int


class _Output:
    """The bytes of the step that is under way, and whole steps that ended before it."""

    def __init__(self) -> None:
        self._now: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.steps: list[StepResult] = []

    @property
    def empty(self) -> bool:
        """Whether nothing came yet."""
        return not self.steps and not any(self._now.values())

    def add(self, stream: Stream, data: bytes) -> None:
        """The next bytes. Raises MalformedResponse over the cap."""
        self._now[stream] += data
        if len(self._now[stream]) > bounds.OUTPUT_CAP_BYTES:
            raise errors.MalformedResponse(
                f"the stream has more than {bounds.OUTPUT_CAP_BYTES} bytes of output"
            )

    def end(self, step: StepEnded) -> None:
        """The step under way is over."""
        said: dict[str, Any] = {name: getattr(step, name) for name in StepEnded.__slots__ if name != "step"}
        self.steps.append(StepResult(**said | self._bytes()))
        for data in self._now.values():
            data.clear()

    def in_place_of(self, result: verify.Result) -> verify.Result:
        """The result with what was streamed instead of its own."""
        if isinstance(result, ProjectResult):
            return replace(result, steps=tuple(self.steps))
        return replace(result, **self._bytes())

    def _bytes(self) -> dict[str, Any]:
        return {name: bytes(data) for name, data in self._now.items()}


class Reading(Generic[R]):
    """One stream as it is read. `run` is there after a good `end`."""

    def __init__(self, expected: verify.Expected[R], request_id: str) -> None:
        payload = expected.request.payload
        self._commands = payload.steps if isinstance(payload, Project) else None
        self._expected = expected
        self._request_id = request_id
        self._parser = Parser(LINE_BYTES if self._commands is None else BODY_LIMIT)
        self._limit = BODY_LIMIT if self._commands is None else STREAM_LIMIT
        self._size = 0
        self._output = _Output()
        self._result: dict[str, Any] | None = None
        self._error: errors.Refusal | None = None
        self.accepted: Accepted | None = None
        self.run: R | None = None

    def feed(self, part: bytes) -> Iterator[StreamEvent]:
        """What these bytes say. Raises MalformedResponse, ResponseTooLarge, IsolationEvidenceMismatch."""
        self._size += len(part)
        if self._size > self._limit:  # check 19, by count
            raise too_large(self._limit)
        for event in self._parser.feed(part):
            if (said := self._event(event)) is not None:
                yield said

    def end(self, head: Head, sent_ms: int, received_ms: int) -> list[StreamEvent]:
        """The stream ended as it should: check the run, and give what is left to say. Raises what it is instead.

        A stored answer comes without its output in between, so that follows here: a reader of events has had all of it.
        """
        if not self._parser.between or (self._result is None and self._error is None):
            raise errors.StreamCut("the stream ended without a result: the code may have run")
        if self._error is not None:
            raise self._error
        run = self._checked(Received(head, b"", sent_ms, received_ms))
        self.run = run
        return list(_events_of(run)) if self._output.empty else []

    def _event(self, event: Event) -> StreamEvent | None:
        if self._result is not None or self._error is not None:
            raise errors.MalformedResponse("the stream goes on after its last event")
        value = _object(event.data)
        if event.name == "error":
            started = self.accepted is not None
            self._error = refusals.event_refusal(value, self._request_id, started=started)
            return None
        if (event.name == "accepted") is (self.accepted is not None):
            raise errors.MalformedResponse("the stream's events are out of order")
        return self._said(event.name, value)

    def _said(self, name: str, value: dict[str, Any]) -> StreamEvent | None:
        match name:
            case "accepted":
                self.accepted = self._acceptance(value)
                return self.accepted
            case "stdout" | "stderr":
                return self._chunk(name, value)
            case "step" if self._commands is not None:
                return self._step(self._commands, value)
            case "result":
                self._result = value
                return None
            case _:
                raise errors.MalformedResponse("the stream has an event of an unknown name")

    def _acceptance(self, value: dict[str, Any]) -> Accepted:
        word = value.get("isolation")
        unknown = {"isolation": Tier.NONE} if isinstance(word, str) and word not in _TIERS else {}
        said = shaped(_AcceptedShape, value | unknown)
        if not said.isolation.meets(self._expected.request.minimum_isolation):  # check 33, before any output
            raise errors.IsolationEvidenceMismatch("the wall that accepted the run does not meet the floor")
        return Accepted(said.id, said.provider, said.isolation, said.evidence_sha256)

    def _chunk(self, name: Stream, value: dict[str, Any]) -> Output:
        said = shaped(_ChunkShape, value)
        try:
            data = stream_bytes(said.data, said.encoding)
        except ValueError as error:
            raise errors.MalformedResponse(f"the stream's output {error}") from None
        step = len(self._output.steps)
        if self._commands is not None and (value.get("step") != step or step >= len(self._commands)):
            raise errors.MalformedResponse("the stream's output is of another step than the one under way")
        self._output.add(name, data)
        return Output(name, data, step)

    def _step(self, commands: tuple[str, ...], value: dict[str, Any]) -> StepEnded:
        said = shaped(_StepShape, value)
        if said.step != len(self._output.steps) or said.step >= len(commands):
            raise errors.MalformedResponse("the stream's steps are out of order")
        ended = StepEnded(command=commands[said.step], **said.model_dump())
        self._output.end(ended)
        return ended

    def _checked(self, received: Received) -> R:
        # Only under a key can the answer be a stored one, whose output was not streamed.
        stored = self._expected.key != "" and self._output.empty
        answer, accepted = self._result or {}, self.accepted
        if accepted is None or answer.get("id") != accepted.id:
            raise errors.AnswerNotBound("the result is of another run than the one accepted")
        streamed = None if stored else self._output.in_place_of
        run = verify.run_answer(self._expected, self._request_id, answer, received, streamed)
        _same_wall(accepted, run)
        return run


def _same_wall(accepted: Accepted, run: AnyRun) -> None:
    """The wall of a result is the weaker of start and end, and never a stronger one than was accepted."""
    same = {
        "provider": run.provider == accepted.provider,
        "isolation": accepted.isolation.meets(run.isolation),
    }
    if differing := [name for name, holds in same.items() if not holds]:
        message = f"the record is not of what was accepted: {', '.join(differing)}"
        raise errors.RecordMismatch(message, fields=differing, result=run)


def _events_of(run: AnyRun) -> Iterator[StreamEvent]:
    """A stored run as if it had been streamed."""
    if isinstance(run, Run):
        yield from _output_of(run, 0)
    elif isinstance(run, ProjectRun):
        for number, step in enumerate(run.steps):
            yield from _output_of(step, number)
            said = {name: getattr(step, name) for name in StepEnded.__slots__ if name != "step"}
            yield StepEnded(step=number, **said)


def _output_of(of: Run | StepResult, step: int) -> Iterator[Output]:
    streams: list[tuple[Stream, bytes]] = [("stdout", of.stdout), ("stderr", of.stderr)]
    return (Output(name, data, step) for name, data in streams if data)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = strictjson.loads(data)
    except strictjson.JsonFault as fault:
        raise errors.MalformedResponse(f"an event of the stream {fault}") from None
    if not isinstance(value, dict):
        raise errors.MalformedResponse("an event of the stream must hold a JSON object")
    return value
