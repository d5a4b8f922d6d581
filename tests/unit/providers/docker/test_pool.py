"""The pool: what waits, who gets it, what is never exceeded, and how it goes on when containers or the daemon do not."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from providers.docker import names as names_module
from providers.docker import pool as pool_module
from providers.docker.container import Container
from providers.docker.names import Names
from providers.docker.pool import Pool, Unproven
from providers.docker.settings import DockerSettings
from providers.seam import NotStarted
from tests.support.fake_docker import FakeDaemon

IMAGE = "sha256:" + "ab" * 32


@dataclass
class World:
    """A pool, the daemon under it, and everything that it was told or asked."""

    daemon: FakeDaemon
    names: Names
    settings: DockerSettings
    dropped: list[str] = field(default_factory=list)
    fault: str | None = None
    """What the next examinations find."""
    changed: str | None = None
    """What the next looks at waiting containers find."""
    dead: set[str] = field(default_factory=set)
    unseen: set[str] = field(default_factory=set)
    """Those at which a look fails in a way that nobody thought of."""
    made: Pool | None = None

    def pool(self) -> Pool:
        self.made = Pool(
            self.daemon,
            self.settings,
            IMAGE,
            False,
            self.names,
            self.examine,
            self.drop,
            self.recheck,
        )
        return self.made

    def drop(self, fault: str) -> None:
        """As a provider does."""
        self.dropped.append(fault)
        if self.made is not None:
            self.made.empty()

    async def examine(self, container: Container) -> None:
        await asyncio.sleep(0)
        assert container.id
        if self.fault is not None:
            raise Unproven(self.fault)

    def recheck(self, container: Container) -> bool:
        if self.changed is not None:
            raise Unproven(self.changed)
        if container.id in self.unseen:
            raise ValueError
        return container.id not in self.dead


Make = Callable[..., "contextlib.AbstractAsyncContextManager[tuple[World, Pool]]"]


async def until(truth: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not truth():
            await asyncio.sleep(0)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Opens a pool: `slots` at once, `pool` waiting for each language; `full` waits until they do."""
    tmp_path.chmod(0o700)

    @contextlib.asynccontextmanager
    async def opened(
        slots: int = 20, pool: int = 2, *, full: bool = True
    ) -> AsyncIterator[tuple[World, Pool]]:
        settings = DockerSettings(provider="docker", state_dir=str(tmp_path), slots=slots, pool=pool)
        with Names(str(tmp_path), settings.host) as names:
            world = World(FakeDaemon(), names, settings)
            async with world.pool() as made:
                if full:
                    await until(lambda: made.waiting() == min(slots, 2 * pool))
                yield world, made

    return opened


# --- what waits -----------------------------------------------------------------------------------------------------------


async def test_containers_wait_for_each_language_and_no_more_than_asked_for(make: Make) -> None:
    async with make(pool=3) as (world, pool):
        await asyncio.sleep(0.05)
        assert Counter(tuple(box.words) for box in world.daemon.boxes.values()) == {
            ("python",): 3,
            ("javascript",): 3,
        }
        assert (pool.waiting(), pool.alive()) == (6, 6)


async def test_at_most_two_are_made_at_once_in_the_background(make: Make) -> None:
    async with make(pool=4) as (world, _):
        assert world.daemon.most_starting == 2


async def test_a_container_without_its_interpreter_is_given_to_nobody(make: Make) -> None:
    async with make(full=False) as (world, pool):
        world.daemon.cold = True
        with pytest.raises(NotStarted):
            await pool.take("javascript")
        assert pool.waiting() == 0


async def test_one_that_was_taken_is_replaced(make: Make) -> None:
    async with make() as (_, pool):
        await pool.take("python")
        await until(lambda: pool.waiting() == 4)


async def test_its_successor_is_not_made_while_most_runs_are_under_way_nor_put_off_by_further_ones(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "REFILL_S", 0.3)
    async with make() as (world, pool):
        loop = asyncio.get_running_loop()
        began, made = loop.time(), len(world.daemon.created)
        await pool.take("python")
        while len(world.daemon.created) == made and loop.time() < began + 10:
            if pool.waiting() == 3 and loop.time() > began + 0.15:
                await pool.take("python")
            await asyncio.sleep(0.01)
        assert loop.time() - began >= 0.3
        assert pool._refill_at < began + 0.4
        await until(lambda: pool.waiting() == 4)


