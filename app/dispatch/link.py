"""The API's end of the socketpair to one provider process: `plimsoll.contract.worker.Worker` over frames.

What its errors prove:

1. `NotSent`: the link was down, or went down before a byte of the start frame was handed to the socket. Nothing ran. Raised by
   the call of `start`, or by the iteration when the frame waited behind others and the link was lost before its turn.
2. `TicketRefused`: the host's own table refused the ticket, as its first word on that start. Nothing ran. The argument is
   the host's stable code (`unknown`, `expired`, `isolation`, `unavailable`, `changed`, `mismatch`, `not_started`).
3. `WorkerLost`: everything else (end of file, another boot, a broken frame, and as `WorkerSilent` silence past a deadline).
   May have run.

The frames are described in providers/host/server.py. The link outlives the processes it talks to: the supervisor attaches one
socket after the other, and a ticket of an earlier boot is never sent to a later one.
"""

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from weakref import WeakValueDictionary

from app.dispatch.channel import Channel, ChannelFull
from plimsoll.contract import bounds, codec, frames
from plimsoll.contract.refusals import Refusal
from plimsoll.contract.requests import Project
from plimsoll.contract.results import Artifact
from plimsoll.contract.worker import (
    Accepted,
    Broken,
    Ended,
    Event,
    Job,
    NotSent,
    Out,
    RunState,
    Spec,
    StepEnded,
    Ticket,
    TicketRefused,
    WorkerInfo,
    WorkerLost,
    WorkerSilent,
)

ACCEPT_S: Final = 20.0
"""How long a worker may take to accept a run: more than a provider has to begin it, so that its word is heard."""
GRACE_S: Final = 8.0
"""How long after a run's own deadline its end may take to arrive: more than a provider has to end it, for the same reason."""

ANSWERS: Final[Mapping[str, Any]] = {
    "ticket": Ticket,
    "refusal": Refusal,
    "state": RunState,
    "info": WorkerInfo,
    "accepted": Accepted,
    "step_ended": StepEnded,
    "ended": Ended,
    "broken": Broken,
}
"""What a frame's `shape` says its body is."""


class _Run:
    """One started run as this side sees it: its events as they come, and how much output may still come."""

    def __init__(self, channel: Channel, job: Job, due: float) -> None:
        self.channel = channel
        self.position = channel.queued
        self.job = job
        self.due = due
        steps = len(job.payload.steps) if isinstance(job.payload, Project) else 1
        self.room = 2 * job.output_bytes * steps
        self.artifacts_room = bounds.ARTIFACTS_BYTES
        self.events: deque[Event | TicketRefused | None] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: Event | TicketRefused | None) -> None:
        """The next event; None: the link is lost."""
        self.events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> Event | TicketRefused | None:
        """The next event, for one consumer. Raises WorkerSilent when it does not come in time."""
        if not self.events:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_at(self.due, _give_up, self._waiter, WorkerSilent("silent after start"))
            try:
                await self._waiter
            finally:
                timer.cancel()
        return self.events.popleft()


