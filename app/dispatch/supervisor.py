"""Provider processes: started with nothing inherited, watched, started again, and surely ended.

`spawn` is called first thing, before any database, listener or heavy import exists, so that a provider can inherit none of
it: it starts `python -I -m providers.main --fd N` with an empty environment, every other descriptor closed, one socketpair,
a process group of its own; the settings are the first frame. `ProviderSupervisor` then owns that process:

    process = spawn("wasm", {"memory_mb": 64, "slots": 32, "cache_dir": "/var/cache/plimsoll"})    # synchronous
    async with supervised([process]) as (wasm,):
        await wasm.wait_first_evidence(timeout_s=60)
        ticket = await wasm.worker.reserve(spec)

A provider that dies is started again as a fresh exec, after a pause that doubles from 0.1 to 5 s; that is a new boot with new
tickets, and `worker` stays the same object. A provider that stops answering is as good as dead: after four questions without
an answer in time its whole group is killed. Leaving the block closes the sockets of all, on which providers end by themselves;
then SIGTERM, then SIGKILL for the whole process group.
"""

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from app.dispatch.link import WorkerLink
from app.dispatch.standing import AWAY, STARTING, Standing
from app.log import event, logger
from plimsoll.contract import frames
from plimsoll.contract.worker import Health, WorkerInfo

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_STABLE_S = 30.0
"""A provider that lived this long starts again after the shortest pause."""
PING_S = 3.0
"""How long after one answer a provider is asked whether it still answers."""
_MISSES = 4
"""Questions in a row without an answer in time. A busy machine may well leave two."""
_START_S = 60.0
"""How long a process may take to its first word."""
_CLOSE_S = 4.0
"""How long a provider may take to end by itself: two seconds are for the end of its containers."""
_TERM_S = 1.0
"""How long it may take to end after SIGTERM."""


@dataclass(slots=True)
class ProviderProcess:
    """One started provider process. Whoever holds it must end it: `ProviderSupervisor`, or `end` before there is a loop."""

    name: str
    settings: Mapping[str, Any] = field(repr=False)
    module: str
    popen: subprocess.Popen[bytes]
    sock: socket.socket

    @property
    def pid(self) -> int:
        """Process id, and id of its process group."""
        return self.popen.pid

    def end(self) -> None:
        """End it at once and wait for it, synchronously. Does nothing when it was waited for already."""
        self.sock.close()
        self.kill_group()
        self.popen.wait()

    def kill_group(self) -> None:
        """SIGKILL for what is left of its group. Not once it was waited for: from then on its id may be another's."""
        if self.popen.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def spawn(name: str, settings: Mapping[str, Any], *, module: str = "providers.main") -> ProviderProcess:
    """Start the provider `name` in a process of its own and send it `settings`, a flat JSON object.

    Call it from the thread that lives as long as the service: the provider is killed when that thread ends. `module` names
    another entry (tests register providers of their own there).
    """
    frame = frames.encode({"op": "settings", "settings": {**settings, "provider": name}})
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            popen = _start(module, theirs.fileno())
        except BaseException:
            ours.close()
            raise
    with contextlib.suppress(OSError):  # a process that is gone already is noticed when its socket is read
        ours.sendall(frame)
    return ProviderProcess(name, settings, module, popen, ours)


def _start(module: str, descriptor: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # our own interpreter and module, no shell
        [sys.executable, "-I", "-m", module, "--fd", str(descriptor)],
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        close_fds=True,
        pass_fds=(descriptor,),
        process_group=0,
    )


