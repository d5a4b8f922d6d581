"""Runners, kept and made so that a reserved slot never waits for another run.

- a runner serves one tenant until it is replaced (S12): a run gets an idle runner of its tenant, or one that never ran
- two never-used runners a processor are kept; beyond them they are forked on demand (3 ms), and there are always enough,
  because the host never runs more than its slots at once
- an idle runner of a tenant is let go after ten seconds, or when its place is needed, or after a thousand runs
- a runner that goes on computing after its run, or keeps the memory, is ended within a second and gets no other run
- a runner that does not report a whole confinement is never used, and that is said at once; one that died proves nothing
- when one new runner after the other dies, that is said too: nothing can be proven then, and forking on would help nobody
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from providers.seam import NotStarted
from providers.wasm import rest
from providers.wasm.forks import ForkFailed, ForkServer
from providers.wasm.handle import Runner, RunnerGone, State

RUNS_EACH: Final = 1_000
IDLE_S: Final = 10.0
LOOK_S: Final = 1.0
"""How far apart the looks at idle runners are."""
_HELLO_S: Final = 5.0
_TRIES: Final = 3
_PAUSE_S: Final = 0.2
_MOST_PAUSE_S: Final = 5.0
_END_S: Final = 1.0
DEATHS: Final = 5
"""So many runners that died unused, one soon after the other and with no good run between, mean that none will live."""

Check = Callable[[Runner, Mapping[str, Any]], str | None]
"""The fault that a runner's report or looks show, or None."""


class Unconfined(RunnerGone):
    """A new runner lives and is not confined as it must be; it is dead now."""

    def __init__(self, runner: Runner) -> None:
        """Keep what was seen of it."""
        super().__init__()
        self.seen = runner.seen


