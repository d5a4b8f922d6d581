"""The host's side of the talk with a container's agent, as a pure machine: bytes in, events out, and what to send.

The rule book (the frames themselves are described in providers/docker/agent):

1. Nothing the agent says is trusted for more than a guest could have said anyway. Caps, deadline, memory and marks are decided
   elsewhere.
2. A frame is at most 1 MiB. Its header has exactly the fields of its type, of exactly their types; an unknown frame, or one
   that does not fit the moment, breaks the talk, and a broken talk stays broken.
3. Everything is bounded for a run: every output frame carries a byte and bytes are counted; steps and artifacts come in the
   order and at most as often as they were asked for; a pong needs its ping.
4. Artifacts come only at paths that were asked for, together at most 8 MiB, whole.
5. There is exactly one result, and it is the last word.
6. Calls come only where the run may make them and while it goes on, numbered, one whole after the other, so many and of so many
   bytes together, and only so many without their answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from plimsoll.contract import frames
from plimsoll.contract.bounds import ARTIFACTS_BYTES, OUTPUT_CAP_BYTES, OUTPUT_FLOOD_FACTOR
from plimsoll.contract.grants import BACK_BYTES, CALLS_CEILING, IN_FLIGHT, MESSAGE_BYTES
from plimsoll.contract.requests import JavaScript, Kind, Project, Python
from plimsoll.contract.results import Artifact, Outcome

MAX_FRAME: Final = 1 << 20
CHUNK: Final = 512 << 10
ANSWER_BYTES: Final = 4 * BACK_BYTES
CALLS: Final = CALLS_CEILING
CALLS_BYTES: Final = 1 << 30
"""Both for one run; the agent keeps to them too (providers/docker/agent/channel.py)."""
UNANSWERED: Final = 2 * IN_FLIGHT
"""Twice what the agent has: an answer that has arrived there may still be on its way here."""
EXIT_CODES: Final = range(256)

Stream = Literal["stdout", "stderr"]

_STREAMS: Final[dict[str, Stream]] = {"stdout": "stdout", "stderr": "stderr"}
_OUTCOMES: Final = {
    "completed": Outcome.COMPLETED,
    "setup_failed": Outcome.SETUP_FAILED,
    "runner_failed": Outcome.RUNNER_FAILED,
}
_DETAILS: Final = {
    Outcome.COMPLETED: {""},
    Outcome.SETUP_FAILED: {"disk_full", "path_refused", "files"},
    Outcome.RUNNER_FAILED: {"no_process", "artifacts"},
}
"""What an agent may say of each; whatever else there is to say (a deadline, memory, a flood) is the host's word."""
_FIELDS: Final[dict[str, tuple[dict[str, type], ...]]] = {
    "ready": ({"warm": list},),
    "pong": ({"n": int},),
    "out": ({"step": int, "stream": str},),
    "step": ({"step": int, "exit": int},),
    "artifact": ({"path": str, "size": int},),
    "call": ({"n": int, "size": int},),
    "unbegun": ({},),
    "result": ({"exit": int}, {"outcome": str, "detail": str, "truncated": bool}),
}
_WITH_BODY: Final = {"out", "artifact", "call"}


class BadTalk(Exception):
    """The agent broke the rules; its container has to go, and its run may have run. `code` is stable."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Ready:
    """The agent is there; these interpreters wait for code."""

    warm: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pong:
    """It answered a ping."""

    number: int


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes of one stream of one step; a snippet is step 0."""

    step: int
    stream: Stream
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A project's step ended by itself."""

    step: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class Called:
    """A guest's message, whole; it waits for the `reply` of that number."""

    number: int
    message: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SnippetEnded:
    """The one result of a snippet."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class ProjectEnded:
    """The one result of a project; `detail` is a code of the agent's."""

    outcome: Outcome
    detail: str
    artifacts_truncated: bool


@dataclass(frozen=True, slots=True)
class Unbegun:
    """The snippet has no result: its interpreter came to an end before the program's first line."""


Event = Ready | Pong | Output | StepEnded | Artifact | Called | SnippetEnded | ProjectEnded | Unbegun
Runnable = JavaScript | Python | Project


