"""One runner: a process forked from the fork server that confines itself for good and then runs programs, one at a time.

The order is the point: nothing but its socket is open, no capability, no privilege to gain, both its threads exist, and only
then does the filter close behind it; then it tries what must not work and reports what it found; only then does it take code.
It holds no secret, serves one caller until it is replaced, and ends when the other end of its socket does.
"""

import contextlib
import ctypes
import json
import os
import resource
import socket
import threading
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from providers.host.process import die_with_parent, is_dumpable, set_dumpable
from providers.wasm import descriptors, seccomp
from providers.wasm.protocol import (
    END,
    ENDINGS,
    HEADER,
    LEAST_OUT,
    MAY_CALL,
    MOST_REPLY,
    MOST_TO_RUNNER,
    RUN,
    Kind,
    Piece,
    ProtocolError,
    frame,
    pieces_bytes,
)
from providers.wasm.vm import THREAD_STACK_BYTES, Engine, VmLimits, VmResult

_STANDARD: Final = (0, 1, 2)
_ORDERS: Final = frozenset({int(Kind.RUN), int(Kind.WATCH)})
_SEED_BYTES: Final = 8
_CHUNK: Final = 32 * 1024
_MIB: Final = 1 << 20
_RLIMITS: Final = (
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_FSIZE, 0),
    (resource.RLIMIT_NOFILE, 16),
    (resource.RLIMIT_STACK, 8 * _MIB),
)
_BESIDE_GUEST_BYTES: Final = 128 * _MIB
"""What a runner may have of writable memory beside its guest's and what it got from the fork server. It takes 35 MiB, of which
32 are its threads' stacks and mostly untouched."""
NICE: Final = 10
"""How far a runner stands back for the service, whose answers others wait for."""
_CAPABILITY_VERSION: Final = 0x20080522
_libc: Final = ctypes.CDLL(None, use_errno=True)


def become(
    sock: socket.socket,
    engine: Engine,
    *,
    parent: int,
    keep: Collection[int],
    memory_bytes: int,
    dumpable: bool,
) -> None:
    """Be a runner until the end of this process. `keep` are descriptors that the engine maps memory from.

    `memory_bytes` is the most that a guest can have.
    """
    status = 1
    try:
        _only(sock.fileno(), keep)
        _confine(parent, memory_bytes, dumpable=dumpable)
        _serve(sock, engine)
        status = 0
    finally:
        os._exit(status)


def _only(own: int, keep: Collection[int]) -> None:
    """Leave nothing open but /dev/null as the standard three, `own`, and `keep`."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in _STANDARD:
        os.dup2(null, standard)
    descriptors.close_all_but({*_STANDARD, own, *keep})


def _confine(parent: int, memory_bytes: int, *, dumpable: bool) -> None:
    """All that can be given up before threads exist. The environment is empty since the process was exec'd."""
    die_with_parent()
    if os.getppid() != parent:
        raise ProcessLookupError
    set_dumpable(dumpable)
    _drop_capabilities()
    os.nice(NICE)
    data_bytes = _data_bytes() + memory_bytes + _BESIDE_GUEST_BYTES
    for which, most in (*_RLIMITS, (resource.RLIMIT_DATA, data_bytes)):
        _, hard = resource.getrlimit(which)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (least, least))


def _data_bytes() -> int:
    """Writable memory that this process has already."""
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123  # no more imports than needed
        return int(statm.read().split()[5]) * resource.getpagesize()


