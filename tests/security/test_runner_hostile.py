"""S11, S12: programs that attack their limits, and runners that are stopped, killed or shared. Others are never harmed."""

import asyncio
import mmap
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from plimsoll.contract.tiers import Tier
from providers.seam import Break, Finish
from providers.wasm import handle, protocol, rest, zygote
from providers.wasm.handle import KILL_GRACE_S, Runner
from providers.wasm.pool import DEATHS, LOOK_S, Unconfined
from providers.wasm.provider import WasmProvider
from tests.support.wasm_in_process import InProcess, opened, unopened

pytestmark = [pytest.mark.component("wasm"), pytest.mark.component("seccomp")]

SLACK_S = 20.0
"""Of a busy machine: what is never ended takes longer, and the lower bounds say that nothing ends too soon."""
A, B = "a" * 32, "b" * 32


@pytest.fixture
def forked(cache_dir: Path) -> WasmProvider:
    return unopened(cache_dir)


@pytest.fixture
async def wasm(forked: WasmProvider) -> AsyncIterator[InProcess]:
    async with opened(forked) as each:
        assert each.findings.tier is Tier.PROCESS
        yield each


LOOPS = (
    "for (;;);",
    "/(a+)+$/.test('a'.repeat(40) + 'b')",
    "new Array(1e5).fill(0).sort(() => { for (;;); })",
    "const f = () => Promise.resolve().then(f); f(); await new Promise(() => {})",
    "for (;;) try { for (;;); } catch {} finally { continue }",
    "for (;;) Date.now()",
)


@pytest.mark.parametrize("code", LOOPS)
async def test_a_program_that_never_ends_ends_at_its_deadline(wasm: InProcess, code: str) -> None:
    start = time.monotonic()
    steps = await wasm.run(code, timeout_ms=150)
    took = time.monotonic() - start
    assert (steps.finish.exit_code, steps.finish.timed_out) == (124, True)
    assert 0.15 <= took <= 0.15 + KILL_GRACE_S + SLACK_S
    assert (await wasm.run("console.log(1)")).stdout == b"1\n"


MEMORY = (
    "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))",
    "let s = 'x'; for (;;) s += s",
    "const all = []; for (;;) all.push({})",
    "new Array(1e9).fill(0)",
)


@pytest.mark.parametrize("code", MEMORY)
async def test_a_program_that_eats_memory_stays_under_the_cap(wasm: InProcess, code: str) -> None:
    await wasm.run("console.log(1)")
    runner = wasm.runner_of(A)
    before = kib(runner.pid, "VmRSS")
    finish = (await wasm.run(code, timeout_ms=20_000)).finish
    assert (finish.exit_code, finish.oom_killed) == (137, True) or finish.exit_code == 1, finish
    assert not finish.timed_out
    assert wasm.runner_of(A) is runner
    assert kib(runner.pid, "VmHWM") - before <= (64 + 8) * 1024


def kib(pid: int, name: str) -> int:
    """One figure of a process's memory."""
    return int(Path(f"/proc/{pid}/status").read_text().split(f"{name}:")[1].split()[0])


async def test_recursion_is_an_error_the_program_can_catch(wasm: InProcess) -> None:
    steps = await wasm.run("try { (function f() { f() })() } catch (e) { console.log(e.name) }")
    assert (steps.stdout, steps.finish.exit_code) == (b"RangeError\n", 0)


async def test_nesting_beyond_the_native_stack_ends_only_the_run(wasm: InProcess) -> None:
    steps = await wasm.run("JSON.parse('['.repeat(1e6))")
    assert steps.finish.exit_code == 1
    assert (await wasm.run("console.log(1)")).stdout == b"1\n"


@pytest.mark.parametrize("size", [1023, 1024, 1025])
async def test_output_around_the_cap_is_exact(wasm: InProcess, size: int) -> None:
    steps = await wasm.run(f"console.log('x'.repeat({size} - 1))", cap=1024)
    assert len(steps.stdout) == min(size, 1024)
    assert steps.finish.stdout_truncated is (size > 1024)
    assert (steps.finish.exit_code, steps.finish.stderr_truncated) == (0, False)


