"""One container from before it is made until it is surely gone, its agent's stream, and what the host sees of its process."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from providers.docker.daemon import Attached, Daemon, DaemonError, StreamCut
from providers.docker.events import Death
from providers.docker.frames import BadTalk, Ready, Talk
from providers.docker.names import Names, uid_of
from providers.docker.recipe import pids_limit, recipe
from providers.docker.settings import DockerSettings
from providers.docker.sight import Limits, Sight, Unseen, Usage
from providers.seam import Observation

READY_S: Final = 30.0
"""From its start to the agent's first word, on a busy machine."""
_COMPLAINTS: Final = 1 << 20
"""The agent has no reason to write to stderr; what writes more than this there is no agent."""
_STDOUT: Final = 1
_MIB: Final = 1 << 20
_NOT_OPEN: Final = "not_open"
DIED: Final = "died"
"""It ended before it was seen: that says nothing about its wall."""


class NotMade(Exception):
    """There is no container; `code` says why.

    One of DaemonError's, `no_name`, `not_ready`, `no_interpreter`, `bad_talk` or DIED.
    """

    def __init__(self, code: str) -> None:
        """Keep the code."""
        super().__init__(code)
        self.code = code


class Unsighted:
    """In the place of a Sight where the host has none, with why: nothing is proven and nothing is measured."""

    observations: tuple[Observation, ...] = ()

    def __init__(self, code: str, limit_bytes: int) -> None:
        """`code` as in `Unseen`."""
        self.code = code
        self._limit_bytes = limit_bytes

    def same(self) -> bool:
        """Nothing was seen that could change."""
        return True

    def oom_kills(self) -> int:
        """None that anybody saw."""
        return 0

    def memory(self) -> Usage:
        """Unknown, so nothing is concluded from it."""
        return Usage(0, self._limit_bytes)

    def kill(self) -> None:
        """There is nothing that could be."""

    def close(self) -> None:
        """Nothing to let go of."""


