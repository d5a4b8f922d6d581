"""Output on its way: the first of it is at the API while the program still runs, and what was given is what the run printed."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import pytest_asyncio

from app.dispatch.link import WorkerLink
from app.dispatch.supervisor import ProviderSupervisor, spawn
from plimsoll.contract.worker import Broken, Ended, Out
from providers.seam import Break, Finish
from providers.wasm.capture import LOOK_NS
from providers.wasm.forks import Forked
from providers.wasm.handle import Runner, State
from providers.wasm.protocol import END, Kind, frame, pieces_bytes
from tests.support.runs import family, job, reserved, spec

pytestmark = pytest.mark.asyncio(loop_scope="module")
wasm_only = [pytest.mark.component("wasm"), pytest.mark.component("seccomp")]
CAP = 65_536
BUSY = "const busy = (n = 1e6) => { let x = 0; for (let i = 0; i < n; i++) x += i % 7; return x };"
"""About 50 ms of computing without a host call."""


@dataclass
class Streamed:
    """What came of one run, and when."""

    outs: list[tuple[float, Out]] = field(default_factory=list)
    last: Ended | Broken | None = None
    ended_s: float = 0.0

    def text(self, stream: str) -> bytes:
        return b"".join(out.data for _, out in self.outs if out.stream == stream)

    @property
    def ended(self) -> Ended:
        assert isinstance(self.last, Ended), self.last
        return self.last

    def outcome(self) -> tuple[object, ...]:
        """All that must not depend on how the output travelled."""
        end = replace(self.ended, unix_ms=0, duration_ms=0)
        return self.text("stdout"), self.text("stderr"), end


async def streamed(
    worker: WorkerLink,
    code: str,
    *,
    stream: bool = True,
    timeout_ms: int = 20_000,
    seen: Streamed | None = None,
) -> Streamed:
    seen = Streamed() if seen is None else seen
    wanted = spec(timeout_ms=timeout_ms)
    start = time.monotonic()
    async for event in worker.start(
        await reserved(worker, wanted), replace(job(wanted, code), stream=stream)
    ):
        match event:
            case Out():
                seen.outs.append((time.monotonic() - start, event))
            case Ended() | Broken():
                seen.last, seen.ended_s = event, time.monotonic() - start
            case _:
                pass
    return seen


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def wasm(place: Path) -> AsyncIterator[ProviderSupervisor]:
    async with ProviderSupervisor(spawn("wasm", {"cache_dir": str(place), "slots": 4})) as supervisor:
        assert await supervisor.wait_first_evidence(timeout_s=60)
        yield supervisor


class TestPrograms:
    """Through a real provider process."""

    pytestmark = wasm_only

    @pytest.mark.parametrize(
        "pause", ["const end = Date.now() + 500; while (Date.now() < end);", f"{BUSY} busy(1e7)"]
    )
    async def test_the_first_chunk_arrives_before_the_second_print(
        self, wasm: ProviderSupervisor, pause: str
    ) -> None:
        seen = await streamed(wasm.worker, f"console.log('first'); {pause}; console.log('second')")
        (first_s, first), (second_s, second) = seen.outs
        assert (first.data, second.data) == (b"first\n", b"second\n")
        assert second_s - first_s > 0.2

    async def test_characters_are_whole_again_when_the_chunks_are_joined(
        self, wasm: ProviderSupervisor
    ) -> None:
        code = f"{BUSY} for (let i = 0; i < 300; i++) {{ console.log('é漢😀'.repeat(17)); if (i % 50 == 0) busy() }}"
        seen = await streamed(wasm.worker, code)
        assert seen.text("stdout").decode() == ("é漢😀" * 17 + "\n") * 300
        assert len(seen.outs) > 3

    async def test_a_flood_of_10_mb_is_cut_at_the_cap_and_ended(self, wasm: ProviderSupervisor) -> None:
        seen = await streamed(wasm.worker, "const s = 'x'.repeat(10_000_000); for (;;) console.log(s)")
        assert (len(seen.text("stdout")), seen.ended.exit_code) == (CAP, 153)
        assert (seen.ended.stdout_truncated, seen.ended.timed_out) == (True, False)

    async def test_endless_tiny_output_comes_in_few_frames(self, wasm: ProviderSupervisor) -> None:
        seen = await streamed(wasm.worker, "for (;;) { console.log(1); Date.now() }", timeout_ms=500)
        assert len(seen.outs) <= seen.ended_s * 1e9 / LOOK_NS + CAP // (12 * 1024) + 2

    @pytest.mark.parametrize(
        "code",
        [
            *(
                f"{BUSY} console.log('x'.repeat(30_000)); busy(); console.log('é'.repeat(10)); busy(); "
                f"console.log('y'.repeat({CAP} + {by} - 30_000 - 1 - 21 - 1)); busy(); console.error('end')"
                for by in (-1, 0, 1)
            ),
            f"{BUSY} console.log('x'); busy(); throw new TypeError('bad')",
            f"{BUSY} console.log('x'); busy(); await new Promise(() => {{}})",
            f"{BUSY} console.error('x'); busy(); const a = []; for (;;) a.push([1, 2, 3])",
            f"{BUSY} console.log('x'); busy(); for (;;) console.log('x'.repeat(1000))",
        ],
    )
    async def test_the_outcome_is_the_same_streamed_or_not(self, wasm: ProviderSupervisor, code: str) -> None:
        plain = await streamed(wasm.worker, code, stream=False)
        assert (await streamed(wasm.worker, code)).outcome() == plain.outcome()

    async def test_small_output_comes_at_the_end_when_nobody_asked_for_a_stream(
        self, wasm: ProviderSupervisor
    ) -> None:
        seen = await streamed(wasm.worker, f"{BUSY} console.log('x'); busy(4e6)", stream=False)
        ((at_s, _),) = seen.outs
        assert seen.ended_s - at_s < 0.05

    async def test_a_deadline_keeps_what_came(self, wasm: ProviderSupervisor) -> None:
        seen = await streamed(wasm.worker, "console.log('x'); for (;;);", timeout_ms=300)
        assert (seen.text("stdout"), seen.ended.exit_code, seen.ended.timed_out) == (b"x\n", 124, True)
        assert seen.outs[0][0] < seen.ended_s

    async def test_a_runner_that_is_killed_breaks_the_run_after_its_chunks(
        self, wasm: ProviderSupervisor
    ) -> None:
        seen = Streamed()
        idle = set(family(wasm.pid))
        task = asyncio.create_task(streamed(wasm.worker, "console.log('x'); for (;;);", seen=seen))
        while not seen.outs:
            assert not task.done()
            await asyncio.sleep(0.01)
        for pid in _busiest(idle | set(family(wasm.pid))):
            os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(task, 5)
        assert (seen.text("stdout"), seen.last) == (b"x\n", Broken("runner_died"))
        assert (await streamed(wasm.worker, "console.log('on')")).text("stdout") == b"on\n"


def _busiest(pids: set[int]) -> list[int]:
    """The one process that computes: the runner of an endless program."""

    def ticks(pid: int) -> int:
        try:
            return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
        except OSError:
            return 0

    before = {pid: ticks(pid) for pid in pids}
    time.sleep(0.2)
    return [max(pids, key=lambda pid: ticks(pid) - before[pid])]


# --- a runner that lies about a watched run ---------------------------------------------------------------------------------

RUN = 7
TINY = frame(Kind.OUT, RUN, pieces_bytes([(1, b"x")]))
LIAR = """
import socket, sys, time
sock = socket.socket(fileno=int(sys.argv[1]))
sock.recv(1 << 16)
try:
    for _ in range(int(sys.argv[3])):
        time.sleep(float(sys.argv[4]))
        sock.sendall(bytes.fromhex(sys.argv[2]))
    sock.sendall(bytes.fromhex(sys.argv[5]))