async def test_endless_printing_is_ended(wasm: InProcess) -> None:
    steps = await wasm.run("for (;;) console.error('x'.repeat(1000))", timeout_ms=20_000)
    assert (steps.finish.exit_code, steps.finish.timed_out) == (153, False)
    assert (len(steps.stderr), steps.finish.stderr_truncated) == (65_536, True)


async def test_large_output_arrives_whole_and_in_order(wasm: InProcess) -> None:
    code = "for (let i = 0; i < 6000; i++) { console.log('o' + i); if (i % 2) console.error('e' + i) }"
    steps = await wasm.run(code)
    assert steps.stdout == b"".join(b"o%d\n" % i for i in range(6000))
    assert steps.stderr == b"".join(b"e%d\n" % i for i in range(1, 6000, 2))


async def test_a_large_program_reaches_the_runner_whole(wasm: InProcess) -> None:
    steps = await wasm.run(f"const s = '{'é' * 120_000}'; console.log(s.length)")
    assert steps.stdout == b"120000\n"


async def test_our_own_protocol_in_output_is_plain_output(wasm: InProcess) -> None:
    steps = await wasm.run("console.log('\\u0000\\u0000\\u0000\\u0000\\u0004' + '\\u0000'.repeat(8))")
    assert steps.stdout == b"\0\0\0\0\4" + b"\0" * 8 + b"\n"


# --- runners ----------------------------------------------------------------------------------------------------------------


async def _two_runs(wasm: InProcess, *, timeout_ms: int) -> tuple[asyncio.Task[object], asyncio.Task[object]]:
    """An endless run of A and a patient one of B, both running."""
    harmed = asyncio.create_task(wasm.run("for (;;);", tenant=A, timeout_ms=timeout_ms))
    other = asyncio.create_task(
        wasm.run("const end = Date.now() + 500; while (Date.now() < end); console.log('fine')", tenant=B)
    )
    await asyncio.sleep(0.1)
    return harmed, other


async def test_a_killed_runner_breaks_its_own_run_only(wasm: InProcess) -> None:
    harmed, other = await _two_runs(wasm, timeout_ms=10_000)
    os.kill(wasm.runner_of(A).pid, signal.SIGKILL)
    assert (await harmed).last == Break("runner_died")  # type: ignore[attr-defined]
    assert (await other).stdout == b"fine\n"  # type: ignore[attr-defined]
    assert (await wasm.run("console.log(1)")).stdout == b"1\n"


async def stopped(pid: int) -> None:
    """Every thread of it: a signal is only on its way when `kill` returns."""
    os.kill(pid, signal.SIGSTOP)
    while any(
        (task / "stat").read_text().rpartition(")")[2].split()[0] != "T"
        for task in Path(f"/proc/{pid}/task").iterdir()  # noqa: ASYNC240  # a test
    ):
        await asyncio.sleep(0.001)


async def test_a_stopped_runner_is_dead_by_its_deadline_and_a_tenth(wasm: InProcess) -> None:
    start = time.monotonic()
    harmed, other = await _two_runs(wasm, timeout_ms=400)
    runner = wasm.runner_of(A)
    await stopped(runner.pid)
    finish = (await harmed).finish  # type: ignore[attr-defined]
    took = time.monotonic() - start
    assert (finish.exit_code, finish.timed_out) == (124, True)
    assert (finish.stdout_truncated, finish.stderr_truncated) == (True, True)
    assert 0.4 + KILL_GRACE_S <= took <= 0.4 + KILL_GRACE_S + SLACK_S
    async with asyncio.timeout(SLACK_S):
        await runner.ended.wait()
    assert (await other).stdout == b"fine\n"  # type: ignore[attr-defined]