async def test_one_that_dies_while_it_waits_is_replaced(make: Make) -> None:
    async with make(pool=1) as (world, pool):
        before = set(world.daemon.boxes)
        world.daemon.die(next(iter(world.daemon.boxes.values())).id)
        assert pool.waiting() == 1
        await until(lambda: pool.waiting() == 2 and pool.alive() == 2)
        assert len(before & set(world.daemon.boxes)) == 1
        assert world.dropped == []


async def test_one_that_is_found_dead_at_a_look_is_replaced(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "LOOK_S", 0.01)
    async with make(pool=1) as (world, pool):
        world.dead = {box.id for box in world.daemon.boxes.values()}
        await until(lambda: not world.dead & {box.id for box in world.daemon.boxes.values()})
        await until(lambda: pool.waiting() == 2)


async def test_nothing_waits_when_none_is_to_wait_and_runs_are_served_all_the_same(make: Make) -> None:
    async with make(pool=0) as (world, pool):
        assert world.daemon.created == []
        assert (await pool.take("python")).language == "python"
        assert pool.alive() == 1


# --- who gets what --------------------------------------------------------------------------------------------------------


async def test_a_run_gets_a_waiting_container_of_its_language_with_the_interpreter_warm(make: Make) -> None:
    async with make() as (world, pool):
        made = list(world.daemon.created)
        container = await pool.take("javascript")
        assert (container.language, container.warm) == ("javascript", ("javascript",))
        assert container.name in made
        assert (len(container.id), container.talk.ready) == (64, True)


async def test_no_container_serves_twice(make: Make) -> None:
    async with make() as (_, pool):
        seen = []
        for _ in range(30):
            container = await pool.take("python")
            seen.append(container.id)
            pool.give_back(container)
        assert len(set(seen)) == 30


async def test_of_two_runs_at_once_one_gets_the_container_that_waits(make: Make) -> None:
    async with make(pool=1) as (world, pool):
        made = list(world.daemon.created)
        both = await asyncio.gather(pool.take("python"), pool.take("python"))
        assert len({container.id for container in both}) == 2
        assert sum(container.name in made for container in both) == 1


async def test_a_project_gets_any_container_that_waits(make: Make) -> None:
    async with make(pool=1) as (world, pool):
        made = list(world.daemon.created)
        for _ in range(2):
            assert (await pool.take(None)).name in made


async def test_a_project_leaves_the_scarcer_language_alone(make: Make) -> None:
    async with make(pool=2) as (world, pool):
        world.daemon.may_start.clear()
        await pool.take("python")
        assert (await pool.take(None)).language == "javascript"


async def test_a_run_without_a_waiting_container_is_the_first_to_get_one_that_is_made(make: Make) -> None:
    async with make(pool=1) as (world, pool):
        world.daemon.may_start.clear()
        await pool.take("python")
        waits = asyncio.create_task(pool.take("python"))
        await until(lambda: world.daemon.starting == 1)
        world.daemon.may_start.set()
        container = await waits
        assert container.language == "python"


async def test_given_back_it_is_cut_off_and_removed_with_its_name(make: Make) -> None:
    async with make(pool=0) as (world, pool):
        container = await pool.take("python")
        stream = world.daemon.box(container.id).stream
        pool.give_back(container)
        pool.give_back(container)
        await until(lambda: pool.alive() == 0)
        assert stream.cut
        assert world.daemon.boxes == {}
        assert not any(world.names._place.iterdir())


# --- what is never exceeded -----------------------------------------------------------------------------------------------


async def test_waiting_ones_fit_into_the_slots(make: Make) -> None:
    async with make(slots=3, pool=2) as (world, pool):
        await asyncio.sleep(0.05)
        assert (pool.waiting(), len(world.daemon.created)) == (3, 3)


