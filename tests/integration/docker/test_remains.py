"""Live gVisors of a daemon that was killed: ended by who made them or the next with the same data, and by nobody else.

They are made to stand still, so that none ends by itself when its daemon goes: a busy one may live on as well.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.dispatch.supervisor import spawn
from providers.docker import remains
from providers.docker.names import Names
from providers.docker.process import Process
from providers.docker.provider import DockerProvider
from tests.support.docker import Daemon, daemon, state_knowing

pytestmark = [pytest.mark.component("runsc"), pytest.mark.timeout(600)]


FROZEN: set[str] = set()


@pytest.fixture
def mortal(docker: Daemon, image: str) -> Iterator[Daemon]:
    """A daemon that may be killed, with the image in it."""
    with tempfile.TemporaryDirectory(prefix="pd-") as place, daemon(Path(place)) as found:
        saved = Path(place) / "image.tar"
        docker.docker("save", "-o", str(saved), "plimsoll-sandbox")
        found.docker("load", "-i", str(saved))
        yield found
        remains.end(frozenset(FROZEN))  # what a test that failed has left


@pytest.fixture
def stranger(mortal: Daemon, image: str) -> str:
    """A gVisor of somebody else's on that daemon, which stands still too."""
    words = ["--runtime=runsc", "--entrypoint=/usr/bin/python3", image, "-c", "input()"]
    container = mortal.docker("run", "-d", "-i", *words).strip()
    freeze(frozenset({container}))
    return container


def settings(found: Daemon, image: str, place: Path) -> dict[str, Any]:
    return {
        "provider": "docker@runsc",
        "state_dir": state_knowing(image, place / "state"),
        "docker_host": found.host,
        "docker_image": image,
        "docker_pool": 2,
        "memory_mb": 256,
        "slots": 8,
    }


def sentries(ids: frozenset[str]) -> list[int]:
    found = [pid for pids in remains.find(ids).values() for pid in pids]
    return [pid for pid in found if _is_sentry(pid)]


def _is_sentry(pid: int) -> bool:
    try:
        return Process(pid).arguments().startswith(b"runsc-sandbox\0")
    except OSError:  # it has ended meanwhile
        return False


def freeze(ids: frozenset[str]) -> int:
    """Every sandbox process there is of these containers; how many that are."""
    FROZEN.update(ids)
    found = sentries(ids)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    return len(found)


async def until(holds: Any) -> None:
    async with asyncio.timeout(240):
        while not holds():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def opened(what: dict[str, Any]) -> AsyncIterator[DockerProvider]:
    provider = DockerProvider.from_settings(what)
    try:
        await provider.open(lambda _fault: None)
        yield provider
    finally:
        await provider.close()


def made(found: Daemon, stranger: str) -> frozenset[str]:
    return frozenset(each["Id"] for each in found.call("GET", "/containers/json?all=1")) - {stranger}


async def test_what_a_service_that_was_killed_with_its_daemon_left_is_ended_by_the_next(
    mortal: Daemon, image: str, tmp_path: Path, stranger: str
) -> None:
    """Also before there is a daemon again."""
    what = settings(mortal, image, tmp_path)
    process = spawn("docker@runsc", what)
    try:
        await until(lambda: len(list((tmp_path / "state").rglob("plimsoll-*"))) >= 4)
        await until(lambda: len(sentries(made(mortal, stranger))) >= 4)
        ids = made(mortal, stranger)
        freeze(ids)
    finally:
        process.end()
    mortal.kill()
    assert sentries(ids)
    assert sentries(frozenset({stranger}))
    async with opened(what):
        assert remains.find(ids) == {}
    await back(mortal, stranger)


async def test_what_a_daemon_that_was_killed_left_half_made_is_ended_by_its_maker(
    mortal: Daemon, image: str, tmp_path: Path, stranger: str
) -> None:
    """While it is away: nobody knows whether it comes back. Afterwards all slots are there again."""
    async with opened(settings(mortal, image, tmp_path)) as provider:
        found = await provider.collect()
        assert found.faults == ()
        pool, names = provider._pool, provider._names
        assert pool
        assert names
        await until(lambda: freeze(coming(provider)) >= 1)
        ids = coming(provider)
        mortal.kill()
        await until(lambda: remains.find(ids | _known(names)) == {})
        await until(lambda: not names.doubtful)
        await back(mortal, stranger)
        await until(lambda: pool.waiting() == 4)


async def back(found: Daemon, stranger: str) -> None:
    """The daemon again. It would wait at its start for one that stands still, so that goes first; it was still there."""
    assert sentries(frozenset({stranger}))
    assert await asyncio.to_thread(remains.end, frozenset({stranger})) == frozenset()
    await asyncio.to_thread(found.start_again)


def coming(provider: DockerProvider) -> frozenset[str]:
    """Containers that are being made."""
    return frozenset() if provider._pool is None else frozenset(each.id for each in provider._pool._coming)


def _known(names: Names) -> frozenset[str]:
    return frozenset(names._ids.values())
