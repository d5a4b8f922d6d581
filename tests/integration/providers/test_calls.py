"""Calls of a program in a VM, through a whole provider process, to a broker on a real socket; and runners that cheat."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.dispatch.link import WorkerLink
from app.dispatch.supervisor import ProviderSupervisor, spawn
from plimsoll.contract.requests import JavaScript, Kind, Python
from plimsoll.contract.worker import Ended, Health, Job, Out, TicketRefused
from tests.support import guest_calls
from tests.support.brokers import FakeBroker, calling, fake_broker
from tests.support.runs import Seen, family, follow, job, memory_holds, new_id, reserved, spec

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.component("wasm"),
    pytest.mark.component("seccomp"),
]
CALLS = 200
LATE_S = 2.0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def wasm(place: Path) -> AsyncIterator[ProviderSupervisor]:
    process = spawn("wasm", {"cache_dir": str(place), "memory_mb": 64, "slots": 4}, module="providers.main")
    async with ProviderSupervisor(process) as supervisor:
        info = await supervisor.wait_first_evidence(timeout_s=60)
        assert info
        assert info.health is Health.SERVING, info.faults
        yield supervisor


@pytest_asyncio.fixture(loop_scope="module")
async def broker(tmp_path: Path) -> AsyncIterator[FakeBroker]:
    async with fake_broker(tmp_path) as made:
        yield made


async def run(
    worker: WorkerLink, code: str, broker: FakeBroker | None, *, timeout_ms: int = 20_000, **how: Any
) -> Seen:
    return await calling(worker, JavaScript(code), broker, timeout_ms=timeout_ms, **how)


async def test_the_table_of_behaviour(wasm: ProviderSupervisor, broker: FakeBroker) -> None:
    seen = await run(wasm.worker, guest_calls.javascript(guest_calls.CASES), broker)
    assert (seen.stderr, seen.ended.exit_code) == (b"", 0)
    guest_calls.check(guest_calls.CASES, seen.stdout)


async def test_without_a_grant_there_is_a_host_and_every_call_says_so(wasm: ProviderSupervisor) -> None:
    seen = await run(wasm.worker, guest_calls.javascript(guest_calls.WITHOUT_GRANT), None)
    guest_calls.check(guest_calls.WITHOUT_GRANT, seen.stdout)


async def test_an_uncaught_failure_names_its_code(wasm: ProviderSupervisor, broker: FakeBroker) -> None:
    seen = await run(wasm.worker, "await host.get('/fail/denied')", broker)
    assert seen.ended.exit_code == 1
    assert seen.stderr.startswith(b"HostError: denied: because of denied")


async def test_a_name_of_the_programs_may_be_host(wasm: ProviderSupervisor) -> None:
    assert (await run(wasm.worker, "const host = 1; console.log(host)", None)).stdout == b"1\n"


async def test_many_calls_are_answered_in_their_order(wasm: ProviderSupervisor, broker: FakeBroker) -> None:
    code = f"""
        const all = await Promise.all(Array.from({{length: {CALLS}}}, (_, n) => host.get('/echo', {{query: {{n}}}})));
        console.log(all.every((r, n) => r.json().query.n === `${{n}}`));
    """
    assert (await run(wasm.worker, code, broker)).stdout == b"true\n"
    assert len(broker.messages) == CALLS


async def test_runs_at_the_same_time_get_their_own_answers(
    wasm: ProviderSupervisor, broker: FakeBroker
) -> None:
    code = (
        "for (let i = 0; i < 50; i++) if ((await host.post('/echo', 'NAME')).json().body !== 'NAME') throw i"
    )
    runs = (run(wasm.worker, code.replace("NAME", name), broker) for name in "abcd")
    ended = await asyncio.gather(*runs)
    assert [seen.ended.exit_code for seen in ended] == [0] * 4
    assert len(broker.messages) == 200


async def test_a_deadline_ends_a_call_and_keeps_what_was_printed(
    wasm: ProviderSupervisor, broker: FakeBroker
) -> None:
    began = time.monotonic()
    seen = await run(wasm.worker, "console.log('before'); await host.get('/wait')", broker, timeout_ms=300)
    assert (seen.ended.timed_out, seen.stdout, seen.ended.stdout_truncated) == (True, b"before\n", False)
    assert time.monotonic() - began < LATE_S
    async with asyncio.timeout(10):
        while broker.under_way:
            await asyncio.sleep(0.01)
    assert broker.cancelled == 1


async def test_a_cancel_ends_a_call_and_keeps_what_was_printed(
    wasm: ProviderSupervisor, broker: FakeBroker
) -> None:
    run_id = new_id()
    running = asyncio.create_task(
        run(wasm.worker, "console.log('before'); await host.get('/wait')", broker, run_id=run_id)
    )
    await broker.asked.wait()
    await wasm.worker.cancel(run_id)
    seen = await running
    assert (seen.ended.cancelled, seen.stdout, seen.ended.stdout_truncated) == (True, b"before\n", False)


async def test_what_a_watched_program_printed_is_seen_while_it_waits_for_an_answer(
    wasm: ProviderSupervisor, broker: FakeBroker
) -> None:
    code = "for (const n of [1, 2, 3]) { console.log(n); await host.get('/text') } console.log('x'); await host.get('/wait')"
    wanted = spec(timeout_ms=20_000)
    what = replace(job(wanted, code), lease=broker.lease(wanted.run_id), stream=True)
    seen = b""
    async for event in wasm.worker.start(await reserved(wasm.worker, wanted), what):
        if isinstance(event, Out):
            seen += event.data
        if seen.endswith(b"x\n"):
            broker.go_on.set()  # else it would wait until its deadline
    assert isinstance(event, Ended)
    assert (seen, event.exit_code) == (b"1\n2\n3\nx\n", 0)


async def test_after_a_run_with_a_grant_the_next_has_none(
    wasm: ProviderSupervisor, broker: FakeBroker
) -> None:
    assert (await run(wasm.worker, "await host.get('/text')", broker)).ended.exit_code == 0
    seen = await run(wasm.worker, "await host.get('/text').catch((e) => console.log(e.code))", None)
    assert seen.stdout == b"no_grant\n"
    assert len(broker.messages) == 1


async def test_a_lease_of_another_run_is_refused_by_the_broker(
    wasm: ProviderSupervisor, broker: FakeBroker
) -> None:
    foreign = broker.lease("f" * 32)
    seen = await run(
        wasm.worker, "await host.get('/text').catch((e) => console.log(e.code))", None, lease=foreign
    )
    assert seen.stdout == b"no_grant\n"
    assert broker.runs == []


async def test_a_flood_of_calls_ends_by_the_count_of_host_calls(
    wasm: ProviderSupervisor, broker: FakeBroker
) -> None:
    seen = await run(wasm.worker, "for (;;) await host.get('/text').catch(() => {})", None, timeout_ms=60_000)
    assert (seen.ended.exit_code, seen.ended.timed_out) == (1, False)
    assert b"too many host calls" in seen.stderr


async def test_the_pass_is_nowhere_but_in_the_host_process(
    wasm: ProviderSupervisor, broker: FakeBroker
) -> None:
    run_id = new_id()
    lease = broker.lease(run_id, "canary-" + new_id())
    running = asyncio.create_task(
        run(wasm.worker, "await host.get('/wait')", None, run_id=run_id, lease=lease)
    )
    await broker.asked.wait()
    assert wasm.pid is not None
    own, *below = family(wasm.pid)
    assert below
    for pid in below:
        assert not memory_holds(pid, lease.secret.encode())
    for pid in (own, *below):
        for name in ("environ", "cmdline"):
            assert lease.secret.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()  # noqa: ASYNC240  # a test
    broker.go_on.set()
    assert (await running).ended.exit_code == 0


async def test_a_lease_for_what_cannot_make_calls_is_refused(broker: FakeBroker, tmp_path: Path) -> None:
    process = spawn("effect", {"effects": str(tmp_path / "effects")}, module="tests.support.effect_provider")
    async with ProviderSupervisor(process) as supervisor:
        assert await supervisor.wait_first_evidence(timeout_s=60)
        wanted = replace(spec(), kind=Kind.PYTHON)  # its programs in JavaScript can
        what = Job(wanted.run_id, Python("out:hello"), 1_000, wanted.output_bytes)
        lease = broker.lease(wanted.run_id)
        with pytest.raises(TicketRefused):
            await follow(
                supervisor.worker, await reserved(supervisor.worker, wanted), replace(what, lease=lease)
            )
