"""Figures without HTTP: one VM in this process, the pool of runners, its limits."""

import asyncio
import itertools
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import quickjs  # type: ignore[import-untyped]

from plimsoll.contract.requests import JavaScript
from plimsoll.contract.worker import Out
from providers.seam import Finish, Order, Step
from providers.wasm.pool import Pool as Runners
from providers.wasm.protocol import END, RUN, Kind, Reader, frame, pieces_bytes, pieces_of
from providers.wasm.provider import WasmProvider
from providers.wasm.runner import Orders
from providers.wasm.vm import MIB, Engine
from tests.bench.processes import resident
from tests.bench.report import Figure, Report
from tests.bench.sampling import Operation, Series, Timed, interleaved

PROGRAM = "console.log(1+1)"
SOURCE = PROGRAM.encode()
CAP = 64 * 1024
_BOMB = "const all = []; for (;;) all.push([1, 2, 3, 4, 5, 6, 7, 8])"
_PATIENCE_NS = 10**10


@dataclass(slots=True)
class Pool:
    """The wasm provider in this process, as its host drives it."""

    provider: WasmProvider
    _ids: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def runners(self) -> Runners:
        """The provider's own pool."""
        if self.provider._pool is None:
            raise RuntimeError("the pool is closed")
        return self.provider._pool

    async def steps(self, program: str, timeout_ms: int = 10_000) -> list[Step]:
        """Run one program of the same tenant every time."""
        order = Order(f"{next(self._ids):032x}", "bench", JavaScript(program), timeout_ms, CAP)
        return [step async for step in self.provider.run(order)]

    async def run(self) -> None:
        """One run of the usual program, checked."""
        _, out, end = await self.steps(PROGRAM)
        if not (isinstance(out, Out) and out.data == b"2\n" and end == Finish(0)):
            raise RuntimeError("the pool answered wrongly")


@asynccontextmanager
async def opened(provider: WasmProvider) -> AsyncIterator[Pool]:
    """The provider, ready: its spares are forked."""
    try:
        await provider.open(lambda fault: print(f"dropped: {fault}"))
        pool = Pool(provider)
        await pool.run()
        await asyncio.sleep(0.3)
        yield pool
    finally:
        await provider.close()


def vm_operation(engine: Engine) -> Operation:
    """A fresh VM in this process, with what a runner does around it."""

    async def run() -> None:
        deadline_ns = time.monotonic_ns() + _PATIENCE_NS
        if engine.run(SOURCE, deadline_ns=deadline_ns, seed=os.urandom(8)).stdout != b"2\n":
            raise RuntimeError("the VM answered wrongly")

    return run


async def native() -> None:
    """QuickJS without a wall: a new context that prints into a list."""
    printed: list[object] = []
    context = quickjs.Context()
    context.add_callable("print", printed.append)
    context.eval("print(1+1)")
    if printed != [2]:
        raise RuntimeError("native QuickJS answered wrongly")


@asynccontextmanager
async def echo() -> AsyncIterator[Operation]:
    """A run's frames to another process and back, made and read as by host and runner, with nothing in between."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _echo(theirs)
    theirs.close()
    try:
        yield lambda: _exchange(ours)
    finally:
        ours.close()
        await asyncio.to_thread(os.waitpid, pid, 0)


async def _exchange(sock: socket.socket) -> None:
    deadline_ns = time.monotonic_ns() + _PATIENCE_NS
    sock.sendall(frame(Kind.RUN, 1, RUN.pack(deadline_ns, 64 * MIB, CAP, 0) + SOURCE))
    for kind, _, payload in Reader().feed(sock.recv(4096)):
        if kind != Kind.END or [*pieces_of(memoryview(payload)[END.size :])] != [(1, b"2\n")]:
            raise RuntimeError("the other process answered wrongly")


def _echo(sock: socket.socket) -> None:
    try:
        orders = Orders(sock)
        while orders.next() is not None:
            sock.sendall(frame(Kind.END, 1, END.pack(0, 0, 0) + pieces_bytes([(1, b"2\n")])))
    finally:
        os._exit(0)


@asynccontextmanager
async def bare_runner(pool: Pool) -> AsyncIterator[Operation]:
    """A run in a real runner whose socket is read directly: what the host's event loop adds is missing."""
    runner = await pool.runners.fork()
    sock = runner._sock
    asyncio.get_running_loop().remove_reader(sock)
    sock.settimeout(10)
    try:
        yield lambda: _exchange(sock)
    finally:
        runner.kill("measured")