class WorkerLink:
    """A `Worker` on the other side of a socket. Every wait has a deadline; use it from one event loop."""

    def __init__(
        self,
        *,
        rpc_s: float = 2.0,
        accept_s: float = ACCEPT_S,
        grace_s: float = GRACE_S,
    ) -> None:
        """`rpc_s` bounds every question; `accept_s` the wait for `Accepted`; `grace_s` is added to a run's timeout."""
        self._rpc_s = rpc_s
        self._accept_s = accept_s
        self._grace_s = grace_s
        self.on_info: Callable[[WorkerInfo], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self._numbers = itertools.count(1)
        self._channel: Channel | None = None
        self._info: WorkerInfo | None = None
        self._free = 0
        """Free slots as of the latest answer or event."""
        self._calls: dict[int, asyncio.Future[Any]] = {}
        # A run is here as long as somebody holds its iterator, whether or not it is ever iterated to its end.
        self._runs: WeakValueDictionary[int, _Run] = WeakValueDictionary()

    # --- connection -----------------------------------------------------------------------------------------------

    @property
    def latest(self) -> WorkerInfo | None:
        """The latest word of the attached process, with `free` as of its latest answer; None until it has said who it is."""
        if self._info is not None and self._info.free != self._free:
            self._info = replace(self._info, free=self._free)
        return self._info

    def attach(self, sock: socket.socket) -> None:
        """Talk over `sock` from now on and own it. Call inside the event loop, with no socket attached."""
        if self._channel is not None:
            raise RuntimeError("a socket is already attached")
        self._channel = Channel(sock, self._frame, self._lost)

    def detach(self) -> None:
        """Close the socket; whoever waits gets `WorkerLost` (or `NotSent`). Does nothing when there is none."""
        if self._channel is not None:
            self._channel.close()

    def _lost(self) -> None:
        """The socket is gone: tell everybody who waits."""
        self._info = None
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.done():
                call.set_exception(WorkerLost("link closed"))
        for run in self._runs.values():
            run.put(None)
        self._channel = None
        if self.on_lost is not None:
            self.on_lost()

    # --- Worker ---------------------------------------------------------------------------------------------------

    async def info(self) -> WorkerInfo:
        """The latest word of the process, which pushes every change, with `free` as of its latest answer."""
        if (latest := self.latest) is None:
            raise WorkerLost("link down")
        return latest

    async def reserve(self, spec: Spec) -> Ticket | Refusal:
        """One slot, or why not. Raises WorkerLost."""
        answer = await self._call({"op": "reserve"}, codec.dumps(spec))
        if isinstance(answer, Ticket | Refusal):
            return answer
        raise WorkerLost("answer of the wrong shape")

    async def query(self, run_id: str, *, void: bool) -> RunState:
        """What became of a run; with `void` an unspent ticket is void before the answer. Raises WorkerLost."""
        answer = await self._call({"op": "query", "run": run_id, "void": void})
        if isinstance(answer, RunState):
            return answer
        raise WorkerLost("answer of the wrong shape")

    async def cancel(self, run_id: str) -> None:
        """End a running run or void its ticket. Raises WorkerLost."""
        await self._call({"op": "cancel", "run": run_id})

    async def answers(self) -> bool:
        """Whether the process still answers. One that has not yet said who it is need not."""
        try:
            await self._call({"op": "ping"})
        except WorkerLost:
            return self._info is None
        return True

    async def drain(self) -> None:
        """Take no new work; running runs go on. Raises WorkerLost."""
        await self._call({"op": "drain"})

    def start(self, ticket: Ticket, job: Job) -> AsyncIterator[Event]:
        """Spend the ticket: the code is handed over when this returns, and nothing is when it raises NotSent.

        The iterator raises TicketRefused, WorkerLost, and NotSent when the link was lost before a byte left.
        """
        channel, number = self._channel_of(ticket), next(self._numbers)
        header = {"op": "start", "n": number, "run": ticket.run_id, "secret": ticket.secret}
        frame = frames.encode(header, codec.dumps(job))
        due = asyncio.get_running_loop().time() + self._accept_s
        run = self._runs[number] = _Run(channel, job, due)
        try:
            channel.send(frame)
        except ChannelFull as full:
            raise NotSent("outgoing buffer full") from full
        return self._events(run)

    async def _events(self, run: _Run) -> AsyncIterator[Event]:
        """The run's events in order. The end is due by its timeout plus the grace, counted from `Accepted`."""
        accepted = False
        while True:
            event = await self._next(run)
            if isinstance(event, TicketRefused):
                # Only as the first word: after `Accepted` nothing can turn a run into one that never ran.
                raise WorkerLost("ticket refused after acceptance") if accepted else event
            if isinstance(event, Accepted) is accepted and not isinstance(event, Broken):
                run.channel.close()
                raise WorkerLost("event out of order")
            if not accepted:
                accepted = True
                run.due = asyncio.get_running_loop().time() + run.job.timeout_ms / 1000 + self._grace_s
            yield event
            if isinstance(event, Ended | Broken):
                return

    async def _next(self, run: _Run) -> Event | TicketRefused:
        event = await run.next()
        if event is not None:
            return event
        raise WorkerLost("link closed") if run.channel.has_left(run.position) else NotSent("link closed")

    def _channel_of(self, ticket: Ticket) -> Channel:
        if self._channel is None or self._info is None:
            raise NotSent("link down")
        if self._info.boot_id != ticket.boot_id:
            raise NotSent("the ticket is of an earlier boot")
        return self._channel

    async def _call(self, header: Mapping[str, Any], body: bytes = b"") -> object:
        """One question, one answer, within `rpc_s`."""
        if self._channel is None or self._info is None:
            raise WorkerLost("link down")
        number, loop = next(self._numbers), asyncio.get_running_loop()
        answer = self._calls[number] = loop.create_future()
        timer = loop.call_later(self._rpc_s, _give_up, answer, WorkerLost("no answer in time"))
        try:
            self._channel.send(frames.encode({**header, "n": number}, body))
            return await answer
        except ChannelFull as full:
            raise WorkerLost("outgoing buffer full") from full
        finally:
            timer.cancel()
            self._calls.pop(number, None)

    # --- what comes in --------------------------------------------------------------------------------------------

    def _frame(self, header: dict[str, Any], body: bytes) -> None:
        """Route one frame. Raises FrameError or ValueError on nonsense, which ends the channel."""
        match header.get("op"):
            case "info":
                self._inform(codec.loads(WorkerInfo, body))
            case "answer":
                self._answer(header, body)
            case "event":
                self._event(header, body)
            case _:
                raise frames.FrameError("unknown frame")

    def _inform(self, info: WorkerInfo) -> None:
        self._info, self._free = info, info.free
        if self.on_info is not None:
            self.on_info(info)

    def _count(self, header: dict[str, Any]) -> None:
        """Answers and ends carry the number of free slots."""
        free = header.get("free")
        if isinstance(free, int):
            self._free = free

    def _answer(self, header: dict[str, Any], body: bytes) -> None:
        self._count(header)
        call = self._calls.get(header["n"])
        if call is not None and not call.done():
            shape = header["shape"]
            call.set_result(None if shape == "none" else codec.loads(ANSWERS[shape], body))

    def _event(self, header: dict[str, Any], body: bytes) -> None:
        self._count(header)
        run = self._runs.get(header["n"])
        if run is None:
            return  # nobody listens any more; the host keeps the end for `query`
        match header["shape"]:
            case "out":
                run.put(_output(run, header["stream"], header["step"], body))
            case "artifact":
                run.put(_artifact(run, header["path"], body))
            case "ticket_refused":
                run.put(TicketRefused(str(header.get("cause", "unknown"))))
            case shape:
                run.put(codec.loads(ANSWERS[shape], body))


def _give_up(waiter: asyncio.Future[Any], why: WorkerLost) -> None:
    if not waiter.done():
        waiter.set_exception(why)


def _output(run: _Run, stream: str, step: int, data: bytes) -> Out:
    run.room -= len(data)
    if run.room < 0 or stream not in {"stdout", "stderr"} or type(step) is not int:
        raise frames.FrameError("output beyond the cap or of no stream")
    return Out("stdout" if stream == "stdout" else "stderr", data, step)


def _artifact(run: _Run, path: str, content: bytes) -> Artifact:
    run.artifacts_room -= len(content)
    if run.artifacts_room < 0 or not isinstance(path, str):
        raise frames.FrameError("artifacts beyond their bound or without a path")
    return Artifact(path, content)
