"""One fresh JavaScript VM per run, inside this process.

`Engine` holds the native engine and the guest's machine code; `Engine.run` makes a new instance with its own memory,
runs one program to an end that is always one of `Ending`, and destroys the instance: nothing of a run outlives it.
No program, however hostile, makes `run` raise or the process crash; `run` raises only for a mistake of its caller.

One engine per process, one run at a time:

    config = EngineConfig(memory_bytes=64 * MIB)
    engine = Engine.load(cache.compiled(directory, config), config)  # in the parent: starts no thread, may be forked
    ...                                                              # os.fork()
    engine.start_ticker()                                            # in the child, once: a daemon thread
    result = engine.run(b"console.log(1+1)", deadline_ns=time.monotonic_ns() + 10**9, seed=os.urandom(8))

Call `run` on the main thread, or on one started after `threading.stack_size(THREAD_STACK_BYTES)`: where the thread's
stack is smaller than `EngineConfig.wasm_stack_bytes` and what a host call needs on top, deep recursion in a guest
kills the process instead of ending the run. The engine reserves about 4 GiB of address space (not memory): an
RLIMIT_AS must allow for it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from providers.wasm import capi
from providers.wasm.capture import LEAST_CHARGE, LOOK_NS, Stream
from providers.wasm.guest import GuestRefused
from providers.wasm.protocol import MOST_CALL, MOST_CALLS
from providers.wasm.ticker import Ticker

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

MIB: Final = 1 << 20
THREAD_STACK_BYTES: Final = 16 * MIB
"""What a thread that calls `Engine.run` should have; see `threading.stack_size`."""

STDOUT: Final = 1
STDERR: Final = 2

OnOutput: TypeAlias = Callable[[int, bytes], bool]
"""Called with (`STDOUT` or `STDERR`, bytes), in each stream's order and only with bytes that are kept: as they leave
the guest, about every 16 KiB, and for the rest at the end, before `run` returns. False, or an exception, ends the run
as cancelled."""

OnLook: TypeAlias = Callable[[], bool]
"""Makes a run a watched one: its output is fetched from the guest about every `LOOK_NS`, whatever the guest is doing, and
before a call. Called after each such look, when `on_output` was given what is new: stdout first, then stderr.
False, or an exception, ends the run as cancelled."""

IsCancelled: TypeAlias = Callable[[], bool]
"""Asked about every tick of the ticker while the program runs, from the ticker's thread and until it is true: then, or after an
exception, the run ends like at its deadline, but as cancelled. It must not wait."""
OnCall: TypeAlias = Callable[[bytes], bytes | None]
"""Given a message of the program's, at most `VmLimits.message_bytes` and not empty, when it makes a call: the answer, or None
for a run that is to end. The program waits for it, and only its own end lets a deadline or a cancel be noticed."""

OnEnd: TypeAlias = Callable[["VmResult"], None]
"""Given the result of a run, once. What it raises is raised by `run`."""


class Ending(StrEnum):
    """Why a run ended. Codes are append-only."""

    FINISHED = (
        "finished"  # the program came to its end: 0, 1 (uncaught error), 13 (top-level await never settled)
    )
    DEADLINE = "deadline"
    MEMORY = "memory"  # an allocation failed, and that ended the program
    FLOOD = "flood"  # a stream went beyond flood_factor times its cap
    STACK = "stack"  # nesting too deep for the native stack: deep JSON, deep source
    HOST_CALLS = "host_calls"  # more host calls than a run may make
    CANCELLED = "cancelled"  # is_cancelled said so, or on_output or on_look said stop
    TRAP = "trap"  # the guest broke in a way that has no name above


EXIT_CODES: Final = {
    Ending.DEADLINE: 124,
    Ending.MEMORY: 137,
    Ending.FLOOD: 153,
    Ending.STACK: 1,
    Ending.HOST_CALLS: 1,
    Ending.CANCELLED: 130,
    Ending.TRAP: 1,
}
"""The exit code of every ending but `FINISHED`, which has the program's own."""

