"""What breaks before a runner has the code: nothing ran, and the host's own table says so."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import TicketRefused
from providers.wasm.provider import WasmProvider
from tests.support.hosted import Hosted, hosted
from tests.support.runs import Seen, follow, job, reserved, run, spec
from tests.support.wasm_in_process import unopened

pytestmark = [pytest.mark.component("wasm"), pytest.mark.component("seccomp")]


@pytest.fixture
def provider(place: Path) -> WasmProvider:
    return unopened(place, slots=2)


async def waiting(made: Hosted, provider: WasmProvider) -> tuple[str, "asyncio.Task[Seen]"]:
    """A run for which no runner is there, and none comes: the fork server stands still."""
    assert provider._forks
    assert provider._pool
    await made.until(lambda: bool(provider._pool and len(provider._pool._fresh) == 2))
    os.kill(provider._forks._pid, signal.SIGSTOP)
    for runner in provider._pool.runners:
        runner.kill("test")
    wanted = spec(floor=Tier.PROCESS)
    ticket = await reserved(made.worker, wanted)
    task = asyncio.create_task(follow(made.worker, ticket, job(wanted, "console.log(1)")))
    await made.until(lambda: wanted.run_id in provider._courses)
    return wanted.run_id, task


async def test_a_wall_that_is_lost_while_a_run_waits_for_its_runner_starts_nothing(
    provider: WasmProvider,
) -> None:
    async with hosted(provider, "wasm", slots=2) as made:
        assert provider._forks
        run_id, task = await waiting(made, provider)
        made.wall.dropped("runner_unconfined")
        os.kill(provider._forks._pid, signal.SIGCONT)
        with pytest.raises(TicketRefused, match="isolation"):
            await task
        assert (await made.worker.query(run_id, void=False)).state == "void"


async def test_whatever_breaks_on_the_way_to_a_runner_starts_nothing(provider: WasmProvider) -> None:
    async with hosted(provider, "wasm", slots=2) as made:
        assert provider._pool
        vars(provider._pool)["acquire"] = None
        with pytest.raises(TicketRefused, match="not_started"):
            await run(made.worker, "console.log(1)")


async def test_a_fork_server_that_is_lost_while_a_run_waits_starts_nothing(provider: WasmProvider) -> None:
    async with hosted(provider, "wasm", slots=2) as made:
        assert provider._forks
        _, task = await waiting(made, provider)
        os.kill(provider._forks._pid, signal.SIGKILL)
        with pytest.raises(TicketRefused):
            await task