class Pool:
    """Owns every runner. Use as an async context manager, from one event loop."""

    def __init__(
        self,
        forks: ForkServer,
        *,
        slots: int,
        check: Check,
        dropped: Callable[[str], None],
        spare: int | None = None,
        runs_each: int = RUNS_EACH,
        idle_s: float = IDLE_S,
    ) -> None:
        """`dropped(fault)` is told about every runner that is not confined as it must be, and when none lives."""
        self._forks = forks
        self._spare = min(slots, 2 * (os.cpu_count() or 1) if spare is None else spare)
        self._most = slots + self._spare
        self._check = check
        self._dropped = dropped
        self._runs_each = runs_each
        self._idle_s = idle_s
        self._all: set[Runner] = set()
        self._coming = 0
        """How many more are being forked."""
        self._deaths = 0
        """How many runners died unused since one was good for a run, with little time between."""
        self._last_death = 0.0
        self._ending: set[Runner] = set()
        self._fresh: list[Runner] = []
        self._idle: list[Runner] = []
        """Idle runners with a tenant, longest idle first."""
        self._wanted = asyncio.Event()
        self._next_look = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def runners(self) -> frozenset[Runner]:
        """All that are alive."""
        return frozenset(self._all)

    async def __aenter__(self) -> Self:
        """Start keeping spare runners."""
        self._wanted.set()
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every runner and wait until each is gone."""
        self._closing = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for runner in list(self._all):
            runner.kill("closing")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                for runner in list(self._ending):
                    await runner.ended.wait()

    # --- for a run ------------------------------------------------------------------------------------------------

    async def acquire(self, tenant: str) -> Runner:
        """An idle runner for `tenant`, now its own. Raises NotStarted when there is no process to be had."""
        runner = self._of(tenant)
        if runner is not None:
            return runner
        if self._fresh:
            runner = self._fresh.pop()
            self._wanted.set()
        else:
            self._make_room()
            runner = await self._fork_surely()
        runner.tenant = tenant
        return runner

    def release(self, runner: Runner) -> None:
        """The run is over, or given up: then the runner is too."""
        if runner.state is State.RUNNING:
            runner.kill("given_up")
        if runner.state is State.DEAD:
            return
        self._deaths = 0
        if runner.runs >= self._runs_each:
            runner.kill("retired")
            return
        runner.idle_since = asyncio.get_running_loop().time()
        runner.rest_cpu_ns = rest.cpu_ns(runner.pid)
        self._idle.append(runner)

    def _of(self, tenant: str) -> Runner | None:
        """The runner of this tenant that ran last: its pages are warm."""
        for at in range(len(self._idle) - 1, -1, -1):
            if self._idle[at].tenant != tenant:
                continue
            if _rests(self._idle[at]):
                return self._idle.pop(at)
            self._idle[at].kill("restless")
        return None

    def _make_room(self) -> None:
        """Let the longest idle runner go when another would be one too many."""
        while self._idle and len(self._all) + self._coming >= self._most:
            self._idle[0].kill("replaced")

    async def _fork_surely(self) -> Runner:
        for _ in range(_TRIES):
            with contextlib.suppress(ForkFailed, RunnerGone, TimeoutError):
                return await self.fork()
        raise NotStarted

    # --- runners --------------------------------------------------------------------------------------------------

    async def fork(self) -> Runner:
        """A new runner, confined and checked. Raises ForkFailed, RunnerGone (Unconfined when it lived), TimeoutError."""
        self._coming += 1
        try:
            runner = Runner(await self._forks.fork(), self._dead)
        finally:
            self._coming -= 1
        self._all.add(runner)
        try:
            await self._ready(runner)
        except (RunnerGone, TimeoutError) as failure:
            runner.kill("unready")
            if not isinstance(failure, Unconfined):
                self._count_death()
            raise
        except BaseException:
            runner.kill("unready")
            raise
        runner.state = State.IDLE
        return runner

    async def _ready(self, runner: Runner) -> None:
        """Look at a new runner. Only what was seen of one that was alive afterwards says something about the wall."""
        async with asyncio.timeout(_HELLO_S):
            report = await runner.hello()
        fault = self._check(runner, report)
        runner.private_bytes = rest.private_bytes(runner.pid)
        if not runner.is_alive():
            raise RunnerGone
        if fault is not None:
            self._dropped(fault)
            raise Unconfined(runner)

    def _count_death(self) -> None:
        now = asyncio.get_running_loop().time()
        self._deaths = self._deaths + 1 if now - self._last_death < self._idle_s else 1
        self._last_death = now
        if self._deaths % DEATHS == 0:
            self._dropped("runners_die")

    def _dead(self, runner: Runner) -> None:
        self._all.discard(runner)
        now = asyncio.get_running_loop().time()
        if runner in self._fresh and not self._closing and now - self._last_death > _PAUSE_S:
            self._count_death()  # several spare ones at the same time count once
        for row in (self._fresh, self._idle):
            if runner in row:
                row.remove(runner)
        self._ending.add(runner)
        self._wanted.set()

    async def _keep(self) -> None:
        """Fork spares when some were taken, let idle ones go when they are old. Slower and slower while they die."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, self._idle_s / 4)):
                    await self._wanted.wait()
            self._wanted.clear()
            self._trim()
            try:
                while len(self._fresh) < self._spare and len(self._all) + self._coming < self._most:
                    if self._deaths:
                        await asyncio.sleep(self._pause_s)
                    self._fresh.append(await self.fork())
            except (ForkFailed, RunnerGone, TimeoutError):
                await asyncio.sleep(_PAUSE_S)
                self._wanted.set()

    @property
    def _pause_s(self) -> float:
        return min(_PAUSE_S * float(1 << min(self._deaths, 10)), _MOST_PAUSE_S)

    def _trim(self) -> None:
        self._ending = {runner for runner in self._ending if not runner.ended.is_set()}
        now = asyncio.get_running_loop().time()
        if now >= self._next_look:
            self._next_look = now + LOOK_S / 2
            for runner in [each for each in self._idle if not (_rests(each) and _is_small(each))]:
                runner.kill("restless")
        old = now - self._idle_s
        while self._idle and self._idle[0].idle_since < old:
            self._idle[0].kill("idle")


def _rests(runner: Runner) -> bool:
    """Whether it stopped computing when its run was over."""
    return rest.cpu_ns(runner.pid) - runner.rest_cpu_ns <= rest.CPU_NS


def _is_small(runner: Runner) -> bool:
    """Whether it has given the memory of its run back."""
    return rest.private_bytes(runner.pid) - runner.private_bytes <= rest.MEMORY_BYTES