async def test_a_stopped_runner_is_dead_a_tenth_after_its_cancel(wasm: InProcess) -> None:
    harmed, other = await _two_runs(wasm, timeout_ms=20_000)
    runner = wasm.runner_of(A)
    await stopped(runner.pid)
    (run_id,) = (name for name, course in wasm.provider._courses.items() if course and course[0] is runner)
    start = time.monotonic()
    wasm.provider.cancel(run_id)
    finish = (await harmed).finish  # type: ignore[attr-defined]
    took = time.monotonic() - start
    assert finish == Finish(130, cancelled=True, stdout_truncated=True, stderr_truncated=True)
    assert KILL_GRACE_S <= took <= KILL_GRACE_S + SLACK_S
    async with asyncio.timeout(SLACK_S):
        await runner.ended.wait()
    assert (await other).stdout == b"fine\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", LOOPS)
async def test_a_cancel_ends_any_program_and_keeps_its_output_and_its_runner(
    wasm: InProcess, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "KILL_GRACE_S", 5.0)  # a busy machine must not decide this
    harmed = asyncio.create_task(wasm.run(f"console.log(1); {code}", timeout_ms=20_000))
    await asyncio.sleep(0.1)
    runner, (run_id,) = wasm.runner_of(A), wasm.provider._courses
    start = time.monotonic()
    wasm.provider.cancel(run_id)
    steps = await harmed
    assert (steps.stdout, steps.last) == (b"1\n", Finish(130, cancelled=True))
    assert time.monotonic() - start <= KILL_GRACE_S + SLACK_S
    assert wasm.runner_of(A) is runner
    assert (await wasm.run("console.log(1)")).stdout == b"1\n"


async def test_an_idle_runner_that_dies_is_not_used(wasm: InProcess) -> None:
    await wasm.run("console.log(1)", tenant=A)
    runner = wasm.runner_of(A)
    os.kill(runner.pid, signal.SIGKILL)
    async with asyncio.timeout(SLACK_S):
        await runner.ended.wait()
    assert (await wasm.run("console.log(2)", tenant=A)).stdout == b"2\n"


async def test_a_runner_found_dead_at_the_handover_is_never_taken_for_a_run_that_did_not_start(
    wasm: InProcess,
) -> None:
    for _ in range(10):
        await wasm.run("console.log(1)", tenant=A)
        os.kill(wasm.runner_of(A).pid, signal.SIGKILL)  # not noticed yet
        steps = await wasm.run("console.log(2)", tenant=A)
        assert steps.last == Break("runner_died") or steps.stdout == b"2\n"


async def test_two_tenants_never_share_a_runner(wasm: InProcess) -> None:
    served: dict[int, set[str | None]] = {}
    for turn in range(60):
        tenant = f"{turn % 7:032x}"
        await wasm.run("console.log(1)", tenant=tenant)
        for runner in wasm.pool.runners:
            served.setdefault(runner.pid, set()).add(runner.tenant)
    assert all(len(tenants - {None}) <= 1 for tenants in served.values())
    assert len(wasm.pool.runners) <= 4 + 4


async def test_one_tenants_runs_share_a_warm_runner(wasm: InProcess) -> None:
    for _ in range(10):
        await wasm.run("console.log(1)", tenant=A)
    assert wasm.runner_of(A).runs == 10


async def test_nothing_of_a_run_is_left_for_the_next_of_the_same_tenant(wasm: InProcess) -> None:
    await wasm.run("globalThis.left = 1; Object.prototype.left = 1; Math.random = () => 4")
    steps = await wasm.run("console.log(typeof left, typeof {}.left, Math.random() === 4)")
    assert steps.stdout == b"undefined undefined false\n"


async def test_a_thousand_first_random_numbers_are_distinct(wasm: InProcess) -> None:
    seen = {
        (await wasm.run("console.log(Math.random())", tenant=f"{n % 3:032x}")).stdout for n in range(1_000)
    }
    assert len(seen) == 1_000


async def test_as_many_runs_at_once_as_there_are_slots_never_wait_for_each_other(wasm: InProcess) -> None:
    start = time.monotonic()
    steps = await asyncio.gather(
        *(wasm.run("for (;;);", tenant=f"{n:032x}", timeout_ms=500) for n in range(4))
    )
    assert all(each.finish.timed_out for each in steps)
    assert time.monotonic() - start <= 0.5 + KILL_GRACE_S + 2 * SLACK_S


