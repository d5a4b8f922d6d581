"""Containers kept ready and made on demand, so that a reserved slot gets one soon and nothing exceeds the memory given.

- a container serves one run; it is never used again, whatever the run did
- `pool` containers wait for each language, its interpreter warm. A snippet gets one of its own language: its deadline must not
  pay for an interpreter's start. A project, which names no interpreter, gets any
- every container counts until it is surely gone: at most `slots` are coming, waiting, running, going or left behind by a daemon
  that died. A run that finds no room has a waiting one of another language removed
- each is examined before it may wait, and looked at again when it is claimed: one that died is skipped, and a wall that
  changed is said at once
- two are made in the background at once, more only for runs that wait; slower and slower while that fails. The successor of a
  claimed one is begun a little later: making one costs more than most runs, which should not have to share the machine with it
- a daemon that stops talking takes all waiting ones with it, and that is said too; the pool goes on trying until it is back
"""

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

from plimsoll.contract.requests import Kind
from providers.docker.container import Container
from providers.docker.daemon import Daemon
from providers.docker.names import Names, Reaper
from providers.docker.removal import remove
from providers.docker.settings import DockerSettings
from providers.seam import NotStarted

LANGUAGES: Final = (Kind.PYTHON.value, Kind.JAVASCRIPT.value)
TAKE_S: Final = 12.0
"""How long a run waits for a container at most: less than the host gives it to begin, so that it is known not to have begun."""
EXAMINE_S: Final = 10.0
CLOSE_S: Final = 2.0
LEFTOVER_S: Final = 40.0
"""What the end of one that was never started may take: a making that is under way, and a removal."""
REFILL_S: Final = 0.1
"""How long after a claim its successor is begun; a stream of claims does not put it off further."""
ANSWER_S: Final = 0.03
"""How long after a run's end its container is destroyed: that costs more than the answer, which is to leave first."""
LOOK_S: Final = 10.0
"""How far apart the looks at waiting containers are."""
DAEMON_GONE: Final = "daemon_gone"
_STARTS: Final = 2
_TRIES: Final = 2
_PAUSE_S: Final = 0.2
_MOST_PAUSE_S: Final = 30.0


class Unproven(Exception):
    """A container is not behind the wall that is served; `fault` is the required fact that is missing."""

    def __init__(self, fault: str) -> None:
        """Keep the code."""
        super().__init__(fault)
        self.fault = fault


@dataclass(eq=False)
class _Claim:
    """A run that waits for a container."""

    language: str | None
    future: "asyncio.Future[Container]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    failures: int = 0

    def fits(self, language: str | None) -> bool:
        return self.language in {language, None}


def _same(container: Container) -> bool:
    return container.sight.same()


