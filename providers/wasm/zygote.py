"""The fork server: a process that loads the engine once and forks a confined runner whenever the host asks (3 ms each).

It is forked from the provider process before that has an event loop, a heavy import or any run, and it closes the socket to
the API first of all, so no runner can inherit what it never had. It takes one word from the host and nothing from runners.

    host -> fork server   FORK
    fork server -> host   JSON {"fault": code} or {"engine", "guest", "cache_key"}, once, when the engine is loaded
                          JSON {"pid"} with two descriptors: the host's end of the runner's socket, and its pidfd
                          JSON {"failed": errno name} when there was no process to be had
"""

import contextlib
import errno
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from providers.host.process import die_with_parent
from providers.wasm import descriptors
from providers.wasm.guest.pins import WASM_SHA256

FORK: Final = b"F"
MOST: Final = 4096


@dataclass(frozen=True, slots=True)
class ZygoteSettings:
    """What the fork server needs to know."""

    cache_dir: str
    memory_mb: int
    dumpable: bool


def be_zygote(control: socket.socket, settings: ZygoteSettings, parent: int) -> None:
    """Be the fork server until the end of this process."""
    status = 1
    try:
        os.environ.clear()
        descriptors.close_all_but({0, 1, 2, control.fileno()})  # stderr is the log
        die_with_parent()
        if os.getppid() == parent:
            _serve(control, settings)
            status = 0
    except Exception as failure:  # noqa: BLE001  # the host sees the end of file; the log gets only the kind of failure
        sys.stderr.write(json.dumps({"event": "fork-server-failed", "code": type(failure).__name__}) + "\n")
    finally:
        sys.stderr.flush()
        os._exit(status)


def _serve(control: socket.socket, settings: ZygoteSettings) -> None:
    signal.signal(signal.SIGCHLD, _reap)
    loaded = _load(settings)
    if isinstance(loaded, str):
        control.send(json.dumps({"fault": loaded}).encode())
        return
    engine, about = loaded
    keep = frozenset(number for number, kind in descriptors.own().items() if kind == "image")
    gc.collect()
    gc.freeze()  # so that a collection in a runner does not copy every page
    control.send(json.dumps(about).encode())
    while control.recv(MOST) == FORK:
        _fork(control, engine, keep, settings)


def _load(settings: ZygoteSettings) -> tuple[Any, Mapping[str, str]] | str:
    """The engine, warm, and what it is; or the code of why there is none."""
    try:
        from providers.wasm import cache, capi, guest, runner, vm  # noqa: PLC0415  # only this process and its runners have it
    except ImportError:
        return "engine_missing"
    del runner  # imported so that no runner has to
    config = vm.EngineConfig(memory_bytes=settings.memory_mb * vm.MIB)
    try:
        guest.load()
        engine = vm.Engine.load(cache.compiled(Path(settings.cache_dir), config), config)
    except cache.CacheRefused:
        return "cache_refused"
    except guest.GuestRefused:
        return "guest_refused"
    except (capi.CApiError, OSError):
        return "engine_failed"
    return engine, {
        "engine": f"wasmtime {capi.WASMTIME_VERSION}",
        "guest": WASM_SHA256,
        "cache_key": cache.cache_key(config),
        "wasm_stack_bytes": str(config.wasm_stack_bytes),
    }


def _fork(control: socket.socket, engine: Any, keep: frozenset[int], settings: ZygoteSettings) -> None:
    """One runner. Its death is not collected before its pidfd is there, so the pidfd is surely of this child."""
    from providers.wasm.runner import become  # noqa: PLC0415  # as in _load; loaded there already

    me = os.getpid()
    with _no_reaping():
        try:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                pid = os.fork()
                if pid == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    become(
                        theirs,
                        engine,
                        parent=me,
                        keep=keep,
                        memory_bytes=settings.memory_mb << 20,
                        dumpable=settings.dumpable,
                    )
                pidfd = os.pidfd_open(pid)
                try:
                    socket.send_fds(control, [json.dumps({"pid": pid}).encode()], [ours.fileno(), pidfd])
                finally:
                    os.close(pidfd)
        except OSError as failure:
            name = errno.errorcode.get(failure.errno or 0, "unknown")
            control.send(json.dumps({"failed": name}).encode())


@contextlib.contextmanager
def _no_reaping() -> Iterator[None]:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _reap(_signal: int, _frame: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
