"""The lives of containers on a real daemon: made, taken, ended, and gone whoever is killed."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from plimsoll.contract.requests import JavaScript, Python
from providers.docker.container import Container, Unsighted
from providers.docker.daemon import Daemon, DaemonError, StreamCut
from providers.docker.events import Death
from providers.docker.frames import Output, SnippetEnded
from providers.docker.names import PREFIX, Names
from providers.docker.pool import Pool
from providers.docker.recipe import AGENT_FILES
from providers.docker.settings import DockerSettings
from tests.support import docker as support
from tests.support.layers import sized

HOLDER = support.ROOT / "tests" / "support" / "hold_pool.py"

pytestmark = pytest.mark.timeout(300)


@dataclass
class Owner:
    """What one service has: a client of the daemon, a table of names, a pool."""

    daemon: Daemon
    names: Names
    pool: Pool
    settings: DockerSettings
    dropped: list[str] = field(default_factory=list)


Open = Callable[..., "contextlib.AbstractAsyncContextManager[Owner]"]


async def examine(_: Container) -> None:
    """Anything will do."""


@contextlib.asynccontextmanager
async def owner(
    found: support.Daemon, image: str, runtime: str, state: Path, slots: int = 12, pool: int = 1
) -> AsyncIterator[Owner]:
    settings = DockerSettings("docker", str(state), host=found.host, runtime=runtime, slots=slots, pool=pool)
    dropped: list[str] = []
    with Names(str(state), settings.host) as names:
        async with (
            Daemon(settings.host) as daemon,
            Pool(daemon, settings, image, runtime != "runc", names, examine, dropped.append) as made,
        ):
            yield Owner(daemon, names, made, settings, dropped)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def opened(docker: support.Daemon, image: str, runtime: str, state: Path) -> Open:
    """One more owner, with a table of its own unless told otherwise."""
    return lambda place=state, **limits: owner(docker, image, runtime, place, **limits)


def containers(found: support.Daemon) -> dict[str, str]:
    """The ids of everything there is, by name."""
    return {one["Names"][0][1:]: one["Id"] for one in found.call("GET", "/containers/json?all=1")}


def list_names(state: Path) -> list[str]:
    """All that stand in any table."""
    return [path.name for path in state.rglob("*") if path.name.startswith(PREFIX)]


async def until(truth: Callable[[], bool], seconds: float = 60) -> float:
    """Wait for it; the seconds that took."""
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        while not truth():
            await asyncio.sleep(0.02)
    return time.monotonic() - began


async def answer_of(container: Container, payload: Python | JavaScript) -> tuple[bytes, int]:
    """Run it; its output and exit code."""
    for frame in container.talk.begin(payload):
        await container.send(frame)
    said = b""
    while True:
        data = await container.receive()
        assert data is not None
        for event in container.talk.feed(data):
            if isinstance(event, Output):
                said += event.data
            if isinstance(event, SnippetEnded):
                return said, event.exit_code


# --- one container --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [Python(code="print(6 * 7)"), JavaScript(code="console.log(6 * 7)")])
async def test_a_waiting_container_runs_a_program_and_is_gone_afterwards(
    opened: Open, docker: support.Daemon, payload: Python | JavaScript
) -> None:
    async with opened() as one:
        await until(lambda: one.pool.waiting() == 2)
        container = await one.pool.take(payload.kind.value)
        assert await answer_of(container, payload) == (b"42\n", 0)
        assert re.fullmatch(r"[0-9a-f]{64}", container.id)
        assert containers(docker)[container.name] == container.id
        assert not isinstance(container.sight, Unsighted)
        one.pool.give_back(container)
        await until(lambda: container.name not in containers(docker))
        await until(lambda: not (one.names._place / container.name).exists())


async def test_a_flood_that_nobody_reads_does_not_hold_its_end_up(
    opened: Open, docker: support.Daemon
) -> None:
    async with opened(pool=0) as one:
        container = await one.pool.take("python")
        flood = Python(code="while True: print('x' * 10000)")
        for frame in container.talk.begin(flood):
            await container.send(frame)
        assert await container.receive()
        await asyncio.sleep(
            0.3
        )  # long enough to fill every buffer on the way; what is tested does not depend on it
        began = time.monotonic()
        assert await container.destroy()
        assert time.monotonic() - began < 60
        assert container.name not in containers(docker)
        assert await container.destroy()
        with pytest.raises(StreamCut):
            await container.send(b"more")
        assert await container.receive() is None


async def test_how_a_container_ended_is_told(opened: Open, docker: support.Daemon) -> None:
    async with opened(pool=0) as one:
        container = await one.pool.take("python")
        docker.docker("kill", container.id)
        assert await container.receive() is None
        assert await container.died() == Death(137, oom=False)


async def test_a_waiting_container_that_is_killed_is_replaced(opened: Open, docker: support.Daemon) -> None:
    async with opened() as one:
        await until(lambda: one.pool.waiting() == 2)
        killed = containers(docker)
        for name in killed:
            docker.docker("kill", name)
        await until(lambda: one.pool.waiting() == 2 and not killed.keys() & containers(docker).keys())
        assert one.dropped == []


async def test_the_agent_can_be_read_from_a_container_and_never_too_much_of_anything(
    opened: Open, image: str
) -> None:
    async with opened(pool=0) as one:
        container = await one.pool.take("python")
        archive = await one.daemon.archive(container.id, AGENT_FILES, 1 << 20)
        assert b"providers/docker/agent/loop.py" in archive
        with pytest.raises(DaemonError, match="too_large"):
            await one.daemon.archive(container.id, AGENT_FILES, 1 << 10)
        with pytest.raises(DaemonError, match="too_large"):
            async for _ in one.daemon.export(image, 1 << 20):
                pass


async def test_errors_are_codes_and_hold_nothing_that_the_daemon_said(opened: Open) -> None:
    async with opened(pool=0) as one:
        with pytest.raises(DaemonError) as unknown:
            await one.daemon.inspect("canary")
        assert (str(unknown.value), unknown.value.status) == ("unknown", 404)
        assert unknown.value.__cause__ is None
        assert unknown.value.__suppress_context__
        with pytest.raises(DaemonError, match="refused"):
            await one.daemon.create("canary", {"Image": "not an image at all"})


# --- the pool -------------------------------------------------------------------------------------------------------------


@pytest.mark.sized
async def test_every_run_has_a_container_of_its_own_that_was_there_before_it(
    opened: Open, docker: support.Daemon
) -> None:
    number = sized(12, 50)
    async with opened() as one:
        seen = set()
        for _ in range(number):
            await until(lambda: one.pool.waiting() == 2)
            asked = time.time()
            container = await one.pool.take("python")
            state = (await one.daemon.inspect(container.id))["State"]
            started = datetime.fromisoformat(state["StartedAt"][:26] + "+00:00").timestamp()
            assert started < asked
            seen.add(container.id)
            one.pool.give_back(container)
        assert len(seen) == number


async def test_no_more_than_the_slots_exist_at_once(opened: Open, docker: support.Daemon) -> None:
    async with opened(slots=3, pool=1) as one:
        most = 0

        async def run(language: str) -> None:
            container = await one.pool.take(language)
            await answer_of(container, Python(code="1") if language == "python" else JavaScript(code="1"))
            one.pool.give_back(container)

        async def count() -> None:
            nonlocal most
            while True:
                most = max(most, len(await asyncio.to_thread(containers, docker)))
                await asyncio.sleep(0.01)

        counter = asyncio.create_task(count())
        for languages in (("python", "python"), ("javascript", "javascript", "javascript"), ("python",)):
            await asyncio.gather(*map(run, languages))
        counter.cancel()
        assert 1 <= most <= 3


# --- nothing is left ------------------------------------------------------------------------------------------------------


async def test_after_the_end_nothing_is_left(opened: Open, docker: support.Daemon, state: Path) -> None:
    async with opened() as one:
        await until(lambda: one.pool.waiting() == 2)
        await one.pool.take("python")
        began = time.monotonic()
    assert time.monotonic() - began < 60
    await until(lambda: not containers(docker), 10)


@contextlib.contextmanager
def holder(found: support.Daemon, image: str, runtime: str, state: Path) -> "Iterator[subprocess.Popen[str]]":
    """A process of its own with a pool; the block begins when that is full, and the process is killed at its end."""
    with subprocess.Popen(
        [sys.executable, HOLDER, found.socket, image, runtime, state],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(support.ROOT)},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


async def test_a_killed_service_leaves_no_container_although_nobody_cleans_up(
    docker: support.Daemon, image: str, runtime: str, state: Path
) -> None:
    with holder(docker, image, runtime, state) as process:
        assert len(containers(docker)) >= 5
        process.kill()
        process.wait()
        took = await until(lambda: not containers(docker), 20)
    print(f"{runtime}: orphans gone after {took:.2f} s")


async def test_what_a_killed_service_left_in_its_table_is_cleared_by_the_next(
    docker: support.Daemon, image: str, runtime: str, state: Path, opened: Open
) -> None:
    with holder(docker, image, runtime, state):
        pass
    async with opened(pool=0) as one:
        assert len(list(one.names._home.iterdir())) == 1
        await until(lambda: not one.names.strays())
    assert list_names(state) == []


async def test_the_reaper_removes_what_is_in_its_table_and_nothing_else(
    docker: support.Daemon, image: str, runtime: str, state: Path, opened: Open
) -> None:
    settings = DockerSettings("docker", str(state), host=docker.host, runtime=runtime)
    body = support.body(image, runtime, ["python"], AutoRemove=False) | {
        "Labels": {"plimsoll.sandbox": "docker"}
    }
    with Names(str(state), settings.host) as dead:
        ours, stranger = dead.new(), PREFIX + "0" * 32
        for name in (ours, stranger):
            docker.call("POST", f"/containers/create?name={name}", body)
            docker.call("POST", f"/containers/{name}/start")
    async with opened(pool=0):
        await until(lambda: ours not in containers(docker))
    assert stranger in containers(docker)
    docker.docker("rm", "-f", stranger)


async def test_two_owners_on_one_daemon_leave_each_other_alone(
    docker: support.Daemon, tmp_path: Path, opened: Open
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir(0o700)
    second.mkdir(0o700)
    async with opened(first) as one:
        await until(lambda: one.pool.waiting() == 2)
        mine = containers(docker)
        async with opened(second) as other:
            await until(lambda: other.pool.waiting() == 2)
        await until(lambda: len(containers(docker)) == 2, 10)
        assert containers(docker) == mine
        assert one.pool.waiting() == 2


async def test_a_killed_daemon_is_noticed_leaves_nothing_and_is_used_again_when_it_is_back(
    docker: support.Daemon, image: str, runtime: str, state: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="pd-") as place, support.daemon(Path(place)) as mortal:
        saved = Path(place) / "image.tar"
        docker.docker("save", "-o", str(saved), "plimsoll-sandbox")
        mortal.docker("load", "-i", str(saved))
        async with owner(mortal, image, runtime, state) as one:
            await until(lambda: one.pool.waiting() == 2)
            running = await one.pool.take("python")
            await until(lambda: one.pool.waiting() == 2)
            before = containers(mortal)
            mortal.kill()
            await until(lambda: one.dropped[:1] == ["daemon_gone"])
            assert one.pool.waiting() == 0
            assert await running.receive() is None
            one.pool.give_back(running)
            await asyncio.to_thread(mortal.start_again)
            await until(lambda: one.pool.waiting() == 2)
            await until(lambda: not before.keys() & containers(mortal).keys())
            container = await one.pool.take("python")
            assert await answer_of(container, Python(code="print(1)")) == (b"1\n", 0)
        await until(lambda: not containers(mortal), 10)
        assert set(one.dropped) == {"daemon_gone"}