class Pool:
    """Owns every container. Use as an async context manager, from one event loop, inside those of `daemon` and `names`."""

    def __init__(
        self,
        daemon: Daemon,
        settings: DockerSettings,
        image_id: str,
        gvisor: bool,  # noqa: FBT001  # a fact that was observed, like those before it
        names: Names,
        examine: Callable[[Container], Awaitable[None]],
        dropped: Callable[[str], None],
        recheck: Callable[[Container], bool] = _same,
    ) -> None:
        """`examine` raises Unproven, `recheck` too (False: it died); `dropped(fault)` is then told, in this order."""
        self._daemon = daemon
        self._settings = settings
        self._image_id = image_id
        self._gvisor = gvisor
        self._names = names
        self._examine = examine
        self._dropped = dropped
        self._recheck = recheck
        self._reaper = Reaper(names, partial(remove, daemon), ended=self._look_again)
        self._waiting: list[Container] = []
        """Longest waiting first."""
        self._running: set[Container] = set()
        self._coming: dict[Container, asyncio.Task[None]] = {}
        self._dying: dict[asyncio.Task[None], Container] = {}
        self._claims: deque[_Claim] = deque()
        self._generation = 0
        """Grows with every `empty`: what was begun before is not trusted to wait."""
        self._failures = 0
        self._retry_at = 0.0
        """The end of the pause after a failure."""
        self._refill_at = 0.0
        self._wanted = asyncio.Event()
        self._keepers: list[asyncio.Task[None]] = []
        self._closing = False

    def waiting(self) -> int:
        """Containers that are ready for a run."""
        return len(self._waiting)

    def alive(self) -> int:
        """Containers that are, or may be: coming, waiting, running, going."""
        return self._held() + len(self._dying)

    async def __aenter__(self) -> Self:
        """Remove what dead processes left, and begin to keep containers ready."""
        self._daemon.on_lost = self._lost
        self._keepers = [asyncio.create_task(self._reaper.run()), asyncio.create_task(self._keep())]
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every container. What is not gone within two seconds ends by itself, or is waited for if it would not.

        The name of what is not surely gone stays in the table.
        """
        self._closing = True
        for task in (*self._keepers, *self._coming.values()):
            task.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for claim in self._claims:
            _refuse(claim)
        self.empty()
        for container in list(self._running):
            self.give_back(container)
        await _all_of(lambda: [*self._coming.values(), *self._dying], CLOSE_S)
        await _all_of(
            lambda: [task for task, container in self._dying.items() if not container.ends_alone], LEFTOVER_S
        )
        for task in self._dying:
            task.cancel()
        await asyncio.gather(*self._dying, return_exceptions=True)

    # --- for runs ---------------------------------------------------------------------------------------------------

    async def take(self, language: str | None) -> Container:
        """A container that nothing ran in, for one run. Raises NotStarted when there is none to be had."""
        if self._closing:
            raise NotStarted
        return self._pick(language) or await self._cold(language)

    def give_back(self, container: Container) -> None:
        """Its run is over, or never began: it is destroyed in the background, a moment later."""
        if container in self._running:
            self._running.remove(container)
            self._bury(container, 0.0 if self._closing else ANSWER_S)

    def retry(self) -> None:
        """What failed so far was for a reason that is gone: go on at once."""
        self._failures, self._retry_at = 0, 0.0
        self._wanted.set()

    def empty(self) -> None:
        """Drop every waiting container, and those that are being made: the wall is not what they were examined for."""
        self._generation += 1
        while self._waiting:
            self._bury(self._waiting.pop())

    def _pick(self, language: str | None) -> Container | None:
        """Raises NotStarted when the wall is seen to have changed: none that waits, or comes soon, is served behind it."""
        generation = self._generation
        while suitable := self._suitable(
            language
        ):  # anew for each: a look at one may take away all the others
            container = suitable[0]
            self._waiting.remove(container)
            if self._is_good(container):
                self._running.add(container)
                self._refill_later()
                return container
            self._bury(container)
            if generation != self._generation:
                raise NotStarted
        return None

    def _refill_later(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._refill_at <= now:
            self._refill_at = now + REFILL_S
        self._wanted.set()

    def _suitable(self, language: str | None) -> list[Container]:
        if language is not None:
            return [each for each in self._waiting if each.language == language]
        plenty = Counter(each.language for each in self._waiting)
        return sorted(self._waiting, key=lambda each: (each.language is not None, -plenty[each.language]))

    def _is_good(self, container: Container) -> bool:
        try:
            return self._recheck(container)
        except Unproven as unproven:
            self._dropped(unproven.fault)
        except Exception as failure:  # noqa: BLE001  # what cannot be looked at serves nobody, and keeps nobody from the next
            _say("container-not-seen", type(failure).__name__)
        return False

    async def _cold(self, language: str | None) -> Container:
        claim = _Claim(language)
        self._claims.append(claim)
        self._fill()
        try:
            async with asyncio.timeout(TAKE_S):
                return await claim.future
        except BaseException as failure:
            if claim.future.done() and not claim.future.cancelled() and claim.future.exception() is None:
                self.give_back(claim.future.result())  # it came at the same moment
            if isinstance(failure, TimeoutError):
                raise NotStarted from None
            raise
        finally:
            if claim in self._claims:
                self._claims.remove(claim)

    # --- how many there are -----------------------------------------------------------------------------------------

    def _held(self) -> int:
        return len(self._coming) + len(self._waiting) + len(self._running)

    def _unmet(self) -> Iterator[str | None]:
        """The languages of runs that wait and for which nothing is coming."""
        coming = [each.language for each in self._coming]
        for claim in self._claims:
            fitting = [each for each in coming if claim.fits(each)]
            if fitting:
                coming.remove(fitting[0])
            else:
                yield claim.language

    def _missing(self) -> Iterator[str]:
        """What to make for the time when runs come, the scarcest first. Not while that is failing, nor right after a claim."""
        if asyncio.get_running_loop().time() < self._begins_at():
            return
        have = Counter(each.language for each in (*self._waiting, *self._coming))
        for language in sorted(LANGUAGES, key=lambda each: have[each]):
            if have[language] < self._settings.pool:
                yield language

    def _fill(self) -> None:
        """Begin whatever may begin now."""
        if self._closing:
            return
        unmet = list(self._unmet())
        for _ in range(min(len(self._waiting), self._held() + len(unmet) - self._settings.slots)):
            self._bury(self._waiting.pop(0))
        for language in unmet:
            if self._has_room(_STARTS + max(_STARTS, os.cpu_count() or 1)):
                self._begin(language)
        while self._has_room(_STARTS) and (language := next(self._missing(), None)) is not None:
            self._begin(language)

    def _begins_at(self) -> float:
        return max(self._retry_at, self._refill_at)

    def _has_room(self, at_once: int) -> bool:
        there = self.alive() + len(self._names.doubtful)
        return there < self._settings.slots and len(self._coming) < at_once

    def _begin(self, language: str | None) -> None:
        container = Container(
            self._daemon,
            self._settings,
            self._names,
            self._image_id,
            language,
            gvisor=self._gvisor,
            on_death=self._on_death,
        )
        task = self._coming[container] = asyncio.create_task(self._make(container))
        task.add_done_callback(lambda _: self._came(container))

    def _came(self, container: Container) -> None:
        self._coming.pop(container, None)  # one that was ended before its first step is still there
        self._wanted.set()

    # --- a container's life -----------------------------------------------------------------------------------------

    async def _make(self, container: Container) -> None:
        """From nothing to a container that waits, or to none."""
        generation = self._generation
        proven = False
        try:
            proven = await self._is_made(container)
        finally:
            del self._coming[container]  # from here on it counts as what it has become
            if proven and generation == self._generation and not self._closing:
                self._failures, self._retry_at = 0, 0.0
                self._offer(container)
            else:
                self._bury(container)

    async def _is_made(self, container: Container) -> bool:
        try:
            await container.open()
            async with asyncio.timeout(EXAMINE_S):
                await self._examine(container)
        except Unproven as unproven:
            self._failed(unproven.fault)
            return False
        except Exception as failure:  # noqa: BLE001  # whatever broke, the pool goes on and runs do not wait for nothing
            _say("container-not-made", str(getattr(failure, "code", type(failure).__name__)))
            self._failed("")
            return False
        return True

    def _offer(self, container: Container) -> None:
        """To the run that waits longest and can use it, or to whoever comes, unless enough are ready for those.

        One that was made for a run which another one served, or which gave up, would else wait beside the pool for good.
        """
        for claim in self._claims:
            if claim.fits(container.language) and not claim.future.done():
                self._claims.remove(claim)
                self._running.add(container)
                claim.future.set_result(container)
                return
        ready = sum(each.language == container.language for each in self._waiting)
        if container.language is None or ready >= self._settings.pool:
            self._bury(container)
        else:
            self._waiting.append(container)

    def _failed(self, fault: str) -> None:
        """Slow down; whoever waits is told when it has waited for nothing often enough, or when the wall is not proven."""
        self._slow_down()
        if fault:
            self._dropped(fault)
        for claim in list(self._claims) if fault else list(self._claims)[:1]:
            claim.failures += 1
            if fault or claim.failures >= _TRIES:
                self._claims.remove(claim)
                _refuse(claim)

    def _slow_down(self) -> None:
        pause = min(_PAUSE_S * float(1 << min(self._failures, 10)), _MOST_PAUSE_S)
        self._failures += 1
        self._retry_at = asyncio.get_running_loop().time() + pause

    def _on_death(self, container: Container) -> None:
        if container in self._waiting:
            self._waiting.remove(container)
            self._bury(container)
            self._slow_down()

    def _lost(self) -> None:
        if self._closing:
            return
        self.empty()
        self._slow_down()
        self._dropped(DAEMON_GONE)

    def _bury(self, container: Container, after_s: float = 0.0) -> None:
        task = asyncio.create_task(self._destroy(container, after_s))
        self._dying[task] = container
        task.add_done_callback(self._went)

    def _look_again(self) -> None:
        self._wanted.set()

    def _went(self, task: asyncio.Task[None]) -> None:
        self._dying.pop(task, None)
        self._wanted.set()

    async def _destroy(self, container: Container, after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            if not await container.destroy():
                self._reaper.wanted.set()
        except OSError as failure:  # the table
            _say("container-not-forgotten", type(failure).__name__)

    async def _keep(self) -> None:
        """Keep containers ready, and look at those that wait."""
        loop = asyncio.get_running_loop()
        look_at = loop.time() + LOOK_S
        while True:
            self._fill()
            begins_at = self._begins_at()
            until = min(look_at, begins_at) if loop.time() < begins_at else look_at
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._wanted.wait()
            self._wanted.clear()
            if loop.time() >= look_at:
                look_at = loop.time() + LOOK_S
                self._look()

    def _look(self) -> None:
        for container in list(self._waiting):
            if not self._is_good(container) and container in self._waiting:
                self._waiting.remove(container)
                self._bury(container)


async def _all_of(tasks: Callable[[], list[asyncio.Task[None]]], seconds: float) -> None:
    """Wait until there are none left, or for so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while left := tasks():
                await asyncio.wait(left)


def _refuse(claim: _Claim) -> None:
    if not claim.future.done():
        claim.future.set_exception(NotStarted())


def _say(event: str, code: str) -> None:
    sys.stderr.write(json.dumps({"event": event, "code": code}) + "\n")
