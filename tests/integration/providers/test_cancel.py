"""A cancelled run keeps what it printed: the same output and the same flags as at a deadline, streamed or not."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from app.dispatch.supervisor import ProviderSupervisor, spawn
from plimsoll.contract.worker import Accepted, Broken, Ended, Out, TicketRefused
from tests.support.runs import alive, family, job, reserved, run, spec

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.component("wasm"),
    pytest.mark.component("seccomp"),
]
CAP = 65_536
SLOTS = 8
README = "console.log(1);for(;;);"
PRINTED_S = 2.0
"""By then every program here has printed all it will print, and only loops."""
SIZES = (0, 2, 100, 10_000, 60_000, 65_536, 65_537, 90_000, 300_000)


def printing(size: int) -> str:
    """A program that prints `size` bytes to stdout, some to stderr, and never ends. A cap cuts it within a character."""
    if not size:
        return "for (;;);"
    pairs, odd = divmod(size - 2, 2)
    return f"console.log('x' + 'é'.repeat({pairs}) + '{'z' * odd}'); console.error('e'); for (;;);"


def printed(size: int) -> bytes:
    """The bytes of it that are kept."""
    pairs, odd = divmod(size - 2, 2)
    return ("x" + "é" * pairs + "z" * odd + "\n").encode()[:CAP] if size else b""


@dataclass
class Heard:
    """What one run gave."""

    ended: Ended | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    broken: str = ""

    @property
    def kept(self) -> tuple[bytes, bytes, bool, bool]:
        """All that must not depend on how the run was ended."""
        assert self.ended, self.broken
        return self.stdout, self.stderr, self.ended.stdout_truncated, self.ended.stderr_truncated

    @property
    def why(self) -> tuple[int, bool, bool]:
        assert self.ended, self.broken
        return self.ended.exit_code, self.ended.timed_out, self.ended.cancelled


async def hear(
    wasm: ProviderSupervisor,
    code: str,
    *,
    stream: bool = False,
    timeout_ms: int = 20_000,
    cancel_after_s: float | None = None,
) -> Heard:
    """One run of its own tenant, cancelled so long after it was accepted."""
    heard, wanted = Heard(), spec(tenant=f"{random.getrandbits(128):032x}", timeout_ms=timeout_ms)
    asking: asyncio.Task[None] | None = None

    async def ask(after_s: float) -> None:
        await asyncio.sleep(after_s)
        await wasm.worker.cancel(wanted.run_id)

    ticket = await reserved(wasm.worker, wanted)
    async for event in wasm.worker.start(ticket, replace(job(wanted, code), stream=stream)):
        match event:
            case Accepted() if cancel_after_s is not None:
                asking = asyncio.create_task(ask(cancel_after_s))
            case Out(stream="stdout", data=data):
                heard.stdout += data
            case Out(data=data):
                heard.stderr += data
            case Ended():
                heard.ended = event
            case Broken(cause=cause):
                heard.broken = cause
            case _:
                pass
    if asking:
        await asking
    return heard


def patient(place: Path) -> ProviderSupervisor:
    """A provider that kills late, so that a busy machine costs no output."""
    settings = {"cache_dir": str(place), "slots": SLOTS}
    return ProviderSupervisor(spawn("wasm", settings, module="tests.support.patient_wasm"))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def wasm(place: Path) -> AsyncIterator[ProviderSupervisor]:
    async with patient(place) as supervisor:
        assert await supervisor.wait_first_evidence(timeout_s=60)
        yield supervisor


@pytest.mark.parametrize("size", SIZES)
async def test_output_and_flags_are_the_same_however_a_run_is_ended(
    wasm: ProviderSupervisor, size: int
) -> None:
    code = printing(size)
    late, late_streamed, ended, ended_streamed = await asyncio.gather(
        hear(wasm, code, timeout_ms=int(PRINTED_S * 1000)),
        hear(wasm, code, timeout_ms=int(PRINTED_S * 1000), stream=True),
        hear(wasm, code, cancel_after_s=PRINTED_S),
        hear(wasm, code, cancel_after_s=PRINTED_S, stream=True),
    )
    assert late.kept == (printed(size), b"e\n" if size else b"", size > CAP, False)
    assert late_streamed.kept == ended.kept == ended_streamed.kept == late.kept
    assert late.why == late_streamed.why == (124, True, False)
    assert ended.why == ended_streamed.why == (130, False, True)


async def test_a_cancelled_run_costs_its_caller_no_warm_runner(wasm: ProviderSupervisor) -> None:
    before = set(family(wasm.pid))
    for _ in range(5):
        wanted = spec(timeout_ms=20_000)
        events = wasm.worker.start(await reserved(wasm.worker, wanted), job(wanted, README))
        await anext(events)
        await asyncio.sleep(0.02)
        await wasm.worker.cancel(wanted.run_id)
        last = [event async for event in events][-1]
        assert isinstance(last, Ended)
        assert last.cancelled
    assert (await run(wasm.worker, "console.log('on')")).stdout == b"on\n"
    assert len(set(family(wasm.pid)) - before) <= 2, "the first run took a spare one, which was replaced"


async def test_200_cancels_at_random_moments_leave_no_slot_taken_and_no_process(
    wasm: ProviderSupervisor,
) -> None:
    dice = random.Random(11)
    outcomes = {"cancelled": 0, "finished": 0, "refused": 0}
    known: set[int] = set()

    async def one(turn: int) -> None:
        patience = dice.choice((0, 1, 3, 8, 15))
        waits = f"const end = Date.now() + {patience}; while (Date.now() < end);"
        code = README if turn % 2 else f"console.log(1); {waits}"
        wanted = spec(tenant=f"{turn % 5:032x}", timeout_ms=20_000)
        ticket = await reserved(wasm.worker, wanted)

        async def follow() -> tuple[bytes, object]:
            stdout, last = b"", None
            what = replace(job(wanted, code), stream=turn % 3 == 0)
            async for event in wasm.worker.start(ticket, what):
                stdout += event.data if isinstance(event, Out) else b""
                last = event
            return stdout, last

        following = asyncio.create_task(follow())
        await asyncio.sleep(dice.random() / 50)
        await wasm.worker.cancel(wanted.run_id)
        try:
            stdout, last = await asyncio.wait_for(following, 15)
        except TicketRefused:
            outcomes["refused"] += 1
            return
        assert isinstance(last, Ended), last
        assert (last.exit_code, last.cancelled) in {(130, True), (0, False)}
        assert (last.stdout_truncated, last.stderr_truncated) == (False, False)
        assert stdout in ({b"1\n", b""} if last.cancelled else {b"1\n"})
        outcomes["cancelled" if last.cancelled else "finished"] += 1

    for first in range(0, 200, SLOTS):
        await asyncio.gather(*(one(turn) for turn in range(first, first + SLOTS)))
        known |= set(family(wasm.pid))
    assert (await wasm.worker.info()).free == SLOTS
    assert sum(outcomes.values()) == 200
    assert outcomes["cancelled"] >= 50
    assert (await run(wasm.worker, "console.log('on')")).stdout == b"on\n"
    assert not {pid for pid in known - set(family(wasm.pid)) if alive(pid)}


async def test_runs_that_are_cancelled_during_a_drain_keep_their_output(place: Path) -> None:
    async with patient(place) as wasm:
        assert await wasm.wait_first_evidence(timeout_s=60)
        codes = (README, printing(60_000), printing(90_000))
        programs = [(code, stream) for code in codes for stream in (False, True)]
        runs = [
            asyncio.create_task(hear(wasm, code, stream=stream, cancel_after_s=PRINTED_S))
            for code, stream in programs
        ]
        await asyncio.sleep(PRINTED_S / 2)
        await wasm.worker.drain()
        heard = await asyncio.gather(*runs)
    assert {each.why for each in heard} == {(130, False, True)}
    small, medium = (b"1\n", b"", False, False), (printed(60_000), b"e\n", False, False)
    large = (printed(90_000), b"e\n", True, False)
    assert [each.kept for each in heard] == [small, small, medium, medium, large, large]
