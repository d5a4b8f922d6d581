"""A wall that is lost when a run gets its container: nothing ran, the host's own table says so, and soon it serves again."""

import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from plimsoll.contract.requests import Kind, Python
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Health, Job, TicketRefused
from providers.docker.container import Container
from providers.docker.provider import DockerProvider
from providers.docker.sight import Sight
from tests.integration.docker.test_lies import PLATFORM, RUNSC, Register, register, script
from tests.support.docker import Daemon, state_knowing
from tests.support.hosted import Hosted, hosted
from tests.support.runs import Seen, follow, reserved, spec

__all__ = ["register"]

pytestmark = [pytest.mark.component("docker"), pytest.mark.timeout(600)]

Serve = Callable[..., AbstractAsyncContextManager[Hosted]]


@pytest.fixture
def serve(tmp_path: Path, docker: Daemon, image: str) -> Serve:
    @asynccontextmanager
    async def one(runtime: str, **more: Any) -> AsyncIterator[Hosted]:
        settings = {
            "provider": f"docker@{runtime}",
            "state_dir": state_knowing(image, tmp_path / "state"),
            "docker_host": docker.host,
            "docker_image": image,
            "docker_pool": 2,
            "memory_mb": 256,
            "slots": 8,
        }
        async with hosted(DockerProvider.from_settings(settings | more), f"docker@{runtime}") as made:
            await made.until(lambda: len(pythons(made)) == 2)
            yield made

    return one


def pythons(made: Hosted) -> list[Container]:
    """Those that wait for a run."""
    pool = cast("DockerProvider", made.provider)._pool
    return [] if pool is None else [each for each in pool._waiting if each.language == "python"]


async def python(made: Hosted, code: str = "print(6 * 7)", floor: Tier | None = None) -> Seen:
    wanted = spec(kind=Kind.PYTHON, timeout_ms=20_000, floor=floor)
    ticket = await reserved(made.worker, wanted)
    seen = Seen()
    try:
        return await follow(
            made.worker, ticket, Job(wanted.run_id, Python(code), wanted.timeout_ms, 65_536), seen
        )
    except TicketRefused:
        assert (await made.worker.query(wanted.run_id, void=False)).state == "void"
        raise


async def assert_serves_again(made: Hosted) -> None:
    await made.until(lambda: made.wall.health is Health.SERVING)
    await made.until(lambda: len(pythons(made)) == 2)
    seen = await python(made, floor=Tier.CONTAINER)
    assert (seen.stdout, seen.ended.exit_code) == (b"42\n", 0)


@pytest.mark.parametrize("floor", [None, Tier.CONTAINER])
async def test_limits_that_are_changed_under_all_that_wait_start_nothing(
    serve: Serve, docker: Daemon, floor: Tier | None
) -> None:
    async with serve("runc") as made:
        for each in pythons(made):
            docker.docker("update", "--pids-limit", "100", each.id)
        with pytest.raises(TicketRefused):
            await python(made, floor=floor)
        assert made.wall.faults == ("wall_changed",)
        await assert_serves_again(made)


@pytest.mark.component("runsc")
async def test_under_gvisor_too(serve: Serve) -> None:
    """Which has no way for its daemon to change limits: so it is the control groups themselves."""
    async with serve("runsc") as made:
        for each in pythons(made):
            assert isinstance(each.sight, Sight)
            (file,) = (Path(name) for name in each.sight._limit_files if name.endswith("pids.max"))
            file.write_text("100")
        with pytest.raises(TicketRefused):
            await python(made, floor=Tier.KERNEL)
        assert made.wall.faults == ("wall_changed",)
        await assert_serves_again(made)


@pytest.mark.component("runsc")
@pytest.mark.parametrize("change", ["swapped", "removed"])
async def test_a_gvisor_whose_binary_is_gone_starts_nothing(
    serve: Serve, register: Register, tmp_path: Path, change: str
) -> None:
    binary = tmp_path / "runsc"
    shutil.copy(RUNSC, binary)
    runtime = register(f"runsc-{change}", binary, PLATFORM, "--network=none")
    async with serve(runtime) as made:
        assert (await python(made, floor=Tier.KERNEL)).stdout == b"42\n"
        await made.until(lambda: len(pythons(made)) == 2)
        if change == "removed":
            binary.unlink()
        else:
            script(tmp_path / "other", f'exec {RUNSC} --ignore-cgroups "$@"').replace(binary)
        with pytest.raises(TicketRefused):
            await python(made, floor=Tier.KERNEL)
        assert made.wall.faults == ("wall_changed",)
        assert made.wall.tier is Tier.NONE


def end(container: Container) -> None:
    """Without letting the provider hear of it meanwhile."""
    assert isinstance(container.sight, Sight)
    container.sight.kill()
    while container.sight.alive:
        time.sleep(0.001)


@pytest.mark.parametrize("count", [1, 2])
async def test_containers_that_ended_while_they_waited_cost_no_run(serve: Serve, count: int) -> None:
    async with serve("runc") as made:
        for each in pythons(made)[:count]:
            end(each)
        assert (await python(made, floor=Tier.CONTAINER)).stdout == b"42\n"
        assert made.wall.faults == ()


async def test_a_ticket_of_another_image_starts_nothing(serve: Serve) -> None:
    """A record would state that other one."""
    async with serve("runc") as made:
        wanted = spec(kind=Kind.PYTHON, timeout_ms=20_000)
        ticket = await reserved(made.worker, wanted)
        looker = cast("DockerProvider", made.provider)._looker
        assert looker
        assert looker.base
        looker.base = replace(looker.base, image_id="sha256:" + "0" * 64)
        with pytest.raises(TicketRefused, match="changed"):
            await follow(made.worker, ticket, Job(wanted.run_id, Python("print(1)"), 20_000, 65_536))
        assert (await made.worker.query(wanted.run_id, void=False)).state == "void"