async def test_a_runner_is_replaced_after_its_share_of_runs(wasm: InProcess) -> None:
    wasm.pool._runs_each = 5
    pids = set()
    for _ in range(12):
        await wasm.run("console.log(1)", tenant=A)
        pids |= {each.pid for each in wasm.pool.runners if each.tenant == A}
    assert len(pids) >= 2


async def test_idle_runners_are_let_go_and_spare_ones_kept(wasm: InProcess) -> None:
    wasm.pool._idle_s = 0.2
    wasm.pool._wanted.set()
    await wasm.run("console.log(1)", tenant=A)
    await asyncio.sleep(0.6)
    assert [each for each in wasm.pool.runners if each.tenant] == []
    assert len(wasm.pool.runners) == wasm.pool._spare


# --- runners that die before they are used --------------------------------------------------------------------------------


class Deaths:
    """Kills new runners between their report and the look at them, as many as `left`."""

    def __init__(self, wasm: InProcess, left: int) -> None:
        self._look = wasm.pool._check
        self.left, self.done = left, 0
        wasm.pool._check = self

    def __call__(self, runner: Runner, report: Mapping[str, Any]) -> str | None:
        if self.left > 0:
            self.left, self.done = self.left - 1, self.done + 1
            os.kill(runner.pid, signal.SIGKILL)
            while Path(f"/proc/{runner.pid}/status").exists():
                time.sleep(0.001)
        return self._look(runner, report)


async def test_a_new_runner_that_dies_before_it_was_looked_at_says_nothing_of_the_wall(
    wasm: InProcess,
) -> None:
    for runner in wasm.pool.runners:
        runner.kill("test")
    deaths = Deaths(wasm, 2)
    assert (await wasm.run("console.log(1)", tenant=A)).stdout == b"1\n"
    assert (deaths.done, wasm.dropped) == (2, [])
    deaths.left = 2
    assert (await wasm.provider.collect()).tier is Tier.PROCESS
    assert wasm.dropped == []


async def test_a_new_runner_that_lives_and_lacks_a_fact_still_drops_the_wall_at_once(wasm: InProcess) -> None:
    wasm.pool._check = lambda _runner, _report: "seccomp_missing"
    with pytest.raises(Unconfined):
        await wasm.pool.fork()
    assert wasm.dropped[0] == "seccomp_missing"
    assert not any(each.runs == 0 and each.tenant for each in wasm.pool.runners)


async def test_when_every_new_runner_dies_that_is_said_and_no_storm_of_forks_comes_of_it(
    wasm: InProcess,
) -> None:
    deaths = Deaths(wasm, 1_000)
    for runner in wasm.pool.runners:
        runner.kill("test")
    found = await wasm.provider.collect()
    assert (found.tier, bool(found.faults)) == (Tier.NONE, True)
    await asyncio.sleep(3)
    assert "runners_die" in wasm.dropped
    assert deaths.done < 4 * DEATHS


# --- runners that somebody took over --------------------------------------------------------------------------------------

HELD: list[mmap.mmap] = []
FLAGS = {"private": mmap.MAP_PRIVATE, "shared": mmap.MAP_SHARED, "growing": mmap.MAP_PRIVATE | 0x100}


def _eat(kind: str) -> bytes:
    """As much memory as there is to be had, and kept; how many MiB that was."""
    try:
        while len(HELD) < 128:
            HELD.append(mmap.mmap(-1, 8 << 20, flags=mmap.MAP_ANONYMOUS | FLAGS[kind]))
            for at in range(0, 8 << 20, mmap.PAGESIZE):
                HELD[-1][at] = 1
    except OSError:
        pass
    return str(8 * len(HELD)).encode()


