"""The broker's process: started with nothing inherited but its two sockets, watched, started again, and surely ended.

It is told its settings on a socketpair, and listens on a socket that is bound here, so it needs no way into
our directories when it runs as a user of its own. A broker that was started again knows no lease of before. One that does
not answer is killed: its leases are then certainly over.
"""

import asyncio
import contextlib
import logging
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from app.log import event, logger
from plimsoll.contract import frames

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_STABLE_S = 30.0
_CLOSE_S = 4.0
"""How long it may take to end by itself: it gives calls that are under way three seconds."""
_FAULT_CHARACTERS = 256

BrokerKind = Literal["none", "same_user", "own_user", "remote"]


@dataclass(frozen=True, slots=True)
class User:
    """Whom the broker runs as."""

    uid: int
    gid: int


def user_named(name: str) -> User:
    """The user of that name. Raises KeyError."""
    found = pwd.getpwnam(name)
    return User(found.pw_uid, found.pw_gid)


@dataclass(slots=True)
class BrokerProcess:
    """One started broker. Whoever holds it must end it: `BrokerSupervisor`, or `end` before there is a loop."""

    settings: Mapping[str, Any] = field(repr=False)
    listening: socket.socket
    user: User | None
    popen: subprocess.Popen[bytes]
    sock: socket.socket

    @property
    def pid(self) -> int:
        """Process id, and id of its process group."""
        return self.popen.pid

    def end(self) -> None:
        """End it at once and wait for it."""
        self.sock.close()
        self.kill()
        self.popen.wait()

    def kill(self) -> None:
        """SIGKILL for its group, unless it was waited for."""
        if self.popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def spawn_broker(
    settings: Mapping[str, Any], listening: socket.socket, user: User | None = None
) -> BrokerProcess:
    """Start a broker that serves `listening`, as `user` if one is given. Call it from the thread that lives as long as we."""
    frame = frames.encode({"op": "settings", "settings": dict(settings)})
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            popen = _start(theirs.fileno(), listening.fileno(), user)
        except BaseException:
            ours.close()
            raise
    with contextlib.suppress(OSError):  # a process that is gone already is noticed when its socket is read
        ours.sendall(frame)
    return BrokerProcess(settings, listening, user, popen, ours)


def _start(tie: int, listen: int, user: User | None) -> subprocess.Popen[bytes]:
    # It becomes that user first thing. To start it as that user would ask for an interpreter that everybody can reach.
    become = ["--user", f"{user.uid}:{user.gid}"] if user else []
    return subprocess.Popen(  # noqa: S603  # our own interpreter and module, no shell
        [sys.executable, "-I", "-m", "broker.main", "--fd", str(tie), "--listen", str(listen), *become],
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        close_fds=True,
        pass_fds=(tie, listen),
        process_group=0,
    )


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """How the service reaches its broker: with what control secret, and whose process it is (None: somebody else's)."""

    url: str
    control: str = field(repr=False)
    process: BrokerProcess | None = None

    @property
    def kind(self) -> BrokerKind:
        """Whom it runs as, for callers to know."""
        if self.process is None:
            return "remote"
        return "own_user" if self.process.user else "same_user"


@dataclass(frozen=True, slots=True, eq=False)
class BrokerStart:
    """One start of a supervised broker. What is learned of a start that is gone changes nothing of the present one."""

    _supervisor: "BrokerSupervisor" = field(repr=False)
    process: BrokerProcess

    def present(self) -> bool:
        """Whether this start serves now."""
        return self._supervisor.serving.is_set() and self._supervisor.start is self

    def give_up(self) -> None:
        """End this start and with it all its leases, if it is the present one; another follows."""
        if self.present():
            self._supervisor.serving.clear()
            self.process.kill()

    def silent(self) -> None:
        """It does not answer: give it up. One that does not serve yet, or cannot, is tried again by itself."""
        if self.present():
            event(logger, "broker.silent", level=logging.ERROR)
            self.give_up()


class BrokerSupervisor:
    """An async context manager that owns one broker: its process, and the task that starts it again."""

    def __init__(self, process: BrokerProcess) -> None:
        """Take over `process`."""
        self.restarts = 0
        self.serving = asyncio.Event()
        self.told = False
        """Whether the first one said that it serves, or a fault, or ended."""
        self.start = BrokerStart(self, process)
        """The present start."""
        self._fault = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Process id of the present process; it changes with a restart."""
        return self.start.process.pid

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch(), name="broker")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._end()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE_S
        while True:
            born = loop.time()
            await self._listen()
            self.serving.clear()
            self.told = True
            event(logger, "broker.gone", level=logging.WARNING)
            await self._end()
            pause = _FIRST_PAUSE_S if loop.time() - born > _STABLE_S else pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            self._restart()

    def _restart(self) -> None:
        old = self.start.process
        with contextlib.suppress(OSError):  # no process or descriptor to be had: again after the next pause
            self.start = BrokerStart(self, spawn_broker(old.settings, old.listening, old.user))
            self.restarts += 1

    async def _listen(self) -> None:
        """What the process says, until its socket ends."""
        loop, sock, decoder = asyncio.get_running_loop(), self.start.process.sock, frames.Decoder(1 << 16)
        with contextlib.suppress(OSError, frames.FrameError):
            sock.settimeout(0)
            while data := await loop.sock_recv(sock, 1 << 16):
                for header, _ in decoder.feed(data):
                    self._hear(header)

    def _hear(self, header: Mapping[str, Any]) -> None:
        if header.get("op") == "ready":
            self._fault = ""
            self.serving.set()
            event(logger, "broker.serving", pid=self.pid)
        elif header.get("op") == "fault":
            fault = str(header.get("fault", ""))[:_FAULT_CHARACTERS]
            if fault != self._fault:
                event(logger, "broker.faulty", level=logging.ERROR, fault=fault)
            self._fault = fault
        self.told = True

    async def _end(self) -> None:
        process = self.start.process
        process.sock.close()
        try:
            if process.popen.returncode is None:
                await asyncio.to_thread(_wait, process)
        finally:
            process.kill()
            process.popen.wait()


def _wait(process: BrokerProcess) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.popen.wait(_CLOSE_S)