class Container:
    """It serves one run. Whoever has it destroys it, also when `open` failed."""

    def __init__(
        self,
        daemon: Daemon,
        settings: DockerSettings,
        names: Names,
        image_id: str,
        language: str | None,
        *,
        gvisor: bool,
        on_death: Callable[["Container"], None] = lambda _: None,
    ) -> None:
        """Nothing is made yet. `language` is the interpreter to have warm; `on_death` is called when its end is heard of."""
        self.language = language
        self.talk = Talk(settings.output_bytes)
        self.warm: tuple[str, ...] = ()
        """The interpreters that wait in it, by its own word."""
        self.id = ""
        """64 hex digits once it is made."""
        self.name = ""
        self.gone = False
        """Surely; it was made or it never will be."""
        self._daemon = daemon
        self._settings = settings
        self._names = names
        self._image_id = image_id
        self._gvisor = gvisor
        self._on_death = on_death
        self.sight: Sight | Unsighted = Unsighted(_NOT_OPEN, self.limits.memory_bytes)
        self.ends_alone = True
        """Whether it is gone some time after its stream, even if nobody removes it: it was started, or there is none."""
        self._was_to_start = False
        self._creating: asyncio.Task[str] | None = None
        self._attached: Attached | None = None
        self._complaints = 0
        self._destroying = asyncio.Lock()

    @property
    def limits(self) -> Limits:
        """What it is made with, once it has a name."""
        uid = uid_of(self.name) if self.name else 0
        pids = pids_limit(self._settings, gvisor=self._gvisor)
        return Limits(self._settings.memory_mb * _MIB, pids, self._settings.cpus, uid)

    async def open(self) -> None:
        """Make it, attach, start it, wait for the agent, look at its process. Raises NotMade."""
        try:
            await self._open()
        except DaemonError as failure:
            raise NotMade(failure.code) from None
        except OSError:  # no room for another name
            raise NotMade("no_name") from None

    async def _open(self) -> None:
        self.name = self._names.new()
        uid = uid_of(self.name)
        body = recipe(self._settings, self._image_id, self.language, uid, gvisor=self._gvisor)
        self.ends_alone = False
        # Whoever gives up meanwhile: the daemon goes on, and only what it made can be removed.
        self._creating = asyncio.create_task(self._daemon.create(self.name, body))
        self.id = await asyncio.shield(self._creating)
        self._names.made(self.name, self.id)
        self._daemon.deaths.expect(self.id, lambda: self._on_death(self))
        self._attached = await self._daemon.attach(self.id)
        self._was_to_start = True
        await self._daemon.start(self.id)
        self.ends_alone = True
        await self._be_ready()
        state = (await self._daemon.inspect(self.id)).get("State")
        self._see(state.get("Pid") if isinstance(state, dict) else None)

    async def _be_ready(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_S):
                while not self.talk.ready and (data := await self.receive()) is not None:
                    self._hear(data)
        if not self.talk.ready:
            raise NotMade("not_ready")
        if self.language not in {None, *self.warm}:
            raise NotMade("no_interpreter")

    def _hear(self, data: bytes) -> None:
        try:
            for event in self.talk.feed(data):
                if isinstance(event, Ready):
                    self.warm = event.warm
        except BadTalk:
            raise NotMade("bad_talk") from None

    def _see(self, pid: object) -> None:
        try:
            self.sight = Sight.open(
                self.id, pid if type(pid) is int else 0, self.limits, self._settings.runsc_sha256
            )
        except Unseen as unseen:
            if unseen.code == "process_gone":
                raise NotMade(DIED) from None
            self.sight = Unsighted(unseen.code, self.limits.memory_bytes)

    # --- its stream -------------------------------------------------------------------------------------------------

    async def send(self, data: bytes) -> None:
        """Return when there is room for more. Raises StreamCut, which is an OSError."""
        if self._attached is None:
            raise StreamCut
        await self._attached.write(data)

    async def receive(self) -> bytes | None:
        """The next bytes that the agent said, or None at the end, however it came. One reader at a time."""
        while self._attached is not None:
            piece = await self._attached.read()
            if piece is None:
                break
            stream, data = piece
            if stream == _STDOUT and data:
                return data
            self._complaints += len(data)
            if self._complaints > _COMPLAINTS:
                await self._attached.abort()
        return None

    # --- its end ----------------------------------------------------------------------------------------------------

    async def died(self) -> Death:
        """How it ended, waiting at most two seconds to hear of it."""
        return await self._daemon.died(self.id)

    async def destroy(self) -> bool:
        """Whether it is surely gone now; otherwise its name is left to the reaper. Again is fine, also at the same time."""
        async with self._destroying:
            if not self.gone:
                self.gone = await self._destroy()
            return self.gone

    async def _destroy(self) -> bool:
        self.sight.kill()
        self.sight.close()
        if self._attached is not None:
            await self._attached.abort()  # first: a kill waits for whoever should read what is on its way
        if not self.name:
            return True
        gone = False
        try:
            made = bool(self.id) or await self._is_created()
            with contextlib.suppress(DaemonError):
                was_there = await self._daemon.remove(self.name)
                # Else it may come to be still, or a daemon that was away may have forgotten it.
                gone = (was_there or made) and not self._is_left(was_there=was_there)
        finally:
            self._daemon.deaths.forget(self.id)
            if gone:
                self._names.forget(self.name)
            else:
                self._names.abandon(self.name)
        return gone

    def _is_left(self, *, was_there: bool) -> bool:
        """Whether there may be processes of it although the daemon knows it no more: then the reaper looks for them."""
        if isinstance(self.sight, Unsighted):
            return self.sight.code == _NOT_OPEN and self._was_to_start and not was_there
        return self.sight.leaves()

    async def _is_created(self) -> bool:
        """Wait for the end of its making; whether that is known to have come to something."""
        if self._creating is None:
            return False
        try:
            made = await self._creating
        except DaemonError:
            return False
        self._names.made(self.name, made)
        return True