class Talk:
    """One container, from its start to the result of its one run."""

    def __init__(self, output_bytes: int = OUTPUT_CAP_BYTES) -> None:
        """A stream may bring a flood's worth of `output_bytes`, and one frame; whoever meters it has ended the run by then."""
        self._decoder = frames.Decoder(MAX_FRAME)
        self._most_output = output_bytes * OUTPUT_FLOOD_FACTOR + MAX_FRAME
        self._output = {"stdout": 0, "stderr": 0}
        self._payload: Runnable | None = None
        self._pings: list[int] = []
        self._step = 0
        self._failed = False
        self._wanted: list[str] = []
        self._artifact: tuple[str, int, bytearray] | None = None
        self._artifacts_left = ARTIFACTS_BYTES
        self._collecting = False
        self._cancelled = False
        self._may_call = False
        self._calls = 0
        self._calls_left = CALLS_BYTES
        self._call: tuple[int, bytearray] | None = None
        self._unanswered: set[int] = set()
        self.ready = False
        self.over = False
        self.broken: str | None = None

    # --- to the agent ---------------------------------------------------------------------------------------------

    def ping(self, number: int) -> bytes:
        """Ask for a sign of life."""
        self._pings.append(number)
        return _frame("ping", n=number)

    def begin(self, payload: Runnable, *, calls: bool = False) -> list[bytes]:
        """The frames that start the one run of this container; also before it is ready. With `calls` it may make them."""
        if self._payload is not None:
            raise RuntimeError("a container serves one run")
        self._payload = payload
        self._may_call = calls
        first = [_frame("calls")] if calls else []
        if not isinstance(payload, Project):
            return [*first, _frame("run", payload.code.encode(), language=payload.kind.value)]
        self._wanted = list(payload.artifacts)
        return [*first, *_described(payload), _frame("go")]

    def reply(self, number: int, answer: bytes) -> Iterator[bytes]:
        """The frames that answer a call; one that is too long is answered by nothing."""
        whole = answer if len(answer) <= ANSWER_BYTES else b""
        for start in range(0, len(whole) or 1, CHUNK):
            yield _frame("reply", whole[start : start + CHUNK], n=number, size=len(whole))
        self._unanswered.discard(number)  # once it is taken, so that answers nobody takes are bounded

    def cancel(self) -> bytes:
        """Ask the agent to kill every guest."""
        self._cancelled = True
        return _frame("cancel")

    # --- from the agent -------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> Iterator[Event]:
        """What `data` completes, in order. Raises BadTalk, then and ever after, at the first thing against the rules."""
        if self.broken is not None:
            raise BadTalk(self.broken)
        try:
            for header, body in self._decoder.feed(data):
                event = self._take(_checked(header, body), header, body)
                if event is not None:
                    yield event
        except (frames.FrameError, RecursionError):
            self.broken = "bad_frame"
            raise BadTalk(self.broken) from None
        except BadTalk as bad:
            self.broken = bad.code
            raise

    def _take(self, word: str, header: dict[str, Any], body: bytes) -> Event | None:
        _need(not self.over, "after_the_result")
        _need(self.ready == (word != "ready"), "not_ready_once")
        if word == "ready":
            return self._on_ready(header["warm"])
        if word == "pong":
            return self._on_pong(header["n"])
        _need(self._payload is not None, "no_run")
        if word == "out":
            return self._on_output(header["step"], header["stream"], body)
        if word == "step":
            return self._on_step(header["step"], header["exit"])
        if word == "artifact":
            return self._on_artifact(header["path"], header["size"], body)
        if word == "call":
            return self._on_call(header["n"], header["size"], body)
        if word == "unbegun":
            return self._on_unbegun()
        return self._on_result(header)

    def _on_unbegun(self) -> Unbegun:
        _need(not isinstance(self._payload, Project), "result_of_another_kind")
        self.over = True
        return Unbegun()

    def _on_ready(self, warm: list[Any]) -> Ready:
        # No set: what is looked for may not be hashable.
        languages = (Kind.PYTHON.value, Kind.JAVASCRIPT.value)
        _need(len(warm) <= len(languages) and all(name in languages for name in warm), "unknown_language")
        self.ready = True
        return Ready(tuple(warm))

    def _on_pong(self, number: int) -> Pong:
        _need(number in self._pings, "pong_without_ping")
        self._pings.remove(number)
        return Pong(number)

    def _on_output(self, step: int, stream: str, body: bytes) -> Output:
        _need(self._running() and step == self._step, "output_of_no_step")
        name = _STREAMS.get(stream)
        if name is None:
            raise BadTalk("unknown_stream")
        self._output[name] += len(body)
        _need(self._output[name] <= self._most_output, "output_unbounded")
        return Output(step, name, body)

    def _on_step(self, step: int, exit_code: int) -> StepEnded:
        _need(isinstance(self._payload, Project) and self._running() and step == self._step, "no_such_step")
        _need(exit_code in EXIT_CODES, "exit_code")
        self._step += 1
        self._failed = exit_code != 0
        self._output = {"stdout": 0, "stderr": 0}
        return StepEnded(step, exit_code)

    def _on_artifact(self, path: str, size: int, body: bytes) -> Artifact | None:
        if self._artifact is None:
            self._start_artifact(path, size)
        assert self._artifact is not None  # noqa: S101  # for the type checker: the line above made it
        expected, whole, content = self._artifact
        _need((path, size) == (expected, whole), "two_artifacts_at_once")
        _need(bool(body) == bool(size) and len(content) + len(body) <= size, "artifact_size")
        content += body
        if len(content) < size:
            return None
        self._artifact = None
        return Artifact(path, bytes(content))

    def _start_artifact(self, path: str, size: int) -> None:
        _need(self._stopped(), "artifact_before_the_end")
        _need(path in self._wanted, "artifact_not_asked_for")
        _need(0 <= size <= self._artifacts_left, "artifacts_unbounded")
        # In the order asked for, so nothing at or before this one can come any more.
        del self._wanted[: self._wanted.index(path) + 1]
        self._artifacts_left -= size
        self._artifact = (path, size, bytearray())
        self._collecting = True

    def _on_call(self, number: int, size: int, body: bytes) -> Called | None:
        _need(self._may_call, "call_without_grant")
        _need(self._running(), "call_of_no_step")
        if self._call is None:
            self._start_call(number, size)
        assert self._call is not None  # noqa: S101  # for the type checker: the line above made it
        whole, message = self._call
        message += body
        _need((number, size) == (self._calls, whole) and 0 < len(body) <= len(message) <= size, "call_size")
        if len(message) < size:
            return None
        self._call = None
        return Called(number, bytes(message))

    def _start_call(self, number: int, size: int) -> None:
        _need(number == self._calls + 1 <= CALLS, "call_number")
        _need(0 < size <= min(MESSAGE_BYTES, self._calls_left), "calls_unbounded")
        _need(len(self._unanswered) < UNANSWERED, "calls_at_once")
        self._calls = number
        self._calls_left -= size
        self._unanswered.add(number)
        self._call = (size, bytearray())

    def _on_result(self, header: dict[str, Any]) -> SnippetEnded | ProjectEnded:
        snippet = not isinstance(self._payload, Project)
        _need(snippet == ("exit" in header), "result_of_another_kind")
        _need(self._artifact is None, "artifact_size")
        _need(self._call is None, "call_size")
        self.over = True
        if snippet:
            _need(header["exit"] in EXIT_CODES, "exit_code")
            return SnippetEnded(header["exit"])
        outcome = _OUTCOMES.get(header["outcome"])
        if outcome is None or header["detail"] not in _DETAILS[outcome]:
            raise BadTalk("unknown_outcome")
        _need(outcome is not Outcome.COMPLETED or self._stopped(), "steps_missing")
        _need(outcome is not Outcome.SETUP_FAILED or self._untouched(), "setup_after_a_step")
        return ProjectEnded(outcome, header["detail"], header["truncated"])

    # --- where the run is -----------------------------------------------------------------------------------------

    def _steps(self) -> int:
        return len(self._payload.steps) if isinstance(self._payload, Project) else 1

    def _running(self) -> bool:
        """A step is under way, as far as the host can know."""
        return not self._failed and not self._collecting and self._step < self._steps()

    def _stopped(self) -> bool:
        """Every step there was to be has ended. After a cancel that is any number of them."""
        project = isinstance(self._payload, Project)
        return project and (self._failed or self._cancelled or self._step == self._steps())

    def _untouched(self) -> bool:
        return self._step == 0 and not self._collecting and not any(self._output.values())