async def vm_and_pool(report: Report, engine: Engine, pool: Pool, rounds: int) -> Timed:
    """Figures 1 and 2; what a run through the pool took."""
    async with echo() as bounce, bare_runner(pool) as alone_in_runner:
        operations = {
            "vm": vm_operation(engine),
            "native": native,
            "pool": pool.run,
            "echo": bounce,
            "alone": alone_in_runner,
        }
        timed = await interleaved(operations, rounds=rounds)
    vm, plain, through, back, alone = (timed[name] for name in operations)
    one = report.figure(1, f"A fresh VM in the runner's process against native QuickJS: {PROGRAM}")
    for name, each in (("fresh VM", vm), ("native context + eval", plain)):
        one.line(f"{name}, CPU", each.cpu)
        one.line(f"{name}, wall", each.wall)
    one.value("CPU ratio of medians", vm.cpu.p50 / plain.cpu.p50, at_most=1.0)
    one.value("CPU ratio of minimums", vm.cpu.least / plain.cpu.least)
    two = report.figure(2, "Through the pool against an echo between two processes + the VM, wall")
    two.line("through the pool", through.wall)
    two.line("of that, CPU of the host's process", through.cpu)
    two.line("echo, same frames", back.wall)
    two.line("fresh VM (figure 1)", vm.wall)
    two.line("one runner, asked without an event loop", alone.wall)
    two.value("ratio of medians", through.wall.p50 / (back.wall.p50 + vm.wall.p50), at_most=1.5)
    two.value("ratio of minimums", through.wall.least / (back.wall.least + vm.wall.least))
    two.value("against one runner asked without an event loop", through.wall.p50 / alone.wall.p50)
    return through


async def throughput(figure: Figure, pool: Pool, *, slices: int, seconds: float) -> None:
    """Runs a second in the pool with 1, 2 and 8 runners, in turn."""
    rates = {runners: Series() for runners in (1, 2, 8)}
    for _ in range(slices):
        for runners, series in rates.items():
            series.values.append(await _rate(pool, runners, seconds))
    for runners, series in rates.items():
        figure.line(f"pool, {runners} runner{'s' * (runners > 1)}", series, "runs/s")
    figure.value("pool, 2 runners against 1", rates[2].most / rates[1].most, at_least=1.8)


async def _rate(pool: Pool, runners: int, seconds: float) -> float:
    began, done = time.perf_counter(), 0

    async def loop() -> None:
        nonlocal done
        while time.perf_counter() - began < seconds:
            await pool.run()
            done += 1

    await asyncio.gather(*(loop() for _ in range(runners)))
    return done / (time.perf_counter() - began)


async def limits(figure: Figure, pool: Pool, engine_memory: int, times: int) -> None:
    """Figure 6: how late a deadline is, how far memory goes beyond its cap."""
    for timeout_ms, samples in ((50, times), (200, times // 2)):
        series = Series()
        for _ in range(samples):
            began = time.perf_counter_ns()
            *_, end = await pool.steps("for (;;);", timeout_ms)
            series.values.append((time.perf_counter_ns() - began) / 1e6 - timeout_ms)
            if not (isinstance(end, Finish) and end.timed_out):
                raise RuntimeError("an endless loop ended otherwise")
        figure.line(f"late after {timeout_ms} ms", series)
        figure.value(f"latest after {timeout_ms} ms", series.most, "ms", at_most=30)
    growth = Series([await _bomb(pool, engine_memory) for _ in range(max(2, times // 10))])
    figure.line("highest RSS of an allocation bomb", growth, "MiB")
    over = growth.most - engine_memory / MIB
    figure.value("beyond the cap", over, "MiB", at_most=8)


async def _bomb(pool: Pool, memory_bytes: int) -> float:
    """How much a fresh runner's RSS grows at most, MiB."""
    runner = await pool.runners.fork()
    try:
        before, _ = resident(runner.pid)
        course = runner.begin(1, _BOMB.encode(), timeout_ms=10_000, memory_bytes=memory_bytes, cap=CAP)
        while isinstance(step := await course.next(), Out):
            pass
        if not (isinstance(step, Finish) and step.oom_killed):
            raise RuntimeError("an allocation bomb ended otherwise")
        _, highest = resident(runner.pid)
        return (highest - before) / 1024
    finally:
        runner.kill("measured")
