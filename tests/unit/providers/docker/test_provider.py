"""What the docker provider says before there is a daemon, and what becomes of runs that never got a container."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from plimsoll.contract.requests import Kind, Module, Python
from plimsoll.contract.tiers import Tier
from providers.docker.container import Container, NotMade, Unsighted
from providers.docker.events import Death
from providers.docker.look import Looker
from providers.docker.pool import DAEMON_GONE, Pool, Unproven
from providers.docker.provider import WALL_CHANGED, DockerProvider
from providers.seam import Findings, NotStarted, Observation, Order, ProviderFault, Step
from tests.support.sandboxes import FakeSandbox, order

RUN = "1" * 32


def provider(place: Path, **more: Any) -> DockerProvider:
    settings = {
        "provider": "docker",
        "state_dir": str(place / "state"),
        "docker_host": f"unix://{place}/none",
    }
    return DockerProvider.from_settings(settings | more)


@dataclass
class FakePool:
    """Gives a container when it is told to."""

    may_give: asyncio.Event = field(default_factory=asyncio.Event)
    container: Container = field(default_factory=lambda: object.__new__(Container))
    back: list[Container] = field(default_factory=list)
    breaks: BaseException | None = None

    async def take(self, _language: str | None) -> Container:
        await self.may_give.wait()
        if self.breaks is not None:
            raise self.breaks
        return self.container

    def give_back(self, container: Container) -> None:
        self.back.append(container)


async def first(one: DockerProvider, what: Order) -> Step:
    async with contextlib.aclosing(one.run(what)) as steps:  # type: ignore[type-var]  # a generator, seen as an iterator
        async for step in steps:
            return step
    raise AssertionError("no step")


async def test_the_kinds_are_known_before_anything_is_there(tmp_path: Path) -> None:
    one = provider(tmp_path)
    assert set(one.environments) == {Kind.JAVASCRIPT, Kind.PYTHON, Kind.PROJECT}
    assert one.policy.startswith("seccomp:sha256:")
    with pytest.raises(NotStarted):
        await first(one, order(Python("code")))
    await one.close()


async def test_without_a_daemon_it_serves_nothing_and_says_so_at_every_look(tmp_path: Path) -> None:
    one = provider(tmp_path)
    await one.open(lambda _: None)
    for _ in range(2):
        found = await one.collect()
        assert (found.tier, found.faults) == (Tier.NONE, ("daemon_unreachable",))
    await one.close()


@contextlib.asynccontextmanager
async def talking(place: Path) -> AsyncIterator[None]:
    """A daemon that says its version, and of events nothing yet."""
    writers = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = b"" if b"/events" in head else b'{"ApiVersion": "1.41"}'
                length = b"transfer-encoding: chunked" if not body else b"content-length: %d" % len(body)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%s\r\n\r\n%s" % (length, body)
                )

    server = await asyncio.start_unix_server(answer, str(place / "none"))
    try:
        yield
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        (place / "none").unlink()


async def heard(told: list[str], times: int) -> None:
    async with asyncio.timeout(20):
        while len(told) < times:
            await asyncio.sleep(0.01)


async def test_a_daemon_that_comes_or_comes_back_is_looked_at_at_once(tmp_path: Path) -> None:
    one, told = provider(tmp_path), list[str]()
    await one.open(told.append)
    await one.collect()
    await asyncio.sleep(0.1)
    assert told == []
    for times in (1, 2):
        async with talking(tmp_path):
            await heard(told, times)
    assert set(told) == {DAEMON_GONE}
    await one.close()


async def test_one_that_was_looked_at_before_its_events_came_back_stays_proven(tmp_path: Path) -> None:
    one, told = provider(tmp_path), list[str]()
    await one.open(told.append)
    assert one._daemon is not None
    await one._act_on(Findings(Tier.CONTAINER))
    async with talking(tmp_path), asyncio.timeout(20):
        await one._daemon.connected.wait()
        await asyncio.sleep(0.05)
    assert told == []
    await one.close()


async def test_a_state_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    one = provider(tmp_path)
    with pytest.raises(ProviderFault, match="state_refused"):
        await one.open(lambda _: None)
    await one.close()


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_run_that_is_cancelled_while_it_waits_never_starts(tmp_path: Path, at_once: object) -> None:
    """Also when its container comes at the very moment."""
    one, pool = provider(tmp_path), FakePool()
    one._pool = cast("Pool", pool)
    running = asyncio.create_task(first(one, order(Python("code"))))
    await asyncio.sleep(0.01)
    if at_once:
        pool.may_give.set()
        await asyncio.sleep(0)
    one.cancel(RUN)
    with pytest.raises(NotStarted):
        await running
    assert pool.back == ([pool.container] if at_once else [])
    assert not one._runs
    assert not one._cancelled


@pytest.mark.parametrize("failure", [ValueError(), OSError(), asyncio.CancelledError()])
async def test_whatever_breaks_at_the_claim_starts_nothing(tmp_path: Path, failure: BaseException) -> None:
    one, pool = provider(tmp_path), FakePool(breaks=failure)
    pool.may_give.set()
    one._pool = cast("Pool", pool)
    with pytest.raises(NotStarted):
        await first(one, order(Python("code")))
    assert not one._runs


async def test_a_container_whose_run_may_not_have_it_any_more_is_given_back(tmp_path: Path) -> None:
    def gone() -> None:
        raise NotStarted("isolation")

    one, pool = provider(tmp_path), FakePool()
    vars(pool.container).update(vars(FakeSandbox()))
    one._pool = cast("Pool", pool)
    pool.may_give.set()
    with pytest.raises(NotStarted, match="isolation"):
        await first(one, order(Python("code"), confirm=gone))
    assert pool.back == [pool.container]
    assert not one._runs


async def test_what_it_does_not_run_is_not_started(tmp_path: Path) -> None:
    one = provider(tmp_path)
    one._pool = cast("Pool", FakePool())
    with pytest.raises(NotStarted):
        await first(one, order(Module("m")))


@dataclass
class FakeWall:
    ended: bool
    unchanged: bool

    def same(self) -> bool:
        return self.unchanged


@pytest.mark.parametrize(("ended", "unchanged"), [(False, True), (True, True), (True, False)])
def test_a_container_that_died_is_no_changed_wall(ended: object, unchanged: object) -> None:
    box = cast("Container", FakeSandbox())
    vars(box)["sight"] = FakeWall(bool(ended), bool(unchanged))
    assert DockerProvider._recheck(box) is bool(unchanged)


async def test_a_wall_that_changed_is_told_before_the_end_of_the_run(tmp_path: Path) -> None:
    told: list[str] = []
    one = provider(tmp_path)
    await one.open(told.append)
    box = cast("Container", FakeSandbox())
    vars(box)["sight"] = FakeWall(ended=False, unchanged=False)
    with pytest.raises(Unproven):
        DockerProvider._recheck(box)
    one._look_back(box)
    assert told == [WALL_CHANGED]
    await one.close()


@dataclass
class DeadBox:
    """Its end was told, if it has an exit code."""

    exit_code: int | None
    sight: Unsighted = field(default_factory=lambda: Unsighted("pid_unknown", 1 << 20))

    async def died(self) -> Death:
        return Death(self.exit_code)


class FakeLooker:
    base = None

    async def observations(self, _container: object) -> tuple[Observation, ...]:
        return (Observation("local_proof", "pid_unknown", "host", "looked", Tier.CONTAINER),)


@pytest.mark.parametrize(("exit_code", "told"), [(137, NotMade), (None, Unproven)])
async def test_a_container_that_died_before_it_was_seen_is_no_changed_wall_either(
    tmp_path: Path, exit_code: int | None, told: type[Exception]
) -> None:
    one = provider(tmp_path)
    one._looker = cast("Looker", FakeLooker())
    with pytest.raises(told):
        await one._examine(cast("Container", DeadBox(exit_code)))
