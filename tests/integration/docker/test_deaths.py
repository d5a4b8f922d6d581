"""A sandbox that dies while somebody looks at it: its own run ends, and nobody else loses the wall."""

import asyncio
import random
from pathlib import Path
from typing import cast

import pytest

from plimsoll.contract.requests import Kind, Python
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Broken, Job, Ticket
from providers.docker.container import Container
from providers.docker.provider import DockerProvider
from providers.docker.sight import Sight
from tests.support.docker import Daemon, state_knowing
from tests.support.hosted import Hosted, hosted
from tests.support.runs import follow, reserved, spec

pytestmark = [pytest.mark.component("runsc"), pytest.mark.timeout(900)]

RUNS = 20
_ENDLESS = "while True: print('x' * 100, flush=True)"


@pytest.mark.parametrize("whose", ["running", "waiting"])
async def test_a_gvisor_that_is_killed_while_it_is_looked_at_costs_its_own_run_alone(
    tmp_path: Path, docker: Daemon, image: str, whose: str
) -> None:
    provider = DockerProvider.from_settings(
        {
            "provider": "docker@runsc",
            "state_dir": state_knowing(image, tmp_path / "state"),
            "docker_host": docker.host,
            "docker_image": image,
            "docker_pool": 1,
            "memory_mb": 256,
            "slots": 6,
        }
    )
    chance = random.Random(106)
    told: list[str] = []
    async with hosted(provider, "docker@runsc") as made:
        vars(provider)["_tell"] = told.append
        for _ in range(RUNS):
            await made.until(lambda: bool(pythons(provider)))
            if whose == "running":
                await _killed_in_a_run(made, provider, chance)
            else:
                (container, *_) = pythons(provider)
                await _killed(provider, container, chance)
        assert told == []
        assert (made.wall.tier, made.wall.faults) == (Tier.KERNEL, ())
        seen = await follow(made.worker, *await _ordered(made, "print(6 * 7)", 60_000))
        assert (seen.stdout, seen.ended.tier) == (b"42\n", Tier.KERNEL)


def pythons(provider: DockerProvider) -> list[Container]:
    pool = provider._pool
    return [] if pool is None else [each for each in pool._waiting if each.language == "python"]


async def _ordered(made: Hosted, code: str, timeout_ms: int) -> tuple[Ticket, Job]:
    wanted = spec(kind=Kind.PYTHON, timeout_ms=timeout_ms, floor=Tier.KERNEL)
    ticket = await reserved(made.worker, wanted)
    return ticket, Job(wanted.run_id, Python(code), timeout_ms, 65_536)


async def _killed_in_a_run(made: Hosted, provider: DockerProvider, chance: random.Random) -> None:
    run = asyncio.create_task(follow(made.worker, *await _ordered(made, _ENDLESS, 60_000)))
    assert provider._pool
    await made.until(lambda: bool(provider._pool and provider._pool._running))
    (container,) = provider._pool._running
    await _killed(provider, container, chance)
    seen = await run
    # A flood that came to its end first is an end too.
    assert isinstance(seen.last, Broken) or seen.ended.tier is Tier.KERNEL


async def _killed(provider: DockerProvider, container: Container, chance: random.Random) -> None:
    """At some moment, with looks as they come at a run's end and at those that wait, one after the other until it is gone."""
    sight = cast("Sight", container.sight)
    looks = 0
    asyncio.get_running_loop().call_later(chance.uniform(0, 0.05), sight.kill)
    while sight.alive:
        provider._look_back(container)
        looks += 1
        if not looks % 50:
            await asyncio.sleep(0)
    assert provider._pool
    provider._pool._look()
