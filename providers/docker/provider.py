"""The docker provider: the seam's members over one daemon, a pool of containers nothing ran in, and looks at their wall.

Every container is compared with the one that was last judged before it may serve, again when a run gets it and again at the
run's end. One that differs takes the tier away at once, from the runs under way too, until a whole new look has judged anew.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from plimsoll.contract.bounds import TIMEOUT_CEILING_MS
from plimsoll.contract.requests import Kind, Project
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Environment, Resources
from providers.docker import remains
from providers.docker.container import DIED, Container, NotMade, Unsighted
from providers.docker.course import Course
from providers.docker.daemon import Daemon, DaemonError
from providers.docker.ending import Stop
from providers.docker.look import Base, Faulty, Looker, fault_of
from providers.docker.names import Names, StateRefused
from providers.docker.pool import DAEMON_GONE, LANGUAGES, Pool, Unproven
from providers.docker.recipe import seccomp_profile
from providers.docker.settings import DockerSettings
from providers.seam import (
    Findings,
    Finish,
    Lost,
    NotStarted,
    Observation,
    Order,
    ProviderFault,
    Step,
    nothing_sent,
)

WALL_CHANGED: Final = "wall_changed"
_UNKNOWN: Final = "unknown"
_LANGUAGES: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.JAVASCRIPT: (Kind.JAVASCRIPT.value,),
    Kind.PYTHON: (Kind.PYTHON.value,),
    Kind.PROJECT: ("shell", *LANGUAGES),
}


class DockerProvider:
    """Snippets and projects, each in a container of its own. Make it with `from_settings`."""

    def __init__(self, settings: DockerSettings) -> None:
        """Nothing is opened yet."""
        self.resources = Resources(
            memory_mb=settings.memory_mb,
            cpus=settings.cpus,
            pids=settings.pids,
            disk_mb=settings.disk_mb,
            output_bytes=settings.output_bytes,
        )
        self._settings = settings
        self._stack = AsyncExitStack()
        self._daemon: Daemon | None = None
        self._names: Names | None = None
        self._looker: Looker | None = None
        self._pools = AsyncExitStack()
        """Owns the pool of the day."""
        self._pool: Pool | None = None
        self._pooled_for: Base | None = None
        self._judged: tuple[Observation, ...] = ()
        """The facts about the container that was judged last; every other must have the same."""
        self._proven = False
        """Whether the last look found everything, and nothing was seen to be gone since."""
        self._tell: Callable[[str], None] = lambda _fault: None
        self._runs: dict[str, asyncio.Task[Container] | Course] = {}
        """Waiting for a container, or in it."""
        self._cancelled: set[str] = set()
        """Those that were while they waited."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Raises KeyError, ValueError, TypeError for bad settings."""
        return cls(DockerSettings.from_settings(settings))

    @property
    def environments(self) -> Mapping[Kind, Environment]:
        """The kinds are known before `open`; by what image, from the first look on."""
        base = self._looker.base if self._looker else None
        identity, software = (f"oci-image:{base.image_id}", base.software) if base else (_UNKNOWN, "")
        return {
            kind: Environment(identity, software, TIMEOUT_CEILING_MS, languages, grants=True)
            for kind, languages in _LANGUAGES.items()
        }

    @property
    def policy(self) -> str:
        """The seccomp profile's digest; under gVisor, which has rules of its own in its binary, that binary's."""
        known = {each.name: each.value for each in self._judged}
        if known.get("sandbox.release"):
            return f"gvisor:sha256:{known['sandbox.executable_sha256']}"
        return f"seccomp:sha256:{hashlib.sha256(seccomp_profile().encode()).hexdigest()}"

    # --- the wall -------------------------------------------------------------------------------------------------

    async def open(self, dropped: Callable[[str], None]) -> None:
        """Take what is ours of an earlier process, and begin to listen to the daemon. It need not be there yet."""
        self._tell = dropped
        try:
            self._names = self._stack.enter_context(await asyncio.to_thread(self._table))
        except StateRefused:
            raise ProviderFault("state_refused") from None
        except OSError:
            raise ProviderFault("state_unusable") from None
        with suppress(OSError):  # the reaper tries again
            await self._names.end_remains(remains.end)
        self._daemon = await self._stack.enter_async_context(Daemon(self._settings.host))
        self._daemon.on_back = self._back
        self._looker = await self._stack.enter_async_context(
            Looker(self._daemon, self._settings, self._names)
        )
        await self._stack.enter_async_context(self._pools)

    def _table(self) -> Names:
        place = Path(self._settings.state_dir)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Names(self._settings.state_dir, self._settings.host)

    async def collect(self) -> Findings:
        """Look at a container made for it; the first time, break every limit. Whatever fails is a fault."""
        if self._looker is None:
            raise Lost("not_open")
        try:
            found = await self._looker.look()
        except (Faulty, DaemonError, NotMade, ExceptionGroup) as failure:
            found = Findings(Tier.NONE, (), fault_of(failure))
        await self._act_on(found)
        return found

    async def _act_on(self, found: Findings) -> None:
        """What waits must be what was judged."""
        self._proven = not found.faults
        seen = tuple(each for each in found.observations if not each.name.startswith("smoke."))
        if self._pool is not None and (found.faults or seen != self._judged):
            self._pool.empty()
        if found.faults or self._looker is None:
            return
        self._judged = seen
        base = self._looker.base
        if base is not None and base != self._pooled_for:
            await self._make_pool(base)

    async def _make_pool(self, base: Base) -> None:
        """Only for containers that are made as the judged one was."""
        if self._daemon is None or self._names is None:
            raise Lost("not_open")
        self._pool, self._pooled_for = None, base
        await self._pools.aclose()
        pool = Pool(
            self._daemon,
            self._settings,
            base.image_id,
            base.gvisor,
            self._names,
            self._examine,
            self._drop,
            self._recheck,
        )
        self._pool = await self._pools.enter_async_context(pool)

    async def _examine(self, container: Container) -> None:
        """Raises Unproven unless it is what was judged, NotMade when it is nothing any more."""
        if self._looker is not None and await self._looker.observations(container) == self._judged:
            return
        if isinstance(container.sight, Unsighted) and (await container.died()).exit_code is not None:
            raise NotMade(DIED)
        raise Unproven(WALL_CHANGED)

    @staticmethod
    def _recheck(container: Container) -> bool:
        """Raises Unproven if it lives and is not what it was; False if it has ended, or just ends."""
        sight = container.sight
        if sight.same():
            return True
        if isinstance(sight, Unsighted) or not sight.ended:
            raise Unproven(WALL_CHANGED)
        return False

    def _back(self) -> None:
        """The daemon talks again. Whoever waits for it need not wait for the next try as well."""
        if self._pool is not None:
            self._pool.retry()
        if not self._proven:
            self._tell(DAEMON_GONE)

    def _drop(self, fault: str) -> None:
        self._proven = False
        if self._pool is not None:
            self._pool.empty()
        self._tell(fault)

    # --- runs -----------------------------------------------------------------------------------------------------

    async def run(self, order: Order) -> AsyncIterator[Step]:
        """One program in a container that nothing ran in before, and nothing will after it."""
        if self._pool is None or order.payload.kind not in _LANGUAGES:
            raise NotStarted
        try:
            async with AsyncExitStack() as held:
                with nothing_sent():
                    container, steps = await self._begin(self._pool, order, held)
                    begun = await anext(steps)
                yield begun
                async for step in steps:
                    if isinstance(step, Finish):
                        self._look_back(container)
                    yield step
        finally:
            self._runs.pop(order.run_id, None)
            self._cancelled.discard(order.run_id)

    async def _begin(
        self, pool: Pool, order: Order, held: AsyncExitStack
    ) -> tuple[Container, AsyncGenerator[Step, None]]:
        """A container, and the run's steps in it, of which none was asked for. `held` gives both back."""
        began = time.monotonic_ns()
        gvisor = self._pooled_for is not None and self._pooled_for.gvisor
        container = await held.enter_async_context(self._container(pool, order))
        waited_ms = (time.monotonic_ns() - began) // 1_000_000
        course = Course(container, order, gvisor=gvisor, start_ms=waited_ms)
        order.confirm()
        self._runs[order.run_id] = course
        return container, await held.enter_async_context(aclosing(course.steps()))

    @asynccontextmanager
    async def _container(self, pool: Pool, order: Order) -> AsyncIterator[Container]:
        """Raises NotStarted when there is none in time, or when the run was cancelled before."""
        language = None if isinstance(order.payload, Project) else order.payload.kind.value
        taking = self._runs[order.run_id] = asyncio.create_task(pool.take(language))
        try:
            await asyncio.wait((taking,))
            if order.run_id in self._cancelled:
                raise NotStarted
            yield taking.result()
        finally:
            taking.cancel()
            (taken,) = await asyncio.gather(taking, return_exceptions=True)
            if isinstance(taken, Container):
                pool.give_back(taken)

    def _look_back(self, container: Container) -> None:
        """Before a run's end is told: if its wall is no longer what it was, no run is said to have had it."""
        try:
            self._recheck(container)
        except Unproven as unproven:
            self._drop(unproven.fault)

    def cancel(self, run_id: str) -> None:
        """Stop its course; before it has one, the run never starts."""
        run = self._runs.get(run_id)
        if isinstance(run, Course):
            run.stop(Stop.CANCELLED)
        elif run is not None:
            self._cancelled.add(run_id)
            run.cancel()

    async def close(self) -> None:
        """End every container, then the talk with the daemon. What is not gone in time ends with its stream."""
        await asyncio.shield(self._stack.aclose())