def _checked(header: dict[str, Any], body: bytes) -> str:
    """The type of a frame whose header has exactly that type's fields."""
    word = header.pop("t", None)
    shapes = _FIELDS.get(word, ()) if isinstance(word, str) else ()
    if not isinstance(word, str) or not any(_fits(header, shape) for shape in shapes):
        raise BadTalk("unknown_frame")
    _need(word in _WITH_BODY or not body, "unexpected_body")
    _need(word != "out" or bool(body), "empty_output")
    return word


def _fits(header: dict[str, Any], shape: dict[str, type]) -> bool:
    # `type` and not `isinstance`: a truth value is an integer to the latter.
    return header.keys() == shape.keys() and all(type(header[name]) is kind for name, kind in shape.items())


def _need(truth: bool, code: str) -> None:  # noqa: FBT001  # reads as an assertion
    if not truth:
        raise BadTalk(code)


def _described(project: Project) -> Iterator[bytes]:
    for file in project.files:
        for start in range(0, len(file.content) or 1, CHUNK):
            yield _frame("put", file.content[start : start + CHUNK], path=file.path)
    for step in project.steps:
        yield _frame("step", step.encode())
    for path in project.artifacts:
        yield _frame("want", path=path)


def _frame(word: str, body: bytes = b"", **fields: str | int) -> bytes:
    return frames.encode({"t": word, **fields}, body, limit=MAX_FRAME)