except OSError:
    pass
time.sleep(60)
"""


@asynccontextmanager
async def liar(data: bytes, *, times: int, apart_s: float) -> AsyncIterator[Runner]:
    ours, theirs = socket.socketpair()
    end = frame(Kind.END, RUN, END.pack(0, 0, 0))
    words = [str(theirs.fileno()), data.hex(), str(times), str(apart_s), end.hex()]
    with theirs:
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-I", "-c", LIAR, *words], pass_fds=(theirs.fileno(),)
        )
    runner = Runner(Forked(process.pid, os.pidfd_open(process.pid), ours), lambda _: None)
    runner.state = State.IDLE
    try:
        yield runner
    finally:
        runner.kill("end of test")
        async with asyncio.timeout(5):
            await runner.ended.wait()
        process.wait()


async def outs_and_end(runner: Runner, *, watched: bool) -> tuple[list[Out], Finish | Break]:
    course = runner.begin(RUN, b"code", timeout_ms=10_000, memory_bytes=1 << 24, cap=1024, watched=watched)
    outs = []
    while isinstance(step := await course.next(), Out):
        outs.append(step)
    return outs, step


async def test_small_frames_as_far_apart_as_looks_are_taken() -> None:
    async with liar(TINY, times=5, apart_s=0.025) as runner:
        outs, end = await outs_and_end(runner, watched=True)
        assert (b"".join(out.data for out in outs), end) == (b"xxxxx", Finish(0))


@pytest.mark.parametrize(("watched", "apart_s"), [(True, 0.0), (True, 0.01), (False, 0.025)])
async def test_more_small_frames_than_there_were_looks_end_the_run(watched: object, apart_s: float) -> None:
    async with liar(TINY, times=10_000, apart_s=apart_s) as runner:
        outs, end = await outs_and_end(runner, watched=bool(watched))
        assert end == Break("runner_protocol")
        assert len(outs) < 40


async def test_one_frame_is_at_most_one_chunk_of_each_stream() -> None:
    mixed = frame(Kind.OUT, RUN, pieces_bytes([(2, b"e"), (1, b"o")] * 100))
    async with liar(mixed, times=1, apart_s=0.05) as runner:
        outs, _ = await outs_and_end(runner, watched=True)
        assert outs == [Out("stdout", b"o" * 100), Out("stderr", b"e" * 100)]
