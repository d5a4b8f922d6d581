"""The host's end of the fork server: starts it, asks it for runners, notices its death."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from providers.seam import Lost
from providers.wasm.zygote import FORK, MOST, ZygoteSettings, be_zygote

_FORK_S: Final = 5.0
_END_S: Final = 1.0


class ForkFailed(Exception):
    """No runner was made: no process or memory to be had, or the fork server is gone."""


@dataclass(frozen=True, slots=True)
class Forked:
    """A new runner: whoever holds it owns both descriptors."""

    pid: int
    pidfd: int
    sock: socket.socket


class ForkServer:
    """Owns the fork server's process. Made before there is an event loop; used from one."""

    def __init__(self, settings: ZygoteSettings) -> None:
        """Fork it now. The caller has no thread, no event loop, and nothing that a runner must not see."""
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        me = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            be_zygote(theirs, settings, me)
        theirs.close()
        self._pidfd = os.pidfd_open(self._pid)
        self._sock.settimeout(0)
        self._about: asyncio.Future[Mapping[str, str]] | None = None
        self._asked: deque[asyncio.Future[Forked]] = deque()
        self.gone = False
        self.on_gone: Callable[[], None] = lambda: None

    async def ready(self) -> Mapping[str, str]:
        """What it loaded, or `{"fault": code}`. Raises Lost when it died instead."""
        loop = asyncio.get_running_loop()
        self._about = loop.create_future()
        loop.add_reader(self._sock, self._readable)
        return await self._about

    async def fork(self) -> Forked:
        """A new runner, not yet confined. Raises ForkFailed."""
        if self.gone:
            raise ForkFailed("gone")
        answer: asyncio.Future[Forked] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        try:
            self._sock.send(FORK)
        except OSError as failure:
            self._asked.remove(answer)
            raise ForkFailed("busy") from failure
        try:
            async with asyncio.timeout(_FORK_S):
                return await answer
        except TimeoutError as silent:
            raise ForkFailed("silent") from silent
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                discard(answer.result())  # it came in the same moment, and nobody else knows of it
            raise

    async def close(self) -> None:
        """End it and wait for it; its runners die with it."""
        self.on_gone = lambda: None
        self._end_of_file()
        self._sock.close()
        if self._pid == 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pidfd, ended.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await ended.wait()
        loop.remove_reader(self._pidfd)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)  # noqa: ASYNC222  # does not wait
        os.close(self._pidfd)
        self._pid = 0

    def _readable(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, MOST, 2)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._end_of_file()
            return
        self._take(json.loads(data), descriptors)

    def _take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if self._about is not None and not self._about.done():
            self._about.set_result({str(name): str(value) for name, value in message.items()})
            return
        answer = self._asked.popleft()
        if "pid" not in message:
            if not answer.done():
                answer.set_exception(ForkFailed(str(message.get("failed"))))
            return
        sock, pidfd = socket.socket(fileno=descriptors[0]), descriptors[1]
        forked = Forked(int(message["pid"]), pidfd, sock)
        if answer.done():  # asked for by someone who gave up waiting
            discard(forked)
        else:
            answer.set_result(forked)

    def _end_of_file(self) -> None:
        """It is gone for good: this process must be replaced by a fresh one, since it holds runs by now."""
        if self.gone:
            return
        self.gone = True
        asyncio.get_running_loop().remove_reader(self._sock)
        if self._about is not None and not self._about.done():
            self._about.set_exception(Lost("fork_server_gone"))
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(ForkFailed("gone"))
        self._asked.clear()
        self.on_gone()


def discard(forked: Forked) -> None:
    """End a runner nobody wants and let go of it."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(forked.pidfd, signal.SIGKILL)
    os.close(forked.pidfd)
    forked.sock.close()
