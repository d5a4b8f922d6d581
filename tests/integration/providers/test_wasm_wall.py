"""The wasm wall as a whole: with one part taken out, for real, nothing is served; and what it lost, it gets back."""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from app.dispatch.supervisor import ProviderSupervisor, spawn
from plimsoll.contract.refusals import Code, Reason
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Broken, Health, WorkerLost
from tests.support.runs import children, job, refused, reserved, run, spec
from tests.support.weakened_wasm import WEAKENINGS

pytestmark = [pytest.mark.component("wasm"), pytest.mark.component("seccomp")]


@pytest.mark.parametrize("without", WEAKENINGS)
async def test_without_any_part_of_its_wall_it_refuses_to_serve(place: Path, without: str) -> None:
    if without == "capabilities" and os.geteuid() != 0:
        pytest.skip("only root has capabilities to keep")
    settings = {"cache_dir": str(place), "slots": 2, "without": without}
    process = spawn("wasm", settings, module="tests.support.weakened_wasm")
    async with ProviderSupervisor(process) as supervisor:
        info = await supervisor.wait_first_evidence(timeout_s=60)
        assert info
        assert (info.health, info.tier) == (Health.REFUSING, Tier.NONE)
        assert WEAKENINGS[without][1] in info.faults
        refusal = await refused(supervisor.worker, spec(floor=Tier.PROCESS))
        assert (refusal.code, refusal.reason) == (Code.ISOLATION_UNMET, Reason.ISOLATION)
        assert (await refused(supervisor.worker, spec())).code is Code.UNAVAILABLE


async def test_a_cache_that_others_can_write_is_refused(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o777)  # noqa: PTH101
    process = spawn("wasm", {"cache_dir": str(tmp_path), "slots": 2})
    async with ProviderSupervisor(process) as supervisor:
        info = await supervisor.wait_first_evidence(timeout_s=60)
        assert info
        assert (info.health, info.faults) == (Health.REFUSING, ("cache_refused",))


async def test_a_lost_fork_server_stops_service_until_a_fresh_provider_is_there(place: Path) -> None:
    process = spawn("wasm", {"cache_dir": str(place), "slots": 2})
    async with ProviderSupervisor(process) as supervisor:
        assert await supervisor.wait_first_evidence(timeout_s=60)
        worker, before = supervisor.worker, supervisor.pid
        wanted = spec(timeout_ms=60_000)
        events = worker.start(await reserved(worker, wanted), job(wanted, "for (;;);"))
        await anext(events)
        (fork_server,) = children(supervisor.pid)
        os.kill(fork_server, signal.SIGKILL)
        with contextlib.suppress(WorkerLost):  # its runner died with it: broken, or lost with the process
            assert await anext(events) == Broken("runner_died")
        end = time.monotonic() + 20
        while supervisor.away or supervisor.pid == before:
            assert time.monotonic() < end
            await asyncio.sleep(0.02)
        await supervisor.wait_first_evidence(timeout_s=20)
        assert (await run(worker, "console.log(1)")).stdout == b"1\n"


async def test_evidence_stays_the_same_while_nothing_changes(place: Path) -> None:
    process = spawn("wasm", {"cache_dir": str(place), "slots": 2, "evidence_interval_s": 0.1})
    async with ProviderSupervisor(process) as supervisor:
        first = await supervisor.wait_first_evidence(timeout_s=60)
        await asyncio.sleep(0.6)
        later = await supervisor.worker.info()
        assert first
        assert (later.evidence_sha256, later.facts) == (first.evidence_sha256, first.facts)


async def test_starting_with_a_filled_cache_is_quick(place: Path) -> None:
    for limit_s in (60.0, 5.0):
        start = time.monotonic()
        async with ProviderSupervisor(spawn("wasm", {"cache_dir": str(place), "slots": 2})) as supervisor:
            assert await supervisor.wait_first_evidence(timeout_s=60)
            assert time.monotonic() - start < limit_s
