"""The host's end of one runner: hands it code, counts and judges what comes back, and kills it.

The runner is not to be believed (S11). The host owns the deadline: at deadline + 100 ms it kills, whatever was said; and 100 ms
after it asked the runner to cancel. It counts output itself, and takes small frames of it only of a watched run, one for each
look there can have been, in time or before a call. It takes an end only for the run that is going on, "the deadline passed"
only after it did, and "cancelled" only when it asked for that. It takes calls only of a run that may make them, one at a time
and so many, and answers none after the deadline or a cancel. A frame that is too long, out of place, ill-formed or of another
run: killed, `runner_protocol`. An end of file: `runner_died`. Both only end this runner's own run, which then may have run.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final

from plimsoll.contract.results import EXIT_CANCELLED, EXIT_DEADLINE, EXIT_FLOOD, EXIT_MEMORY
from plimsoll.contract.worker import Out
from providers.seam import Break, Call, Finish, Meter, Observation, Stream
from providers.wasm.capture import LOOK_NS
from providers.wasm.forks import Forked
from providers.wasm.protocol import (
    END,
    ENDINGS,
    LEAST_OUT,
    MAY_CALL,
    MOST_CALLS,
    MOST_REPLY,
    RUN,
    Kind,
    Piece,
    ProtocolError,
    Reader,
    frame,
    pieces_of,
)

KILL_GRACE_S: Final = 0.1
"""How long after its deadline, or after it was asked to end, a run may still answer for itself."""
_BOTH_CUT: Final = 3
_LAST_READS: Final = 16
"""How often a runner is read from before it is killed: more than a socket holds, and no more for one that goes on."""
_CHUNK: Final = 32 * 1024
_STREAMS: Final[dict[int, Stream]] = {1: "stdout", 2: "stderr"}


class RunnerGone(Exception):
    """The runner is dead and not a byte of the code was handed over."""


class State(StrEnum):
    """What a runner is doing, as the host knows it."""

    STARTING = "starting"
    IDLE = "idle"
    RUNNING = "running"
    DEAD = "dead"


class Course:
    """One run on one runner: its steps as they come. Ends with exactly one `Finish` or `Break`."""

    __slots__ = (
        "_call",
        "_meter",
        "_next_look",
        "_shown",
        "_steps",
        "_waiter",
        "calling",
        "calls",
        "cancelled",
        "deadline_ns",
        "ended",
        "number",
    )

    def __init__(
        self,
        number: int,
        deadline_ns: int,
        cap: int,
        watched_from: int | None = None,
        call: Call | None = None,
    ) -> None:
        """Nothing has come yet. `watched_from`: when a watched run was handed over. `call` answers the guest's calls."""
        self.number = number
        self._call = call
        self._shown = 0
        self.calls = 0
        self.calling: asyncio.Task[None] | None = None
        """The one call that is under way."""
        self._next_look = None if watched_from is None else watched_from + LOOK_NS
        self.deadline_ns = deadline_ns
        self.cancelled = False
        """Whether its runner was asked to end it."""
        self.ended = False
        self._meter = Meter(cap)
        self._steps: deque[Out | Finish | Break] = deque()
        self._waiter: asyncio.Future[None] | None = None

    async def next(self) -> Out | Finish | Break:
        """The next step, for one consumer. Always comes: the runner's kill timer sees to it."""
        if not self._steps:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._steps.popleft()

    def may_call(self) -> bool:
        """Whether there can be one call more than were counted."""
        self.calls += 1
        return self._call is not None and self.calling is None and self.calls <= MOST_CALLS

    async def answer(self, message: bytes) -> bytes:
        """The answer to a call, or at the deadline nothing, which wakes a runner up for its end."""
        left_s = (self.deadline_ns - time.monotonic_ns()) / 1e9
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                if self._call is not None:
                    # It is handed back later: there is no other call meanwhile that it could be in the way of.
                    async with self._call(message) as answer:
                        return answer
        return b""

    def looked(self) -> bool:
        """Whether there can have been one look more than were counted: one in a while, and one before each call."""
        if self._next_look is None:
            return False
        if time.monotonic_ns() >= self._next_look:
            self._next_look += LOOK_NS
            return True
        self._shown += 1
        return self._call is not None and self._shown <= self.calls + 1

    def output(self, pieces: Iterable[Piece]) -> bool:
        """Count and keep the output of one frame; whether it was a flood."""
        for number, data in pieces:
            stream = _STREAMS[number]
            if kept := self._meter.take(stream, data):
                self._put(Out(stream, kept))
        return self._meter.flooded

    def finish(
        self,
        exit_code: int,
        *,
        flags: int = 0,
        timed_out: bool = False,
        oom_killed: bool = False,
        cancelled: bool = False,
    ) -> None:
        """The end; a later one is ignored."""
        out = bool(flags & 1) or self._meter.truncated("stdout")
        err = bool(flags & 2) or self._meter.truncated("stderr")
        self._end(Finish(exit_code, timed_out, oom_killed, cancelled, out, err))

    def break_off(self, cause: str) -> None:
        """No end to be had."""
        self._end(Break(cause))

    def _end(self, step: Finish | Break) -> None:
        if not self.ended:
            self.ended = True
            self._put(step)
        if self.calling is not None:
            self.calling.cancel()

    def _put(self, step: Out | Finish | Break) -> None:
        self._steps.append(step)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Runner:
    """One runner process. `on_dead` is called once, when it is to be used no more; it is then surely killed."""

    def __init__(self, forked: Forked, on_dead: Callable[["Runner"], None]) -> None:
        """Own the descriptors of `forked`; read from now on."""
        self.pid = forked.pid
        self.tenant: str | None = None
        self.runs = 0
        self.idle_since = 0.0
        self.seen: tuple[Observation, ...] = ()
        """What its confinement looked like before it was used."""
        self.private_bytes = 0
        """Its memory then."""
        self.rest_cpu_ns = 0
        """Processor time it had used when its latest run was over."""
        self.state = State.STARTING
        self.course: Course | None = None
        self._loop = asyncio.get_running_loop()
        self._sock = forked.sock
        self._pidfd = forked.pidfd
        self._on_dead = on_dead
        self._reader = Reader()
        self._unsent = memoryview(b"")
        """The rest of an order, or of the answer to a call."""
        self._kill_timer: asyncio.TimerHandle | None = None
        self._kill_at = 0.0
        self._hello: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self.ended = asyncio.Event()
        self._sock.settimeout(0)
        self._loop.add_reader(self._sock, self._readable)
        self._loop.add_reader(self._pidfd, self._collect)

    async def hello(self) -> dict[str, Any]:
        """What it reports of its confinement, once. Raises RunnerGone."""
        return await self._hello

    def is_alive(self) -> bool:
        """Whether the process is there right now, also before its end was noticed."""
        if self.state is State.DEAD:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    # --- a run ----------------------------------------------------------------------------------------------------

    def begin(
        self,
        number: int,
        source: bytes,
        *,
        timeout_ms: int,
        memory_bytes: int,
        cap: int,
        watched: bool = False,
        call: Call | None = None,
    ) -> Course:
        """Hand one program over; its deadline runs from now. Raises RunnerGone when not a byte of it left."""
        if self.state is not State.IDLE:
            raise RunnerGone
        now = time.monotonic_ns()
        deadline_ns = now + timeout_ms * 1_000_000
        kind = Kind.WATCH if watched else Kind.RUN
        flags = 0 if call is None else MAY_CALL
        order = frame(kind, number, RUN.pack(deadline_ns, memory_bytes, cap, flags) + source)
        try:
            sent = self._sock.send(order)
        except BlockingIOError:
            sent = 0
        except OSError as failure:
            self.kill("runner_died")
            raise RunnerGone from failure
        self.runs += 1
        self.state = State.RUNNING
        course = self.course = Course(number, deadline_ns, cap, now if watched else None, call)
        self._watch(self._loop.time() + timeout_ms / 1000 + KILL_GRACE_S)
        self._send_later(memoryview(order)[sent:])
        return course

    def _send_later(self, rest: memoryview) -> None:
        if rest:
            self._unsent = rest
            self._loop.add_writer(self._sock, self._writable)

    def cancel(self, course: Course) -> None:
        """Have the runner end this run, which keeps its output, and see that it does; a run that has ended is left alone."""
        if self.course is not course or course.cancelled:
            return
        course.cancelled = True
        if self._unsent:
            self._end_by_force(course)
            return
        with contextlib.suppress(OSError):  # it does not read, or is dead: the timer is for that
            self._sock.send(frame(Kind.CANCEL, course.number, b""))
        self._watch(min(self._kill_at, self._loop.time() + KILL_GRACE_S))

    def _watch(self, kill_at: float) -> None:
        """See that the present run is over by `kill_at`. A timer of an earlier run that comes first is left to look then."""
        self._kill_at = kill_at
        if self._kill_timer is not None:
            if self._kill_timer.when() <= kill_at:
                return
            self._kill_timer.cancel()
        self._kill_timer = self._loop.call_at(kill_at, self._look)

    def _look(self) -> None:
        self._kill_timer = None
        if self.course is None:
            return
        if self._loop.time() < self._kill_at:
            self._watch(self._kill_at)
            return
        course, reads = self.course, _LAST_READS
        while reads and self.course is course and self._readable():  # what it handed on in time counts
            reads -= 1
        if self.course is course:
            self._end_by_force(course)

    def _end_by_force(self, course: Course) -> None:
        """Kill. What the runner had not handed on is lost, if it ever had the whole code."""
        flags = 0 if self._unsent and not course.calls else _BOTH_CUT
        if course.cancelled:
            course.finish(EXIT_CANCELLED, flags=flags, cancelled=True)
        else:
            course.finish(EXIT_DEADLINE, flags=flags, timed_out=True)
        self.kill("overdue")

    # --- what comes back ------------------------------------------------------------------------------------------

    def _readable(self) -> bool:
        """Take what has come; whether anything had."""
        try:
            data = self._sock.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self.kill("runner_died")
            return True
        try:
            for kind, number, payload in self._reader.feed(data):
                self._take(kind, number, payload)
                if self.state is State.DEAD:
                    break
        except ProtocolError:
            self.kill("runner_protocol")
        return True

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == Kind.HELLO and self.state is State.STARTING and not self._hello.done():
            self._hello.set_result(_report(payload))
            return
        course = self.course
        if course is None or self.state is not State.RUNNING or number != course.number:
            raise ProtocolError("out of place")
        if kind == Kind.OUT and (len(payload) >= LEAST_OUT or course.looked()):
            self._output(course, payload)
        elif kind == Kind.END:
            self._end(course, payload)
        elif kind == Kind.CALL and payload and not self._unsent and course.may_call():
            course.calling = self._loop.create_task(self._answer(course, payload))
        else:
            raise ProtocolError("kind")

    async def _answer(self, course: Course, message: bytes) -> None:
        """Send the answer to a call, if the run still goes on. At the deadline it is empty."""
        answer = await course.answer(message)
        if self.course is not course or course.cancelled:
            return  # nothing that comes after a cancel is read
        course.calling = None
        reply = frame(Kind.REPLY, course.number, answer if len(answer) <= MOST_REPLY else b"")
        try:
            sent = self._sock.send(reply)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.kill("runner_died")
            return
        self._send_later(memoryview(reply)[sent:])

    def _output(self, course: Course, payload: bytes) -> None:
        if course.output(pieces_of(memoryview(payload))):
            course.finish(EXIT_FLOOD)
            self.kill("flood")

    def _end(self, course: Course, payload: bytes) -> None:
        """Judge an end, then be free for the next run."""
        if len(payload) < END.size or self._unsent:
            raise ProtocolError("end")
        ending, exit_code, flags = END.unpack_from(payload)
        if ending >= len(ENDINGS):
            raise ProtocolError("end")
        self._output(course, payload[END.size :])
        match ENDINGS[ending]:
            case "finished":
                course.finish(exit_code, flags=flags)
            case "deadline" if time.monotonic_ns() >= course.deadline_ns:
                course.finish(EXIT_DEADLINE, flags=flags, timed_out=True)
            case "cancelled" if course.cancelled:
                course.finish(EXIT_CANCELLED, flags=flags, cancelled=True)
            case "memory":
                course.finish(EXIT_MEMORY, flags=flags, oom_killed=True)
            case "flood":
                course.finish(EXIT_FLOOD, flags=flags)
            case "stack" | "host_calls":
                course.finish(1, flags=flags)
            case "trap":
                course.finish(1, flags=flags)
                self.kill("trap")  # the engine failed in a way that has no name: not to be used again
            case _:
                raise ProtocolError("end")
        self.course = None
        if self.state is State.RUNNING:
            self.state = State.IDLE

    def _writable(self) -> None:
        try:
            sent = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.kill("runner_died")
            return
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._loop.remove_writer(self._sock)

    # --- its end --------------------------------------------------------------------------------------------------

    def kill(self, cause: str) -> None:
        """SIGKILL, through the descriptor that can mean no other process. A run without an end breaks with `cause`."""
        if self.state is State.DEAD:
            return
        self.state = State.DEAD
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        if self.course is not None:
            self.course.break_off(cause)
            self.course = None
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        if not self._hello.done():
            self._hello.set_exception(RunnerGone())
            self._hello.exception()  # whoever waits gets it; if nobody does, nothing is lost
        self._on_dead(self)

    def _collect(self) -> None:
        """The process is gone from the machine."""
        self.kill("runner_died")
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.ended.set()


def _report(payload: bytes) -> dict[str, Any]:
    try:
        report = json.loads(payload)
    except ValueError as error:
        raise ProtocolError("hello") from error
    if not isinstance(report, dict):
        raise ProtocolError("hello")
    return report