_LAST_WORDS: Final = {
    Ending.MEMORY: b"out of memory\n",
    Ending.STACK: b"RangeError: the program nests too deeply\n",
    Ending.HOST_CALLS: b"the program made too many host calls\n",
    Ending.TRAP: b"the JavaScript engine failed\n",
}
"""What goes to stderr where the program can no longer say it. The other endings have a field of their own on a result."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the native engine is built with. Part of the cache key: compile and load with equal values."""

    memory_bytes: int = 64 * MIB
    """The most linear memory that an instance can have; `VmLimits.memory_bytes` may be lower."""
    wasm_stack_bytes: int = 2 * MIB
    keep_resident_bytes: int = 2 * MIB
    """What of an instance's memory is put back by copying; pages beyond it are dropped. It covers the image, so that a run
    begins without page faults, and not more: every run pays for the copy."""

    def new_engine(self) -> capi.Handle:
        return capi.new_engine(
            memory_bytes=self.memory_bytes,
            wasm_stack_bytes=self.wasm_stack_bytes,
            keep_resident_bytes=self.keep_resident_bytes,
        )


@dataclass(frozen=True, slots=True)
class VmLimits:
    """The limits of one run. `memory_bytes` counts the engine's own 1.75 MiB too."""

    memory_bytes: int = 64 * MIB
    output_cap_bytes: int = 64 * 1024
    """Per stream. What goes beyond is dropped and flagged."""
    flood_factor: int = 16
    host_calls: int = MOST_CALLS
    message_bytes: int = MOST_CALL


@dataclass(frozen=True, slots=True)
class VmResult:
    """How one run ended and what it printed. Output has no repr: it is the caller's, and no log's."""

    ending: Ending
    exit_code: int
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    stdout_truncated: bool
    stderr_truncated: bool

    @property
    def timed_out(self) -> bool:
        return self.ending is Ending.DEADLINE

    @property
    def oom(self) -> bool:
        return self.ending is Ending.MEMORY

    @property
    def flooded(self) -> bool:
        return self.ending is Ending.FLOOD


_SIGNATURES: Final = {
    "call": ((capi.I32, capi.I32), (capi.I32,)),
    "take": ((capi.I32, capi.I32), (capi.I32,)),
    "flush": ((capi.I32, capi.I32, capi.I32), (capi.I32,)),
    "now": ((), (capi.I64,)),
}
_GO, _RUN, _ALLOC, _IO = (capi.export_name(name) for name in ("go", "run", "alloc", "io"))
_GUEST_CODES: Final = frozenset({0, 1, 13})
_GUEST_MEMORY: Final = 137
_NO_GRANT: Final = -1  # the guest's words for it: shim.c
_TOO_LARGE: Final = -2
_RAW: Final = 16  # bytes of one raw value: a slot wide enough for a vector
_PATIENT_CALLS: Final = 50_000
_PAUSE_SECONDS: Final = 0.006
_SEED_BYTES: Final = 8
_SOON_GONE_BYTES: Final = 8 * MIB
"""A VM whose memory never was larger is taken down in far less than a millisecond."""


class _Io(ctypes.Structure):
    """The head of `io` in guest/shim.c. Append only, and change both."""

    _fields_: ClassVar[Sequence[Any]] = (
        ("out_of_memory", ctypes.c_uint32),
        ("length", ctypes.c_uint32 * 2),
        ("stream_bytes", ctypes.c_uint32),
        ("source_bytes", ctypes.c_uint32),
    )
    out_of_memory: int
    length: ctypes.Array[ctypes.c_uint32]
    stream_bytes: int
    source_bytes: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the guest's buffers are. The image is frozen, so this holds for every instance of it."""

    io: int
    stream_bytes: int
    source_bytes: int
    least_memory: int
    streams: tuple[int, int]
    source: int

    @classmethod
    def of(cls, io: int, stream_bytes: int, source_bytes: int, least_memory: int) -> Self:
        """The streams follow the head, the source follows them."""
        first, second, source = (io + ctypes.sizeof(_Io) + index * stream_bytes for index in range(3))
        return cls(io, stream_bytes, source_bytes, least_memory, (first, second), source)


