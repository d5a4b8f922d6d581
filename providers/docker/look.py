"""One look at the wall: the daemon, the image by its content, and a container made for it, whose limits are then broken.

    Faulty     a required fact is missing; `codes` says which

The image is chosen by its name until one of that name has held; from then on only its content id counts, so that a tag may
move. What a container of it is seen to be decides how others are made: the runtime's name decides nothing that can be seen.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Out
from providers.docker import evidence, image, manifest, smoke
from providers.docker.container import DIED, Container, NotMade, Unsighted
from providers.docker.course import Course
from providers.docker.daemon import Daemon, DaemonError
from providers.docker.names import Names
from providers.docker.recipe import AGENT_FILES
from providers.docker.settings import DockerSettings
from providers.seam import Begun, Break, Findings, Finish, Observation, Order

_AGENT_BYTES: Final = 4 << 20
_IMAGE_BYTES: Final = 16 << 30
_AT_ONCE: Final = 2
"""Containers made at once for trials, beside those of runs."""
_LOOKS: Final = 3
"""How many containers may die, one after the other, before a look at them has failed."""
_MIB: Final = 1 << 20
_RUN_ID: Final = "0" * 32


class Faulty(Exception):
    """What was looked at is not as it must be."""

    def __init__(self, *codes: str) -> None:
        """Keep the codes."""
        super().__init__(*codes)
        self.codes = codes


@dataclass(frozen=True, slots=True)
class Base:
    """What every container is made from."""

    image_id: str
    software: str
    gvisor: bool


class Looker:
    """Looks for one provider. `base` is there once a look got that far."""

    def __init__(self, daemon: Daemon, settings: DockerSettings, names: Names) -> None:
        """Nothing is looked at yet."""
        self.base: Base | None = None
        self._daemon = daemon
        self._settings = settings
        self._names = names
        self._tried: dict[str, str] = {}
        self._turn = 0
        self._held = False
        """Whether any look found everything as it must be."""
        self._reading: asyncio.Task[str] | None = None
        self._reading_of = ""

    async def __aenter__(self) -> Self:
        """Nothing runs between looks but the reading of an image."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End that."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def look(self) -> Findings:
        """Everything there is to be seen. Raises Faulty, DaemonError, NotMade."""
        found = Findings(Tier.NONE)
        try:
            found = await self._look()
        finally:
            self._held = self._held or found.tier is not Tier.NONE
            if not self._held:
                self.base = None  # whoever mends the image need not start the service again
        return found

    async def _look(self) -> Findings:
        await self._see_daemon()
        base = await self._see_image()
        for gvisor in (base.gvisor, not base.gvisor):
            self.base = base = Base(base.image_id, base.software, gvisor)
            async with self._container(base, Kind.PYTHON.value) as container:
                seen = await self.observations(container)
                is_gvisor = evidence.wall_of(seen) is Tier.KERNEL
                if isinstance(container.sight, Unsighted) or is_gvisor is gvisor:
                    return await self._look_at(base, container, seen)
        raise Faulty("runtime_unsteady")

    async def observations(self, container: Container) -> tuple[Observation, ...]:
        """The facts about one container, the daemon's word where there is no other. Raises DaemonError."""
        if not isinstance(container.sight, Unsighted):
            return container.sight.observations
        said = await self._daemon.inspect(container.id)
        return evidence.of_daemon(said, container.limits, container.sight.code)

    # --- the daemon and the image -----------------------------------------------------------------------------------

    async def _see_daemon(self) -> None:
        said = await self._daemon.info()
        runtimes, options = said.get("Runtimes"), said.get("SecurityOptions")
        if not isinstance(runtimes, Mapping) or self._settings.runtime not in runtimes:
            raise Faulty("runtime_missing")
        # Its containers' users are others to this machine than those that are looked for, so nothing could be proven.
        if isinstance(options, list) and "name=userns" in options:
            raise Faulty("daemon_userns_remap")

    async def _see_image(self) -> Base:
        architecture = str((await self._daemon.version()).get("Arch", ""))
        found = await self._inspected(self.base.image_id if self.base else self._settings.image)
        if faults := image.faults_of(found, architecture):
            raise Faulty(*faults)
        if self.base is not None:
            return self.base
        image_id = str(found["Id"])
        return Base(image_id, await self._software(image_id, found), gvisor=self._settings.runtime != "runc")

    async def _inspected(self, name: str) -> dict[str, Any]:
        try:
            return await self._daemon.image(name)
        except DaemonError as error:
            raise Faulty("image_missing") if error.code == "unknown" else error from None

    async def _software(self, image_id: str, found: Mapping[str, Any]) -> str:
        """Computed once for an image; empty when it does not add up, and then no software rule is met.

        Reading all of it may take longer than a look, and then the next one waits on.
        """
        if self._reading is not None and self._reading_of != image_id:
            self._reading.cancel()
            self._reading = None
        if self._reading is None:
            self._reading, self._reading_of = asyncio.create_task(self._identity(image_id, found)), image_id
        try:
            return await asyncio.shield(self._reading)
        finally:
            if self._reading.done():
                self._reading = None

    async def _identity(self, image_id: str, found: Mapping[str, Any]) -> str:
        place = Path(self._settings.state_dir)
        known = await asyncio.to_thread(manifest.recall, place, image_id)
        identity = known or await manifest.manifest_of(self._daemon.export(image_id, _IMAGE_BYTES), found)
        if identity:
            await asyncio.to_thread(manifest.remember, place, image_id, identity)
        return identity

    # --- a container ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _container(self, base: Base, language: str) -> AsyncIterator[Container]:
        for left in reversed(range(_LOOKS)):
            container = Container(
                self._daemon, self._settings, self._names, base.image_id, language, gvisor=base.gvisor
            )
            try:
                if await self._opened(container, last=not left):
                    yield container
                    return
            finally:
                await asyncio.shield(container.destroy())

    @staticmethod
    async def _opened(container: Container, *, last: bool) -> bool:
        """False when it died and another may be tried: one that died proves nothing."""
        try:
            await container.open()
        except NotMade as failure:
            if failure.code != DIED or last:
                raise
            return False
        return True

    async def _look_at(self, base: Base, container: Container, seen: tuple[Observation, ...]) -> Findings:
        archive = await self._daemon.archive(container.id, AGENT_FILES, _AGENT_BYTES)
        if not image.agent_matches(archive):
            raise Faulty("agent_unknown")
        await self._try_limits(base, container, smoke.cases(evidence.wall_of(seen), self._settings))
        return evidence.judge((*seen, *evidence.of_smoke(self._tried)), runtime=self._settings.runtime)

    async def _try_limits(self, base: Base, first: Container, cases: Mapping[str, smoke.Case]) -> None:
        """All of them until all have held; from then on what a program inside finds, and one other in turn."""
        others = [name for name in cases if name != smoke.INSIDE]
        if self._tried.keys() == cases.keys() and set(self._tried.values()) == {evidence.HELD}:
            self._turn += 1
            others = [others[self._turn % len(others)]]
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> str:
            async with room, self._container(base, Kind.PYTHON.value) as container:
                return await self._try(base, container, cases[name])

        inside = await self._try(base, first, cases[smoke.INSIDE])
        async with asyncio.TaskGroup() as group:
            trials = {name: group.create_task(one(name)) for name in others}
        self._tried = {
            **{name: self._tried[name] for name in cases if name in self._tried},
            smoke.INSIDE: inside,
            **{name: trial.result() for name, trial in trials.items()},
        }

    @staticmethod
    async def _try(base: Base, container: Container, case: smoke.Case) -> str:
        """Run it the way any run goes."""
        loop = asyncio.get_running_loop()
        order = Order(_RUN_ID, _RUN_ID, case.payload, case.timeout_ms, case.output_bytes)
        stdout, began = bytearray(), loop.time()
        async with aclosing(Course(container, order, gvisor=base.gvisor).steps()) as steps:
            async for step in steps:
                match step:
                    case Begun():
                        began = loop.time()
                    case Out(stream="stdout", data=data):
                        stdout += data
                    case Finish() | Break():
                        outcome = smoke.Outcome(step, bytes(stdout), int((loop.time() - began) * 1000))
                        return evidence.HELD if case.holds(outcome) else "failed"
                    case _:
                        pass
        return "failed"


def fault_of(failure: Exception) -> tuple[str, ...]:
    """The codes of a look that came to nothing. Raises what is none of ours."""
    match failure:
        case Faulty(codes=codes):
            return codes
        case DaemonError(code=code):
            return (f"daemon_{code}",)
        case NotMade(code=code):
            return (f"container_{code}",)
        case ExceptionGroup(exceptions=(Exception() as first, *_)):
            return fault_of(first)
        case _:
            raise failure
