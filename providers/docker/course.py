"""One run in one container, from its first frame to its end, as the seam's steps. All of it is decided here, on the host.

The rules:

1. `Begun` comes before a byte of the code leaves, and after all that can fail on this side. After it nothing is a proof that
   nothing ran.
2. The deadline runs from there, whatever the container does: it covers the sending of the code, every step and the artifacts.
3. A run is stopped at its deadline, by its caller, at a flood of output, and when it stands still without memory. All four
   go one way: the agent is asked to kill every guest, and what was written until then counts, if it comes soon.
4. Out of memory is what the host's counter or the container's death says, together with an end by SIGKILL; a stop is none.
5. Calls are answered beside the talk, while the run goes on: none is left when its end is told.
6. What an interpreter ends with before it has begun with the program is no result: it breaks the run.
7. An end that was heard before the stop is the end. The stream's end without one breaks the run.

Whoever made the container destroys it afterwards, however the run ended.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Final, Protocol

from plimsoll.contract.results import EXIT_MEMORY, Artifact, Outcome
from providers.docker import ending
from providers.docker.ending import Stop
from providers.docker.frames import (
    BadTalk,
    Called,
    Event,
    Output,
    ProjectEnded,
    SnippetEnded,
    StepEnded,
    Talk,
    Unbegun,
)
from providers.docker.ledger import Ledger
from providers.docker.memory import Usage, Watch
from providers.seam import Begun, Break, Finish, Order, Step

DRAIN_S: Final = 0.3
"""How long a run that was stopped may take to hand over what it had written."""
DEATH_S: Final = 2.0
"""How long the daemon may take to say how a container died."""


class Sight(Protocol):
    """What the course looks at from outside; of a container that is gone, both are nothing."""

    def oom_kills(self) -> int: ...

    def memory(self) -> Usage: ...


class Death(Protocol):
    """How a container ended."""

    @property
    def oom(self) -> bool: ...


class Sandbox(Protocol):
    """A container that nothing has run in, and its agent's stream. `receive` gives None at the stream's end."""

    @property
    def id(self) -> str: ...

    @property
    def talk(self) -> Talk: ...

    @property
    def sight(self) -> Sight: ...

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes | None: ...

    async def died(self) -> Death: ...


class Course:
    """The one run of a container. `steps` is iterated once; `stop` may be called at any time."""

    def __init__(self, sandbox: Sandbox, order: Order, *, gvisor: bool, start_ms: int = 0) -> None:
        """Nothing is sent yet. `gvisor`: no kill in it spares the guest. `start_ms`: how long the run waited for the sandbox.

        Raises TypeError for what containers do not run.
        """
        self._gvisor = gvisor
        self._start_ms = start_ms
        self._sandbox = sandbox
        self._order = order
        self._payload = ending.runnable(order.payload)
        self._loop = asyncio.get_running_loop()
        self._ledger = Ledger(order.output_bytes, self._loop.time())
        self._artifacts: list[Artifact] = []
        self._stopped: asyncio.Future[Stop] = self._loop.create_future()
        self._watch = Watch(self._usage, self._crippled)
        self._writer: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[bytes | None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._answering = asyncio.Lock()
        """One answer at a time goes to the agent: what others write behind it would not let it be seen that it has gone."""
        self._oom_before = self._oom_seen = 0
        self._over = False

    def stop(self, why: Stop) -> None:
        """End it soon; the first reason counts, and a run whose end was heard keeps that."""
        if not self._stopped.done():
            self._stopped.set_result(why)

    async def steps(self) -> AsyncGenerator[Step, None]:
        """`Begun`, then what the run says, then one `Finish` or `Break`."""
        frames = self._sandbox.talk.begin(self._payload, calls=self._order.call is not None)
        self._oom_before = self._oom_kills()
        deadline = self._loop.time() + self._order.timeout_ms / 1000
        yield Begun(f"docker-container:{self._sandbox.id}", self._start_ms)
        timer = self._loop.call_at(deadline, self._deadline)
        self._writer = asyncio.create_task(self._write(frames))
        watcher = asyncio.create_task(self._starve())
        try:
            while not self._over:
                for step in await self._more():
                    yield step
        finally:
            timer.cancel()
            tasks = [
                *self._calls,
                *(task for task in (self._writer, watcher, self._reader) if task is not None),
            ]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- beside the talk --------------------------------------------------------------------------------------------

    def _deadline(self) -> None:
        self.stop(Stop.MEMORY if self._watch.full else Stop.DEADLINE)

    async def _write(self, frames: Iterable[bytes]) -> None:
        with suppress(OSError):  # the stream is broken, which its reader finds too
            for frame in frames:
                await self._sandbox.send(frame)
            self._ledger.begin(self._loop.time())

    def _answer_later(self, called: Called) -> None:
        task = asyncio.create_task(self._answer(called))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _answer(self, called: Called) -> None:
        if self._order.call is None:
            return
        async with self._order.call(called.message) as answer, self._answering:
            with suppress(OSError):  # as above
                for frame in self._sandbox.talk.reply(called.number, answer):
                    await self._sandbox.send(frame)

    async def _starve(self) -> None:
        await self._watch.starved()
        self.stop(Stop.MEMORY)

    def _usage(self) -> Usage:
        self._oom_kills()
        return self._sandbox.sight.memory()

    def _crippled(self) -> bool:
        return self._gvisor and self._oom_kills() > self._oom_before

    def _oom_kills(self) -> int:
        """The most there ever were: the counter goes away together with a container that dies of it."""
        self._oom_seen = max(self._oom_seen, self._sandbox.sight.oom_kills())
        return self._oom_seen

    # --- what comes -------------------------------------------------------------------------------------------------

    async def _more(self) -> list[Step]:
        """The next steps; the last of all sets `_over`."""
        if self._stopped.done() or not await self._something_came():
            return await self._end_by_stop(self._stopped.result())
        data = self._heard()
        if data is None:
            return await self._end_by_death()
        try:
            return self._take(self._sandbox.talk.feed(data))
        except BadTalk as bad:
            return self._end(self._ledger.flush(), Break(bad.code))

    async def _something_came(self) -> bool:
        """Wait for the next piece of the stream, or its end; false when the run is to stop first."""
        reader = self._reading()
        await asyncio.wait((reader, self._stopped), return_when=asyncio.FIRST_COMPLETED)
        return reader.done()

    def _reading(self) -> asyncio.Task[bytes | None]:
        if self._reader is None:
            self._reader = asyncio.create_task(self._sandbox.receive())
        return self._reader

    def _heard(self) -> bytes | None:
        reader, self._reader = self._reading(), None
        try:
            return reader.result() or None
        except OSError:
            return None

    def _take(self, events: Iterable[Event]) -> list[Step]:
        done: list[Step] = []
        for event in events:
            match event:
                case Output():
                    if self._ledger.output(event):
                        self.stop(Stop.FLOOD)
                        return done
                case StepEnded(exit_code=code):
                    done += self._ledger.end_step(code, self._loop.time())
                    if self._out_of_memory(code):
                        return self._end(done, self._finish(Stop.MEMORY))
                case Artifact():
                    self._artifacts.append(event)
                case Called():
                    self._answer_later(event)
                case SnippetEnded(exit_code=code):
                    return self._end([*done, *self._ledger.flush()], self._end_of_snippet(code))
                case Unbegun():
                    return self._end(done, self._end_of_none())
                case ProjectEnded():
                    return self._end(done, *self._end_of_project(event))
                case _:
                    pass  # a sign of life
        return [*done, *self._ledger.flush()] if self._order.stream else done

    def _out_of_memory(self, exit_code: int) -> bool:
        return exit_code == EXIT_MEMORY and self._oom_kills() > self._oom_before

    # --- how it ends ------------------------------------------------------------------------------------------------

    def _end(self, steps: Iterable[Step], *last: Step) -> list[Step]:
        self._over = True
        self._hang_up()
        return [*steps, *last]

    def _end_of_snippet(self, exit_code: int) -> Finish:
        if self._out_of_memory(exit_code):
            return self._finish(Stop.MEMORY)
        return ending.of_snippet(self._ledger, exit_code)

    def _end_of_none(self) -> Finish | Break:
        """Whatever the interpreter ended with is no result of the program's."""
        return (
            self._finish(Stop.MEMORY) if self._oom_kills() > self._oom_before else Break("interpreter_failed")
        )

    def _end_of_project(self, said: ProjectEnded) -> list[Artifact | Finish]:
        if said.outcome is Outcome.COMPLETED:
            return [*self._artifacts, ending.of_project(self._ledger, said)]
        if self._oom_kills() > self._oom_before:
            return [self._finish(Stop.MEMORY)]
        return [ending.of_project(self._ledger, said)]

    def _hang_up(self) -> None:
        for task in self._calls:
            task.cancel()

    async def _end_by_stop(self, why: Stop) -> list[Step]:
        self._hang_up()
        sent = self._sent()
        if sent and not await self._drained():
            self._ledger.cut()
        return self._end(self._cut_off(why) if sent else [], self._finish(why))

    async def _drained(self) -> bool:
        """Have every guest killed and take what they had written; false when some of it may be missing."""
        with suppress(TimeoutError, BadTalk, OSError):
            async with asyncio.timeout(DRAIN_S):
                await self._sandbox.send(self._sandbox.talk.cancel())
                return await self._drain()
        return False

    async def _drain(self) -> bool:
        data: bytes | None = b""  # what is left of the piece that was a flood
        while data is not None:
            for event in self._sandbox.talk.feed(data):
                if isinstance(event, Output):
                    self._ledger.output(event)
                elif isinstance(event, StepEnded | SnippetEnded | ProjectEnded | Unbegun):
                    return True
            await asyncio.wait((self._reading(),))
            data = self._heard()
        return False

    async def _end_by_death(self) -> list[Step]:
        if not await self._died_of_memory():
            return self._end(self._ledger.flush(), Break("sandbox_died"))
        self._ledger.cut()
        return self._end(self._cut_off(Stop.MEMORY), self._finish(Stop.MEMORY))

    async def _died_of_memory(self) -> bool:
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(DEATH_S):
                if (await self._sandbox.died()).oom:
                    return True
        return self._oom_kills() > self._oom_before

    def _cut_off(self, why: Stop) -> list[Step]:
        return [*ending.cut_off(self._payload, self._ledger, why, self._loop.time())]

    def _finish(self, why: Stop) -> Finish:
        return ending.of_stop(self._payload, self._ledger, why)

    def _sent(self) -> bool:
        """Whether the whole order is with the agent. Until then no guest has begun."""
        return self._writer is not None and self._writer.done()