def _drop_capabilities() -> None:
    """No capability in any set, whoever the service runs as."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if _libc.capset(header, (ctypes.c_uint32 * 6)()):
        raise PermissionError


def _serve(sock: socket.socket, engine: Engine) -> None:
    """Start the two threads, close the filter, report, then let the serving thread take code."""
    confined = threading.Event()
    threading.stack_size(THREAD_STACK_BYTES)
    server = threading.Thread(target=_take_runs, args=(sock, engine, confined), daemon=True)
    server.start()
    engine.start_ticker()
    opened = descriptors.words(descriptors.own().values())
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    dumpable = is_dumpable()
    machine = seccomp.this_machine()
    seccomp.install(machine)
    report = {
        "machine": machine,
        "policy": seccomp.policy(machine),
        "probes": seccomp.probes(machine),
        "descriptors": opened,
        "dumpable": str(int(dumpable)),
    }
    sock.sendall(frame(Kind.HELLO, 0, json.dumps(report).encode()))
    confined.set()
    server.join()


# --- runs ---------------------------------------------------------------------------------------------------------------


def _take_runs(sock: socket.socket, engine: Engine, confined: threading.Event) -> None:
    """The serving thread: one frame, one run, one answer, until the socket ends. Any failure ends the process."""
    status = 1
    try:
        confined.wait()
        orders = Orders(sock)
        while (order := orders.next()) is not None:
            _run(sock, engine, orders, *order)
        status = 0
    finally:
        os._exit(status)


class Orders:
    """What the host says, in order. It waits in no other way than `recv`, so the filter allows no call for it.

    The serving thread takes runs from it, and the answers to a run's calls. While a run goes on otherwise, the ticker's thread
    looks for its cancel. Never both at once: the ticker asks only about a run that is armed, and not while a call is under
    way.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Read `sock`, which must be a blocking one."""
        self._sock = sock
        self._rest = b""
        self._reading = threading.Lock()
        self._cancelled: int | None = None

    def next(self) -> tuple[int, int, bytes] | None:
        """One RUN or WATCH frame: kind, number, payload; None at end of file. A cancel that comes too late is passed over."""
        while (header := self._header()) is not None:
            length, kind, number = header
            if kind == Kind.CANCEL and not length:
                continue
            if kind not in _ORDERS or length > MOST_TO_RUNNER:
                raise ProtocolError("order")
            payload = self._payload(length)
            return None if payload is None else (kind, number, payload)
        return None

    def call(self, number: int, message: bytes) -> bytes | None:
        """The host's answer to a call of this run's guest, or None when the run is to end. Raises ProtocolError, OSError."""
        with self._reading:
            if self._cancelled == number:
                return None
            self._sock.sendall(frame(Kind.CALL, number, message))
            header = self._header()
            if header is None or header == (0, Kind.CANCEL, number):
                return None
            length, kind, of = header
            if (kind, of) != (Kind.REPLY, number) or length > MOST_REPLY:
                raise ProtocolError("order")
            return self._payload(length)

    def cancels(self, number: int) -> bool:
        """Whether a cancel of this run is there, without waiting for one."""
        if not self._reading.acquire(blocking=False):
            return False
        try:
            return self._cancels(number)
        finally:
            self._reading.release()

    def _cancels(self, number: int) -> bool:
        missing = HEADER.size - len(self._rest)
        if missing > 0:
            with contextlib.suppress(BlockingIOError):
                self._rest += self._sock.recv(missing, socket.MSG_DONTWAIT)
        if len(self._rest) < HEADER.size:
            return False
        header, self._rest = HEADER.unpack_from(self._rest), self._rest[HEADER.size :]
        if header != (0, Kind.CANCEL, number):
            raise ProtocolError("order")
        self._cancelled = number
        return True

    def _header(self) -> tuple[int, int, int] | None:
        """Length, kind and number of the next frame, or None at end of file."""
        data, self._rest = self._rest, b""
        while len(data) < HEADER.size:
            part = self._sock.recv(_CHUNK)
            if not part:
                return None
            data += part
        self._rest = data[HEADER.size :]
        length, kind, number = HEADER.unpack_from(data)
        return length, kind, number

    def _payload(self, length: int) -> bytes | None:
        """The next `length` bytes, or None at end of file."""
        data, self._rest = self._rest[:length], self._rest[length:]
        if len(data) == length:
            return data
        parts, missing = [data], length - len(data)
        while missing > 0:
            part = self._sock.recv(min(missing, _CHUNK))
            if not part:
                return None
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


def _run(sock: socket.socket, engine: Engine, orders: Orders, kind: int, number: int, payload: bytes) -> None:
    """Run one order and answer it, then take its VM down and make the next one, which nobody waits for."""
    deadline_ns, memory_bytes, cap, flags = RUN.unpack_from(payload)
    output = _Output(sock, number)
    limits = _limits(memory_bytes, cap)

    def answer(result: VmResult) -> None:
        sock.sendall(frame(Kind.END, number, _end(result) + pieces_bytes(output.waiting)))

    engine.run(
        payload[RUN.size :],
        deadline_ns=deadline_ns,
        seed=os.urandom(_SEED_BYTES),
        limits=limits,
        on_output=output.take,
        on_look=output.send if kind == Kind.WATCH else None,
        is_cancelled=lambda: orders.cancels(number),
        on_call=(lambda message: orders.call(number, message)) if flags & MAY_CALL else None,
        on_end=answer,
    )
    engine.prepare(memory_bytes)


@lru_cache(maxsize=8)
def _limits(memory_bytes: int, cap: int) -> VmLimits:
    return VmLimits(memory_bytes=memory_bytes, output_cap_bytes=cap)


def _end(result: VmResult) -> bytes:
    flags = result.stdout_truncated | 2 * result.stderr_truncated
    return END.pack(ENDINGS.index(result.ending.value), result.exit_code & 0xFF, flags)


class _Output:
    """Kept output on its way: sent on in good pieces, the last of it with the end."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.waiting: list[Piece] = []
        self._bytes = 0
        self._sock = sock
        self._number = number

    def take(self, stream: int, data: bytes) -> bool:
        self.waiting.append((stream, data))
        self._bytes += len(data)
        return self.send() if self._bytes >= LEAST_OUT else True

    def send(self) -> bool:
        """Send on what waits, if anything does."""
        if self.waiting:
            self._sock.sendall(frame(Kind.OUT, self._number, pieces_bytes(self.waiting)))
            self.waiting, self._bytes = [], 0
        return True