async def test_a_waiting_one_of_another_language_gives_way_to_a_run(make: Make) -> None:
    async with make(slots=2, pool=1) as (world, pool):
        first = await pool.take("python")
        second = await pool.take("python")
        assert {first.language, second.language} == {"python"}
        assert world.daemon.most_boxes == 2
        assert pool.alive() == 2


async def test_a_container_counts_until_it_is_gone(make: Make) -> None:
    async with make(slots=1, pool=0) as (world, pool):
        world.daemon.may_remove.clear()
        pool.give_back(await pool.take("python"))
        waits = asyncio.create_task(pool.take("python"))
        await asyncio.sleep(0.05)
        assert (len(world.daemon.created), pool.alive()) == (1, 1)
        world.daemon.may_remove.set()
        await waits
        assert world.daemon.most_boxes == 1


async def test_what_a_dead_daemon_left_counts_until_it_is_gone(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_module, "_PAUSES", (0.001,))
    left = {"a" * 64}
    async with make(slots=1, pool=0) as (world, pool):
        pool._reaper._end = lambda ids: ids & left
        world.names.made(stray := world.names.new(), "a" * 64)
        world.names.abandon(stray)
        waits = asyncio.create_task(pool.take("python"))
        pool._reaper.wanted.set()
        await asyncio.sleep(0.05)
        assert world.daemon.created == []
        left.clear()
        assert (await waits).language == "python"
        assert world.names.strays() == []


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_is_asked_for_in_whatever_order_the_slots_are_enough_and_never_exceeded(
    make: Make, seed: int
) -> None:
    chance = random.Random(seed)
    async with make(slots=5, pool=chance.randrange(4), full=False) as (world, pool):
        runs = asyncio.Semaphore(5)

        async def run() -> None:
            async with runs:
                container = await pool.take(chance.choice(["python", "javascript", None]))
                assert len(world.daemon.boxes) <= 5
                for _ in range(chance.randrange(5)):
                    await asyncio.sleep(0)
                    if chance.random() < 0.1 and world.daemon.boxes:
                        with contextlib.suppress(KeyError):
                            world.daemon.die(chance.choice(list(world.daemon.boxes.values())).id)
                pool.give_back(container)

        async with asyncio.timeout(30):
            await asyncio.gather(*(run() for _ in range(60)))
        assert world.daemon.most_boxes <= 5
        assert pool.alive() <= 5


# --- walls ----------------------------------------------------------------------------------------------------------------


async def test_a_container_that_is_not_behind_the_wall_never_waits(make: Make) -> None:
    async with make(full=False) as (world, pool):
        world.fault = "runtime_other"
        await until(lambda: len(world.dropped) > 1)
        assert set(world.dropped) == {"runtime_other"}
        assert pool.waiting() == 0
        await until(lambda: not world.daemon.boxes)


async def test_a_run_is_refused_at_once_when_the_wall_is_not_proven(make: Make) -> None:
    async with make(pool=0) as (world, pool):
        world.fault = "runtime_other"
        with pytest.raises(NotStarted):
            await pool.take("python")
        assert world.dropped == ["runtime_other"]
        assert len(world.daemon.created) == 1


async def test_a_waiting_one_that_died_unheard_is_skipped(make: Make) -> None:
    async with make(pool=2) as (world, pool):
        waiting = [box.id for box in world.daemon.boxes.values() if box.words == ["python"]]
        world.dead = {waiting[0]}
        assert (await pool.take("python")).id == waiting[1]
        assert world.dropped == []


async def test_a_wall_that_changed_under_a_waiting_one_is_told_and_nothing_of_it_is_used(make: Make) -> None:
    async with make(pool=1) as (world, pool):
        before = {box.id for box in world.daemon.boxes.values()}
        world.changed = world.fault = "executable_changed"
        with pytest.raises(NotStarted):
            await pool.take("python")
        assert "executable_changed" in world.dropped
        world.changed = world.fault = None
        assert (await pool.take("python")).id not in before


