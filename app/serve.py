"""`plimsolld`: settings, then provider processes, then everything else; and a sure end.

1. every fault of the settings is reported at once, exit 2, nothing served
2. providers start before any database, listener or heavy import exists, so they can inherit none of it
3. sockets are bound by us, the application opens what it owns, and only then is anybody told
4. SIGTERM or SIGINT: no new runs; running ones get the grace time; the rest are ended and told so; then everything closes
"""

import argparse
import asyncio
import ctypes
import errno
import logging
import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING

from app.dispatch.state import UnsafeStateError, make_state_directory
from app.dispatch.supervisor import ProviderProcess, spawn
from app.log import configure_logging, event, failure, logger
from app.private import LOCAL, DoorBroken, PrivateDoor
from app.settings import DOCKER, Settings, SettingsError, kind_of, read_settings, settings_help

if TYPE_CHECKING:  # heavy: imported after the providers are started
    from app.dispatch.broker import BrokerAccess
    from app.http.listener import Server
    from app.main import Service

_PR_SET_DUMPABLE = 4
_LAST_ANSWERS_S = 3.0
_SECOND_LOOKS_S = 5.0
_DRAIN_STEP_S = 0.05
_DESCRIPTORS = 8_192
"""Enough for 4,096 connections and all else."""
OK, FAILED, FAULTY = 0, 1, 2