class _Run:
    """The host's side of one run: what host calls may touch. They report by `stop` and never raise."""

    __slots__ = (
        "_calls",
        "_deaf",
        "_is_cancelled",
        "_layout",
        "_limits",
        "_on_call",
        "_on_look",
        "_on_output",
        "_reply",
        "_vm",
        "cancelled",
        "deadline_ns",
        "streams",
        "verdict",
    )

    def __init__(
        self,
        vm: capi.Instance,
        layout: _Layout,
        limits: VmLimits,
        deadline_ns: int,
        on_output: OnOutput | None,
        on_look: OnLook | None,
        is_cancelled: IsCancelled | None,
        on_call: OnCall | None,
    ) -> None:
        self._vm = vm
        self._on_call = on_call
        self._reply = b""
        self._layout = layout
        self._on_look = on_look
        self._limits = limits
        self.deadline_ns = deadline_ns
        self._on_output = on_output
        self._is_cancelled = is_cancelled
        self.cancelled = False
        self._deaf = False
        self._calls = 0
        self.streams = (
            Stream(limits.output_cap_bytes, limits.flood_factor),
            Stream(limits.output_cap_bytes, limits.flood_factor),
        )
        self.verdict: Ending | None = None

    @property
    def watched(self) -> bool:
        return self._on_look is not None

    def stop(self, verdict: Ending) -> None:
        """Note why the run ends; the first reason stands."""
        if self.verdict is None:
            self.verdict = verdict

    def ask(self) -> bool:
        """Whether the run is cancelled. On the ticker's thread: it notes that, and the interrupt does the rest."""
        try:
            self.cancelled = self._is_cancelled is not None and self._is_cancelled()
        except Exception:  # noqa: BLE001  whoever could cancel it is gone, and the ticker must go on
            self.cancelled = True
        return self.cancelled

    def count_call(self) -> None:
        self._calls += 1
        if self._calls > self._limits.host_calls:
            self.stop(Ending.HOST_CALLS)

    def pace(self) -> None:
        """Slow a program that waits by reading the clock, so that its budget of host calls lasts for the longest deadline."""
        if self._calls > _PATIENT_CALLS:
            left = (self.deadline_ns - time.monotonic_ns()) / 1e9
            time.sleep(max(0.0, min(_PAUSE_SECONDS, left)))

    def flush(self, number: int, address: int, length: int) -> bool:
        """Take a delivery of the guest. True when no more of this stream is kept."""
        base, size = self._vm.memory()
        if number not in {STDOUT, STDERR} or address + length > size:
            self.stop(Ending.TRAP)
            return True
        self.take(number, base + address, length, charge=LEAST_CHARGE)
        return self.streams[number - 1].full

    def call(self, address: int, length: int) -> int:
        """Have a message of the guest's answered: the length of the answer, or why there is none."""
        if self._on_call is None:
            return _NO_GRANT
        if length > self._limits.message_bytes:
            return _TOO_LARGE
        base, size = self._vm.memory()
        if not length or address + length > size:
            self.stop(Ending.TRAP)
            return 0
        if self.watched:
            self._show()  # the call may take long
        reply = self._on_call(ctypes.string_at(base + address, length))
        if time.monotonic_ns() >= self.deadline_ns:
            self.stop(Ending.DEADLINE)
        elif reply is None:
            self.stop(Ending.CANCELLED)
        self._reply = reply or b""
        return len(self._reply)

    def take_reply(self, address: int, length: int) -> int:
        """Copy the head of the answer into the guest's memory, once; how much."""
        reply, self._reply = self._reply[:length], b""
        base, size = self._vm.memory()
        if address + len(reply) > size:
            self.stop(Ending.TRAP)
            return 0
        ctypes.memmove(base + address, reply, len(reply))
        return len(reply)

    def take(self, number: int, place: int, length: int, *, charge: int | None = None) -> None:
        """Keep the head of `length` bytes at `place` in this process, hand it on, and watch for a flood."""
        stream = self.streams[number - 1]
        head = ctypes.string_at(place + stream.ahead, stream.room_for(length))
        stream.add(head, length, charge=charge)
        if stream.flooded:
            self.stop(Ending.FLOOD)
        self.hand_on(number, head)

    def look(self) -> None:
        """The guest was stopped at the end of an epoch: its time is over, or what it has printed since is handed on."""
        if self.cancelled:
            self.stop(Ending.CANCELLED)
            return
        if time.monotonic_ns() >= self.deadline_ns:
            self.stop(Ending.DEADLINE)
            return
        self._show()

    def _show(self) -> None:
        """Hand on what a watched program has printed and not delivered yet."""
        base, _ = self._vm.memory()
        for number, place, length in self.waiting(base):
            stream = self.streams[number - 1]
            part = ctypes.string_at(place + stream.ahead, stream.room_for(length))
            stream.take_ahead(part)
            self.hand_on(number, part)
        self.tell(self._on_look)

    def waiting(self, base: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """(stream, place in this process, length) of what is in the guest's buffers, whatever the guest says of them.

        The memory is never smaller than when the buffers were found inside it.
        """
        layout = self._layout
        (first, second), most = layout.streams, layout.stream_bytes
        out, err = _Io.from_address(base + layout.io).length
        return (STDOUT, base + first, min(out, most)), (STDERR, base + second, min(err, most))

    def say(self, words: bytes) -> None:
        """Add words of ours to stderr, under the same cap."""
        stream = self.streams[STDERR - 1]
        head = words[: stream.room_for(len(words))]
        stream.add(head, len(words))
        self.hand_on(STDERR, head)

    def hand_on(self, number: int, head: bytes) -> None:
        if head and self._on_output is not None:
            self.tell(self._on_output, number, head)

    def tell(self, receiver: Callable[..., bool] | None, *what: object) -> None:
        """Call a callback of the caller's, until one says that no more is wanted."""
        if receiver is None or self._deaf:
            return
        try:
            wanted = receiver(*what)
        except Exception:  # noqa: BLE001  whatever it was, the receiver is gone, and a host call must not raise
            wanted = False
        if not wanted:
            self._deaf = True
            self.stop(Ending.CANCELLED)

    def result(self, ending: Ending, exit_code: int) -> VmResult:
        out, err = self.streams
        return VmResult(ending, exit_code, out.kept, err.kept, out.truncated, err.truncated)


class Engine:
    """A native engine with the guest loaded. Made by `load`, freed by `close` or at the end of `with`."""

    def __init__(self, code: bytes, config: EngineConfig, wall_clock_ns: Callable[[], int]) -> None:
        self._config = config
        self._wall_clock_ns = wall_clock_ns
        self._run: _Run | None = None
        self._next: capi.Instance | None = None
        self._busy = threading.Lock()
        self._engine = config.new_engine()
        self._module = capi.deserialize(self._engine, code)
        self._ticker = Ticker(lambda: capi.increment_epoch(self._engine))
        self._at_epoch = capi.EPOCH_CALLBACK(self._epoch_over)
        self._callbacks = {name: capi.CALLBACK(getattr(self, f"_host_{name}")) for name in _SIGNATURES}
        self._pre = self._link()
        self._layout = self._probe()

    @classmethod
    def load(
        cls, code: bytes, config: EngineConfig, *, wall_clock_ns: Callable[[], int] = time.time_ns
    ) -> Self:
        """Load machine code from `cache.compiled` (never from elsewhere: it runs in this process, unconfined).

        Raises `GuestRefused` for a module that wants or lacks something, `capi.CApiError` for bytes that are no module.
        """
        return cls(code, config, wall_clock_ns)

    def start_ticker(self) -> None:
        """Start the deadline thread in this process, after the last fork. Again is harmless."""
        self._ticker.start()

    def run(
        self,
        source: bytes,
        *,
        deadline_ns: int,
        seed: bytes,
        limits: VmLimits | None = None,
        on_output: OnOutput | None = None,
        on_look: OnLook | None = None,
        is_cancelled: IsCancelled | None = None,
        on_call: OnCall | None = None,
        on_end: OnEnd | None = None,
    ) -> VmResult:
        """Run `source` (JavaScript in UTF-8) in a fresh VM until `deadline_ns` on `time.monotonic_ns`.

        `seed`: 8 bytes from the system's source of randomness, for `Math.random`. `limits` defaults to `VmLimits()`.
        The result is the same with `on_look` and without. `on_end` gets it before the VM is taken down, over a
        third of a short run, unless that takes long because the guest used much memory.
        """
        limits = VmLimits() if limits is None else limits
        self._check(seed, limits)
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("an engine runs one program at a time")
        try:
            with self._fresh(limits.memory_bytes) as vm:
                self._run = _Run(
                    vm, self._layout, limits, deadline_ns, on_output, on_look, is_cancelled, on_call
                )
                if on_look is not None:
                    vm.at_epoch(self._at_epoch)
                result = self._execute(vm, self._run, source, seed)
                told = on_end is not None and vm.memory()[1] <= _SOON_GONE_BYTES
                if on_end is not None and told:
                    on_end(result)
        finally:
            self._run = None
            self._busy.release()
        if on_end is not None and not told:
            on_end(result)
        return result

    def prepare(self, memory_bytes: int) -> None:
        """Make the VM of the next run now, so that a run with this limit need not wait for it. Not while one goes on."""
        if self._next is None:
            self._next = capi.Instance(self._engine, self._pre, memory_bytes)

    def close(self) -> None:
        """End the ticker and free the engine. No run may be going on."""
        if self._engine is None:
            return
        self._ticker.close()
        if self._next is not None:
            self._next.delete()
        capi.delete_pre(self._pre)
        capi.delete_module(self._module)
        capi.delete_engine(self._engine)
        self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _fresh(self, memory_bytes: int) -> Iterator[capi.Instance]:
        """A VM that no program has seen, gone afterwards, whatever happened in it."""
        made, self._next = self._next, None
        if made is not None and made.memory_bytes != memory_bytes:
            made.delete()
            made = None
        made = made or capi.Instance(self._engine, self._pre, memory_bytes)
        try:
            yield made
        finally:
            made.delete()

    # -- loading ---------------------------------------------------------------------------------------------

    def _link(self) -> capi.Handle:
        wanted = capi.imports(self._module)
        strange = [f"{room}.{name}" for room, name in wanted if room != "host" or name not in _SIGNATURES]
        if strange:
            raise GuestRefused(f"the guest imports {', '.join(strange)}")
        linker = capi.new_linker(self._engine)
        try:
            for name, signature in _SIGNATURES.items():
                capi.define(linker, "host", name, signature, self._callbacks[name])
            return capi.instantiate_pre(linker, self._module)
        finally:
            capi.delete_linker(linker)

    def _probe(self) -> _Layout:
        with self._fresh(self._config.memory_bytes) as vm:
            address, trap = vm.call(vm.export(_IO).func)
            base, size = vm.memory()
            if trap is not None or not 0 < address <= size - ctypes.sizeof(_Io):
                raise GuestRefused("the guest does not say where its buffers are")
            head = _Io.from_address(base + address)
            layout = _Layout.of(address, head.stream_bytes, head.source_bytes, size)
            if layout.source + layout.source_bytes >= size:
                raise GuestRefused("the guest's buffers are outside its memory")
            return layout

    # -- running ---------------------------------------------------------------------------------------------

    def _check(self, seed: bytes, limits: VmLimits) -> None:
        if not self._ticker.running:
            raise RuntimeError("start the ticker in this process first")
        if len(seed) != _SEED_BYTES:
            raise ValueError(f"a seed has {_SEED_BYTES} bytes")
        if not self._layout.least_memory <= limits.memory_bytes <= self._config.memory_bytes:
            raise ValueError("memory_bytes is out of the engine's bounds")

    def _execute(self, vm: capi.Instance, run: _Run, source: bytes, seed: bytes) -> VmResult:
        if time.monotonic_ns() >= run.deadline_ns:
            return run.result(Ending.DEADLINE, EXIT_CODES[Ending.DEADLINE])
        self._ticker.arm(run.deadline_ns, LOOK_NS if run.watched else 0, run.ask)
        try:
            status, trap = self._enter(vm, source, int.from_bytes(seed, "little", signed=True))
        finally:
            self._ticker.disarm()
        return self._conclude(vm, run, status, trap)

    def _enter(self, vm: capi.Instance, source: bytes, seed: int) -> tuple[int, int | None]:
        """Put the source where the guest reads it and run it."""
        base, _ = vm.memory()
        if len(source) <= self._layout.source_bytes:
            ctypes.memmove(base + self._layout.source, source, len(source))
            return vm.call(vm.export(_GO).func, len(source), seed)
        address, trap = vm.call(vm.export(_ALLOC).func, len(source) + 1)
        if trap is not None or not address:
            return _GUEST_MEMORY, None
        address &= 0xFFFFFFFF
        base, size = vm.memory()
        if address + len(source) >= size:
            return 0, -1
        ctypes.memmove(base + address, source, len(source))
        return vm.call(vm.export(_RUN).func, address, len(source), seed)

    def _conclude(self, vm: capi.Instance, run: _Run, status: int, trap: int | None) -> VmResult:
        """Collect what is still in the guest's buffers, then decide the ending. A trap leaves both readable."""
        base, _ = vm.memory()
        failed = bool(_Io.from_address(base + self._layout.io).out_of_memory)
        for number, place, length in run.waiting(base):
            if length:
                run.take(number, place, length)
        ending = run.verdict or _ending(status, trap, allocation_failed=failed)
        if ending is Ending.DEADLINE and run.cancelled:
            ending = Ending.CANCELLED
        if ending in _LAST_WORDS:
            run.say(_LAST_WORDS[ending])
        return run.result(ending, EXIT_CODES.get(ending, status))

    # -- host calls: they answer or set a flag, and never raise ----------------------------------------------

    def _answer(self, action: Callable[[_Run], None]) -> int:
        """Run the body of a host call. 0, or the address of a trap when the run must end."""
        run = self._run
        if run is None:
            return capi.new_trap(b"no run")
        try:
            run.count_call()
            if run.verdict is None:
                action(run)
        except BaseException:  # noqa: BLE001  an exception here would be lost, and the run would go on
            run.stop(Ending.TRAP)
        return 0 if run.verdict is None else capi.new_trap(b"stopped")

    def _epoch_over(self, _context: object, _data: object, epochs: Any, how: Any) -> int:
        """Say whether the guest of a watched run may go on."""
        run = self._run
        if run is None:
            return capi.new_error(b"no run")
        try:
            run.look()
            epochs[0], how[0] = 1, capi.GO_ON
        except BaseException:  # noqa: BLE001  as in a host call
            run.stop(Ending.TRAP)
        return 0 if run.verdict is None else capi.new_error(b"stopped")

    def _host_flush(self, _env: int, _caller: int, raw: int, _count: int) -> int:
        def action(run: _Run) -> None:
            number, address, length = (_unsigned(raw + i * _RAW) for i in range(3))
            ctypes.c_int32.from_address(raw).value = run.flush(number, address, length)

        return self._answer(action)

    def _host_now(self, _env: int, _caller: int, raw: int, _count: int) -> int:
        def action(run: _Run) -> None:
            run.pace()
            ctypes.c_int64.from_address(raw).value = self._wall_clock_ns() // 1000

        return self._answer(action)

    def _host_call(self, _env: int, _caller: int, raw: int, _count: int) -> int:
        def action(run: _Run) -> None:
            address, length = (_unsigned(raw + i * _RAW) for i in range(2))
            ctypes.c_int32.from_address(raw).value = run.call(address, length)

        return self._answer(action)

    def _host_take(self, _env: int, _caller: int, raw: int, _count: int) -> int:
        def action(run: _Run) -> None:
            address, length = (_unsigned(raw + i * _RAW) for i in range(2))
            ctypes.c_int32.from_address(raw).value = run.take_reply(address, length)

        return self._answer(action)


def _unsigned(place: int) -> int:
    """An i32 that the guest means as an address or a length."""
    return ctypes.c_uint32.from_address(place).value


def _ending(status: int, trap: int | None, *, allocation_failed: bool) -> Ending:
    if trap is None and status in _GUEST_CODES:
        return Ending.FINISHED
    if trap is None and status == _GUEST_MEMORY:
        return Ending.MEMORY
    if trap == capi.TrapCode.INTERRUPT:
        return Ending.DEADLINE
    if trap == capi.TrapCode.STACK_OVERFLOW:
        return Ending.STACK
    return Ending.MEMORY if allocation_failed else Ending.TRAP


def compile_module(wasm: bytes, config: EngineConfig) -> bytes:
    """Machine code for `wasm`, serialised: about 2 s, on this thread alone."""
    engine = config.new_engine()
    try:
        module = capi.compile_module(engine, wasm)
        try:
            return capi.serialize(module)
        finally:
            capi.delete_module(module)
    finally:
        capi.delete_engine(engine)