async def test_a_wall_that_changed_under_several_that_wait_is_told_once_and_all_of_them_go(
    make: Make,
) -> None:
    async with make(pool=3) as (world, pool):
        before = {box.id for box in world.daemon.boxes.values()}
        world.daemon.may_create.clear()
        world.changed = "wall_changed"
        with pytest.raises(NotStarted):
            await pool.take("python")
        assert (world.dropped, pool.waiting()) == (["wall_changed"], 0)
        world.changed = None
        world.daemon.may_create.set()
        assert (await pool.take("python")).id not in before


async def test_one_that_cannot_be_looked_at_is_skipped(make: Make) -> None:
    async with make(pool=2) as (world, pool):
        waiting = [box.id for box in world.daemon.boxes.values() if box.words == ["python"]]
        world.unseen = {waiting[0]}
        assert (await pool.take("python")).id == waiting[1]
        assert world.dropped == []


async def test_emptied_the_pool_uses_nothing_that_was_made_or_begun_before(make: Make) -> None:
    async with make(pool=1) as (world, pool):
        world.daemon.may_start.clear()
        await pool.take("python")
        await until(lambda: world.daemon.starting == 1)
        before = set(world.daemon.created)
        pool.empty()
        assert pool.waiting() == 0
        world.daemon.may_start.set()
        await until(lambda: pool.waiting() == 2)
        taken = [await pool.take(language) for language in ("python", "javascript")]
        assert not {container.name for container in taken} & before


# --- what goes wrong ------------------------------------------------------------------------------------------------------


async def test_a_run_is_told_when_containers_cannot_be_made(make: Make) -> None:
    async with make(pool=0) as (world, pool):
        world.daemon.create_error = "failed"
        with pytest.raises(NotStarted):
            await pool.take("python")
        assert len(world.daemon.created) == 2


async def test_one_that_could_not_be_made_is_kept_in_mind_in_case_it_comes_to_be(make: Make) -> None:
    async with make(pool=0) as (world, pool):
        world.daemon.create_error = "timeout"
        with pytest.raises(NotStarted):
            await pool.take("python")
        await until(lambda: pool.alive() == 0)
        assert world.names.strays() == sorted(world.daemon.created)


async def test_failing_it_tries_more_and_more_slowly_and_recovers(make: Make) -> None:
    async with make(pool=1, full=False) as (world, pool):
        world.daemon.create_error = "failed"
        await asyncio.sleep(0.5)
        assert 2 <= len(world.daemon.created) <= 8
        world.daemon.create_error = None
        await until(lambda: pool.waiting() == 2)


async def test_an_agent_that_says_nothing_is_not_waited_for_for_ever(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.docker.container.READY_S", 0.01)
    async with make(pool=0) as (world, pool):
        world.daemon.silent = True
        with pytest.raises(NotStarted):
            await pool.take("python")
        await until(lambda: not world.daemon.boxes)


async def test_a_run_does_not_wait_for_a_container_for_ever(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "TAKE_S", 0.01)
    async with make(pool=0) as (world, pool):
        world.daemon.may_start.clear()
        with pytest.raises(NotStarted):
            await pool.take("python")


async def test_a_run_that_gives_up_leaves_its_container_to_others(make: Make) -> None:
    async with make(pool=1) as (world, pool):
        world.daemon.may_start.clear()
        await pool.take("python")
        gives_up = asyncio.create_task(pool.take("python"))
        await until(lambda: world.daemon.starting == 1)
        given_up = world.daemon.created[-1]
        gives_up.cancel()
        await asyncio.gather(gives_up, return_exceptions=True)
        world.daemon.may_start.set()
        await until(lambda: pool.waiting() == 2)
        assert (await pool.take("python")).name == given_up


@pytest.mark.parametrize("language", ["python", None])
async def test_what_was_made_for_a_run_that_gave_up_does_not_wait_beside_a_full_pool(
    make: Make, language: str | None
) -> None:
    async with make(pool=0) as (world, pool):
        world.daemon.may_start.clear()
        gives_up = asyncio.create_task(pool.take(language))
        await until(lambda: world.daemon.starting == 1)
        gives_up.cancel()
        await asyncio.gather(gives_up, return_exceptions=True)
        world.daemon.may_start.set()
        await until(lambda: pool.alive() == 0)
        assert (pool.waiting(), world.daemon.boxes) == (0, {})


async def test_a_run_that_gives_up_as_its_container_comes_does_not_lose_it(make: Make) -> None:
    async with make(pool=0) as (world, pool):
        claim = asyncio.create_task(pool.take("python"))
        while not pool._running:
            await asyncio.sleep(0)
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)
        for container in list(pool._running):
            pool.give_back(container)
        await until(lambda: pool.alive() == 0)
        assert world.daemon.boxes == {}