def serve(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the service until it is told to end. Returns the exit code: 0 ended, 1 could not start, 2 faulty settings."""
    options = _options(argv)
    door: PrivateDoor | None = None
    try:
        door = PrivateDoor(options.private_fd) if options.private_fd is not None else None
        token = door.read_token() if door else None
        settings = read_settings(environ)
    except (SettingsError, DoorBroken) as error:
        return _faulty(door, str(error).splitlines())
    configure_logging()
    if not settings.debug_dumpable:
        _forbid_dumps()
    _raise_file_limit()
    with ExitStack() as owned:
        if options.private_data:
            # The program may be gone, killed, when this service ends: nobody else would remove what it kept.
            owned.callback(shutil.rmtree, settings.data_dir, ignore_errors=True)
        try:
            processes = [_start(settings, name, owned) for name in settings.providers]
        except (OSError, UnsafeStateError) as error:
            return _failed(door, settings, error)
        return _run(settings, processes, door, token, owned)


def _start(settings: Settings, name: str, owned: ExitStack) -> ProviderProcess:
    """One provider process. Raises OSError, UnsafeStateError."""
    if kind_of(name) == DOCKER:
        make_state_directory(settings.state_dir(name), below=settings.data_dir)
    process = spawn(name, settings.provider_frame(name))
    owned.callback(process.end)
    return process


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="plimsolld",
        description="Run untrusted code in a sandbox and say on every result how strong the wall was.",
        epilog=f"Settings, read once from the environment:\n{settings_help()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"plimsolld {version('plimsoll-server')}")
    parser.add_argument(
        "--private-fd", type=int, metavar="N", help="serve one program over this inherited socket"
    )
    parser.add_argument(
        "--private-data",
        action="store_true",
        help="with --private-fd: the data directory was made for this service alone and is removed at the end",
    )
    options = parser.parse_args(argv)
    if options.private_data and options.private_fd is None:
        parser.error("--private-data goes with --private-fd")
    return options


def _faulty(door: PrivateDoor | None, faults: list[str]) -> int:
    for fault in faults:
        sys.stderr.write(f"plimsolld: {fault}\n")
    if door:
        door.say({"ready": False, "errors": faults})
    return FAULTY


def _forbid_dumps() -> None:
    """No core dump, no debugger, no /proc/self/mem for others of this user: this process holds tokens' digests and code."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _raise_file_limit() -> None:
    """A listener's connection cap is worth nothing if descriptors run out before it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _DESCRIPTORS:
        wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        if wanted < _DESCRIPTORS:
            event(logger, "descriptors.few", level=logging.WARNING, limit=wanted, wanted=_DESCRIPTORS)


def _run(
    settings: Settings,
    processes: Sequence[ProviderProcess],
    door: PrivateDoor | None,
    token: str | None,
    owned: ExitStack,
) -> int:
    from app.brokerage import open_broker  # noqa: PLC0415  # after the providers are started
    from app.http.sockets import UnsafePathError  # noqa: PLC0415  # as above
    from app.store.values import StoreError  # noqa: PLC0415  # as above
    from app.vault.keys import KeyUnusable  # noqa: PLC0415  # as above

    try:
        sockets = [_bind(settings, door)]
        broker = open_broker(settings, sockets, owned)
        return asyncio.run(_serve(settings, processes, sockets, door, token, broker))
    except (OSError, UnsafePathError, UnsafeStateError, StoreError, KeyUnusable) as error:
        return _failed(door, settings, error)


def _failed(door: PrivateDoor | None, settings: Settings, error: Exception) -> int:
    text = f"could not start: {_told(error, settings)}"
    sys.stderr.write(f"plimsolld: {text}\n")
    if door:
        door.say({"ready": False, "errors": [text]})
    return FAILED


def _told(error: Exception, settings: Settings) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        where = settings.address.path or f"{settings.address.host}:{settings.address.port}"
        return f"PLIMSOLL_ADDR {where} is in use: end the other program or name another address"
    return str(error)


def _bind(settings: Settings, door: PrivateDoor | None) -> socket.socket:
    from app.http.sockets import bind_tcp, bind_unix  # noqa: PLC0415  # after the providers are started

    if door:
        return bind_unix(settings.data_dir / "plimsoll.sock")
    if settings.address.path:
        return bind_unix(settings.address.path)
    return bind_tcp(settings.address.host, settings.address.port)


async def _serve(
    settings: Settings,
    processes: Sequence[ProviderProcess],
    sockets: list[socket.socket],
    door: PrivateDoor | None,
    token: str | None,
    broker: "BrokerAccess | None",
) -> int:
    from app.http.listener import make_server  # noqa: PLC0415  # after the providers are started
    from app.main import VERSION, create_service  # noqa: PLC0415  # as above

    private = {token: LOCAL} if token is not None else None
    service = create_service(settings, processes, private=private, broker=broker)
    ending = Ending(service, settings.drain_grace_s)

    def listening() -> None:
        ending.listen_for_signals()
        where = _where(sockets[0])
        event(logger, "serving", address=where, providers=",".join(settings.providers), pid=os.getpid())
        if door:
            door.watch(ending.begin)
        announcing.append(asyncio.create_task(_announce(service, door, sockets[0], VERSION), name="announce"))

    announcing: list[asyncio.Task[None]] = []
    server = make_server(
        service.app,
        limits=service.limits,
        trusted_proxies=settings.trusted_proxies,
        on_ready=listening,
        lifespan=False,
    )
    ending.server = server
    async with service.opened():
        await server.serve(sockets=sockets)
    return OK if server.started else FAILED


async def _announce(service: "Service", door: PrivateDoor | None, sock: socket.socket, version: str) -> None:
    """Say that the service is ready once the first look at every wall ended: before, a run would only be refused.

    The one caller of a private service is told a little later if a look found a fault: on a busy machine the next one, which
    comes soon, may not.
    """
    readiness = service.running().readiness
    while not (now := readiness()).ready:
        await asyncio.sleep(_DRAIN_STEP_S)
    event(logger, "ready", amiss=",".join(now.reasons))
    if door:
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECOND_LOOKS_S):
                while readiness().reasons:
                    await asyncio.sleep(_DRAIN_STEP_S)
        door.say({"ready": True, "socket": sock.getsockname(), "version": version})


def _where(sock: socket.socket) -> str:
    name = sock.getsockname()
    return f"unix:{name}" if isinstance(name, str) else f"{name[0]}:{name[1]}"


class Ending:
    """The end of the service, begun by a signal or by the private door; a second signal does not shorten it."""

    def __init__(self, service: "Service", grace_s: int) -> None:
        self.server: Server | None = None
        self._service = service
        self._grace_s = grace_s
        self._task: asyncio.Task[None] | None = None

    def listen_for_signals(self) -> None:
        """SIGTERM and SIGINT begin the end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.begin)

    def begin(self) -> None:
        """Begin once."""
        if self._task is None:
            self._task = asyncio.create_task(self._end(), name="ending")

    async def _end(self) -> None:
        dispatcher = self._service.running().dispatcher
        dispatcher.drain()
        event(logger, "draining", running=dispatcher.running)
        try:
            await self._until_idle(self._grace_s)
            if dispatcher.running:
                event(logger, "drain.cancelling", running=dispatcher.running)
                dispatcher.cancel_all()
                await self._until_idle(_LAST_ANSWERS_S)
        except Exception as error:  # noqa: BLE001  # whatever fails here, the end must come
            failure(logger, "drain.failed", error)
        if self.server:
            self.server.stop()

    async def _until_idle(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._service.running().dispatcher.running and loop.time() < until:
            await asyncio.sleep(_DRAIN_STEP_S)  # at most a few seconds, once