def taken_over(load: Any) -> Any:
    """The fork server's loader, after which a program that begins with `//` is done by the runner itself, outside any VM."""

    def loaded(settings: zygote.ZygoteSettings) -> Any:
        from providers.wasm import runner  # noqa: PLC0415  # not in the host's process

        answer, honest = load(settings), runner._run

        def run(sock: Any, *order: Any) -> None:
            number, payload = order[-2:]
            word, _, kind = payload[protocol.RUN.size :].decode().partition(":")
            said = _eat(kind) if word == "//eat" else b"spun"
            end = protocol.frame(
                protocol.Kind.END, number, protocol.END.pack(0, 0, 0) + protocol.pieces_bytes([(1, said)])
            )
            if not word.startswith("//"):
                honest(sock, *order)
                return
            sock.sendall(end)
            while word == "//spin":
                pass

        vars(runner)["_run"] = run
        return answer

    return loaded


@pytest.fixture
async def hostile(hostile_forked: WasmProvider) -> AsyncIterator[InProcess]:
    async with opened(hostile_forked) as each:
        assert each.findings.tier is Tier.PROCESS
        yield each


@pytest.fixture
def hostile_forked(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> WasmProvider:
    monkeypatch.setattr(zygote, "_load", taken_over(zygote._load))
    return unopened(cache_dir)


@pytest.mark.parametrize(("kind", "most_mib"), [("private", 64 + 128), ("shared", 0), ("growing", 0)])
async def test_a_runner_that_was_taken_over_has_a_memory_cap_of_its_own_and_keeps_nothing_after_its_end(
    hostile: InProcess, kind: str, most_mib: int
) -> None:
    steps = await hostile.run(f"//eat:{kind}", tenant=A, timeout_ms=20_000)
    assert int(steps.stdout) <= most_mib
    assert (int(steps.stdout) > 64) is (kind == "private")
    await asyncio.sleep(2 * LOOK_S)
    left = [each for each in hostile.pool.runners if each.tenant == A]
    assert all(rest.private_bytes(each.pid) - each.private_bytes < 16 << 20 for each in left)
    assert (len(left) == 0) is (kind == "private")
    assert (await hostile.run("console.log(1)", tenant=A)).stdout == b"1\n"


async def test_a_runner_that_goes_on_after_its_end_is_gone_within_a_second_and_gets_no_other_run(
    hostile: InProcess,
) -> None:
    assert (await hostile.run("//spin", tenant=A)).stdout == b"spun"
    assert (await hostile.run("//spin", tenant=B)).stdout == b"spun"
    runners = [hostile.runner_of(tenant) for tenant in (A, B)]
    while rest.cpu_ns(runners[0].pid) - runners[0].rest_cpu_ns <= rest.CPU_NS:
        await asyncio.sleep(0.01)
    assert (await hostile.run("console.log(1)", tenant=A)).stdout == b"1\n"
    async with asyncio.timeout(LOOK_S + SLACK_S):
        for runner in runners:
            await runner.ended.wait()


async def test_an_honest_runner_is_left_alone_after_runs_that_took_all_they_could(
    wasm: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "KILL_GRACE_S", 5.0)  # a busy machine must not decide this
    await wasm.run("console.log(1)")
    runner = wasm.runner_of(A)
    for code in (*MEMORY, *LOOPS[:2], "for (;;) console.log('x'.repeat(1000))"):
        await wasm.run(code, timeout_ms=5_000 if code in MEMORY else 200)
        await asyncio.sleep(0.2)
    await asyncio.sleep(2 * LOOK_S)
    assert wasm.runner_of(A) is runner


@pytest.fixture
def roomy(cache_dir: Path) -> WasmProvider:
    return unopened(cache_dir, memory_mb=256)


async def test_the_cap_of_the_process_leaves_a_program_all_of_its_own(roomy: WasmProvider) -> None:
    fill = "const all = []; try { for (;;) all.push(new Uint8Array(1 << 20).fill(1)) } catch {} "
    async with opened(roomy) as wasm:
        for _ in range(3):
            steps = await wasm.run(fill + "console.log(all.length)", timeout_ms=20_000)
            assert int(steps.stdout) >= 124