class ProviderSupervisor:
    """Owns one provider: its process, the link to it, and the task that starts it again.

    `latest` is the last word since its first evidence, None before that. It outlives its process (see `away`), but not one
    that died before it had any: then nobody knows any more what this provider can prove.
    """

    def __init__(
        self, process: ProviderProcess, *, link: WorkerLink | None = None, ping_s: float = PING_S
    ) -> None:
        """Take over `process`. `link` may bring other deadlines; it must be fresh."""
        self.provider = process.name
        self._said: WorkerInfo | None = None
        self.restarts = 0
        self.on_info: Callable[[WorkerInfo], None] = lambda _: None
        self.worker = link if link is not None else WorkerLink()
        self.worker.on_info = self._informed
        self.worker.on_lost = self._link_lost
        self._process = process
        self._down = asyncio.Event()
        self._evidence = asyncio.Event()
        self._ping_s = ping_s
        self._attached_at = math.inf
        self._looked = False
        self._standing = STARTING
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    @property
    def pid(self) -> int:
        """Process id of the present process; it changes with a restart."""
        return self._process.pid

    @property
    def latest(self) -> WorkerInfo | None:
        """The last word, with the slots that are free as of the last answer."""
        return self._said if self.away else self.worker.latest

    @property
    def away(self) -> bool:
        """Whether no process is there to take work now; `latest` then still says what it was."""
        return self.worker.latest is None or self.worker.latest.health is Health.STARTING

    @property
    def evidence_ended(self) -> bool:
        """Whether the first evidence was collected, well or badly (a process that died first counts as badly)."""
        return self._evidence.is_set()

    async def wait_first_evidence(self, *, timeout_s: float) -> WorkerInfo | None:
        """What the worker says once its first evidence ended; None when it died or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._evidence.wait()
        return None if self.away else self.latest

    def watch(self) -> None:
        """Attach the link and start watching; from now on it must be closed."""
        self._attach()
        self._tasks = (
            asyncio.create_task(self._watch(), name=f"provider-{self.provider}"),
            asyncio.create_task(self._ping(), name=f"provider-{self.provider}-ping"),
        )

    async def close(self) -> None:
        """Stop watching, then end the process; nothing of it is left afterwards."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.worker.on_lost = None  # that it goes now is no news
        self.worker.detach()
        await _end(self._process)

    async def __aenter__(self) -> Self:
        """Watch it."""
        self.watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def _watch(self) -> None:
        """Whenever the link is down: end what is left, pause, start afresh."""
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE_S
        while True:
            born = loop.time()
            await self._down.wait()
            self._down.clear()
            await _end(self._process)
            pause = _FIRST_PAUSE_S if loop.time() - born > _STABLE_S else pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            self._restart()

    def _restart(self) -> None:
        old = self._process
        try:
            self._process = spawn(old.name, old.settings, module=old.module)
        except OSError:
            self._down.set()  # no process or descriptor to be had: again after the next pause
            return
        self.restarts += 1
        self._attach()

    def _attach(self) -> None:
        self._attached_at = asyncio.get_running_loop().time()
        self.worker.attach(self._process.sock)

    async def _ping(self) -> None:
        """A process that is there and does not answer is killed, so that `_watch` starts afresh."""
        misses = 0
        while True:
            await asyncio.sleep(self._ping_s)
            process = self._process
            answered = await self.worker.answers() and not self._mute()
            misses = 0 if answered or process is not self._process else misses + 1
            if misses == _MISSES:
                misses = 0
                event(logger, "provider.silent", level=logging.ERROR, provider=self.provider)
                process.kill_group()
                self.worker.detach()

    def _mute(self) -> bool:
        """Whether the present process has not said a word in all this time."""
        age_s = asyncio.get_running_loop().time() - self._attached_at
        return self.worker.latest is None and age_s > _START_S

    def _informed(self, info: WorkerInfo) -> None:
        self.on_info(info)
        if info.health is not Health.STARTING:
            self._said = info
            self._looked = True
            self._evidence.set()
            self._standing = self._standing.then(Standing.of(info), self.provider)

    def _link_lost(self) -> None:
        self._attached_at = math.inf
        if not self._looked:
            self._said = None
        self._looked = False
        self._evidence.set()
        self._down.set()
        self._standing = self._standing.then(AWAY, self.provider)


@asynccontextmanager
async def supervised(processes: Sequence[ProviderProcess]) -> AsyncIterator[list[ProviderSupervisor]]:
    """Own several for the length of the block, then end all of them at the same time, so that none waits for another."""
    members = [ProviderSupervisor(each) for each in processes]
    try:
        for each in members:
            each.watch()
        yield members
    finally:
        for end in await asyncio.gather(*(each.close() for each in members), return_exceptions=True):
            if isinstance(end, BaseException):
                raise end


async def _end(process: ProviderProcess) -> None:
    """Its socket is closed: wait for it, then SIGTERM, then SIGKILL for the group, then collect the exit status."""
    process.sock.close()
    if process.popen.returncode is not None:
        return
    try:
        if not await _gone(process.pid, _CLOSE_S):
            os.kill(process.pid, signal.SIGTERM)
            await _gone(process.pid, _TERM_S)
    finally:
        process.kill_group()  # even when this task is cancelled; also its fork server and runners
        process.popen.wait()


async def _gone(pid: int, seconds: float) -> bool:
    """Whether the child ended in time. It is not waited for, so its id stays ours."""
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(pid)
    ended = asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return False
    else:
        return True
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
