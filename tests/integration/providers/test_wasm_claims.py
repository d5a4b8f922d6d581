"""What breaks before a runner has the code: nothing ran, and the host's own table says so."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace
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


def other_guest(provider: WasmProvider) -> None:
    (kind, environment), *_ = provider.environments.items()
    provider.environments = {kind: replace(environment, identity="wasm-guest:sha256:" + "0" * 64)}


def other_software(provider: WasmProvider) -> None:
    (kind, environment), *_ = provider.environments.items()
    provider.environments = {kind: replace(environment, software_identity="wasm:sha256:" + "0" * 64)}


def other_rules(provider: WasmProvider) -> None:
    provider.policy = "seccomp:sha256:" + "0" * 64


@pytest.mark.parametrize("change", [other_guest, other_software, other_rules])
async def test_a_record_never_states_what_the_worker_was_when_the_ticket_was_made(
    provider: WasmProvider, change: Callable[[WasmProvider], None]
) -> None:
    async with hosted(provider, "wasm", slots=2) as made:
        wanted = spec()
        ticket = await reserved(made.worker, wanted)
        change(provider)
        with pytest.raises(TicketRefused, match="changed"):
            await follow(made.worker, ticket, job(wanted, "console.log(1)"))
        assert (await made.worker.query(wanted.run_id, void=False)).state == "void"
        assert provider._pool
        assert {each.runs for each in provider._pool.runners if each.tenant == wanted.tenant} <= {0}
        assert (await run(made.worker, "console.log(1)")).stdout == b"1\n"  # by a ticket of what it is now
