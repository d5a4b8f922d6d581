"""What a stream says, event by event, and when its end may be believed; pure.

    accepted ── stdout | stderr … ── result ── end of the stream: the run, once everything holds
        └────────────────────────── error ─── end of the stream: the error
    error (nothing was accepted) ──────────── end of the stream: the error, with its mark

Everything else (another order, a second result, anything after it, a name nobody knows) is malformed, and never marked.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from plimsoll.client import errors, refusals, verify
from plimsoll.client.answers import BODY_LIMIT, Head, Received, shaped, too_large
from plimsoll.client.results import Run
from plimsoll.client.sse import Event, Parser
from plimsoll.contract import bounds
from plimsoll.contract.rest import Encoding, RunId, Sha256
from plimsoll.contract.tiers import Tier
from plimsoll.records import strictjson
from plimsoll.records.rest import stream_bytes

Stream = Literal["stdout", "stderr"]

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
    """The next bytes of one stream, exactly."""

    stream: Stream
    data: bytes = field(repr=False)


StreamEvent = Accepted | Output


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


class Reading:
    """One stream as it is read. `run` is there after a good `end`."""

    def __init__(self, expected: verify.Expected, request_id: str) -> None:
        self._expected = expected
        self._request_id = request_id
        self._parser = Parser()
        self._size = 0
        self._output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._result: dict[str, Any] | None = None
        self._error: errors.Refusal | None = None
        self.accepted: Accepted | None = None
        self.run: Run | None = None

    def feed(self, part: bytes) -> Iterator[StreamEvent]:
        """What these bytes say. Raises MalformedResponse, ResponseTooLarge, IsolationEvidenceMismatch."""
        self._size += len(part)
        if self._size > BODY_LIMIT:  # check 19, by count
            raise too_large()
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
        streamed = any(self._output.values())
        self.run = run
        return [] if streamed else [Output(name, data) for name, data in _output_of(run) if data]

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
        self._output[name] += data
        if len(self._output[name]) > bounds.OUTPUT_CAP_BYTES:
            raise errors.MalformedResponse(
                f"the stream has more than {bounds.OUTPUT_CAP_BYTES} bytes of output"
            )
        return Output(name, data)

    def _checked(self, received: Received) -> Run:
        # Only under a key can the answer be a stored one, whose output was not streamed.
        stored = self._expected.key != "" and not any(self._output.values())
        streamed = verify.Streamed(**{name: bytes(data) for name, data in self._output.items()})
        answer, accepted = self._result or {}, self.accepted
        if accepted is None or answer.get("id") != accepted.id:
            raise errors.AnswerNotBound("the result is of another run than the one accepted")
        run = verify.run_answer(
            self._expected, self._request_id, answer, received, None if stored else streamed
        )
        _same_wall(accepted, run)
        return run


def _same_wall(accepted: Accepted, run: Run) -> None:
    """The wall of a result is the weaker of start and end, and never a stronger one than was accepted."""
    same = {
        "provider": run.provider == accepted.provider,
        "isolation": accepted.isolation.meets(run.isolation),
    }
    if differing := [name for name, holds in same.items() if not holds]:
        message = f"the record is not of what was accepted: {', '.join(differing)}"
        raise errors.RecordMismatch(message, fields=differing, result=run)


def _output_of(run: Run) -> list[tuple[Stream, bytes]]:
    return [("stdout", run.stdout), ("stderr", run.stderr)]


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = strictjson.loads(data)
    except strictjson.JsonFault as fault:
        raise errors.MalformedResponse(f"an event of the stream {fault}") from None
    if not isinstance(value, dict):
        raise errors.MalformedResponse("an event of the stream must hold a JSON object")
    return value