async def test_a_daemon_that_is_lost_takes_the_waiting_ones_along_and_is_told(make: Make) -> None:
    async with make(pool=1) as (world, pool):
        before = set(world.daemon.boxes)
        world.daemon.remove_error = world.daemon.create_error = "unreachable"
        world.daemon.on_lost()
        assert world.dropped == ["daemon_gone"]
        assert pool.waiting() == 0
        with pytest.raises(NotStarted):
            await pool.take("python")
        world.daemon.remove_error = world.daemon.create_error = None
        await until(lambda: pool.waiting() == 2)
        await until(lambda: not before & set(world.daemon.boxes))


async def test_when_the_daemon_is_back_it_goes_on_at_once_however_often_it_failed(make: Make) -> None:
    async with make(pool=1) as (world, pool):
        world.daemon.remove_error = world.daemon.create_error = "unreachable"
        for _ in range(8):
            world.daemon.on_lost()
        pause_s = pool._retry_at - asyncio.get_running_loop().time()
        world.daemon.remove_error = world.daemon.create_error = None
        pool.retry()
        async with asyncio.timeout(pause_s / 4):
            await until(lambda: pool.waiting() == 2)


# --- its end --------------------------------------------------------------------------------------------------------------


async def test_at_the_end_everything_is_gone_whatever_it_was_doing(make: Make) -> None:
    async with make(slots=6, pool=1) as (world, pool):
        await pool.take("python")
        world.daemon.may_start.clear()
        waits = asyncio.create_task(pool.take("python"))
        await until(lambda: world.daemon.starting > 0)
    with pytest.raises(NotStarted):
        await waits
    with pytest.raises(NotStarted):
        await pool.take("python")
    assert (world.daemon.boxes, pool.alive()) == ({}, 0)
    assert not world.names._place.exists()


@contextlib.asynccontextmanager
async def making(make: Make) -> AsyncIterator[tuple[World, Pool]]:
    """A pool whose two containers are just being made, and stay so."""
    async with make(pool=1, full=False) as (world, pool):
        world.daemon.may_create.clear()
        await until(lambda: len(world.daemon.created) == 2)
        yield world, pool


async def test_one_that_is_being_made_at_the_end_is_waited_for_and_removed(make: Make) -> None:
    async with making(make) as (world, pool):
        asyncio.get_running_loop().call_later(0.1, world.daemon.may_create.set)
    assert world.daemon.most_boxes == 2
    assert (world.daemon.boxes, pool.alive()) == ({}, 0)
    assert not world.names._place.exists()


async def test_one_that_would_not_end_by_itself_is_waited_for_longer_than_the_others(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "CLOSE_S", 0.01)
    async with making(make) as (world, pool):
        asyncio.get_running_loop().call_later(0.2, world.daemon.may_create.set)
    assert (world.daemon.boxes, pool.alive()) == ({}, 0)
    assert not world.names._place.exists()


async def test_not_even_that_one_is_waited_for_without_end(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "CLOSE_S", 0.01)
    monkeypatch.setattr(pool_module, "LEFTOVER_S", 0.1)
    async with making(make) as (world, _):
        pass
    assert {path.name for path in world.names._place.iterdir()} == set(world.daemon.created)


async def test_the_end_does_not_wait_for_a_daemon_that_hangs_and_forgets_no_name(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "CLOSE_S", 0.05)
    async with make(pool=1) as (world, pool):
        world.daemon.may_remove.clear()
        streams = [box.stream for box in world.daemon.boxes.values()]
    assert all(stream.cut for stream in streams)
    assert {path.name for path in world.names._place.iterdir()} == set(world.daemon.boxes)
    assert pool.alive() == 0
