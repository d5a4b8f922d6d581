"""The table of names: what is in it, whose it is, and what is removed."""

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.docker import names as names_module
from providers.docker.daemon import DaemonError
from providers.docker.names import PREFIX, Names, Reaper, StateRefused, uid_of

HOST = "unix:///var/run/docker.sock"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    place = tmp_path / "state"
    place.mkdir(0o700)
    return place


@pytest.fixture
def names(state: Path) -> Iterator[Names]:
    with Names(str(state), HOST) as made:
        yield made


def killed(names: Names) -> None:
    """The process that held this table is gone."""
    os.close(names._lock)
    names._lock = os.open(os.devnull, os.O_RDONLY)


class Containers:
    """What a daemon has, by name; `failing` ones cannot be removed."""

    def __init__(self, *there: str, failing: tuple[str, ...] = ()) -> None:
        self.there = set(there)
        self.failing = set(failing)
        self.asked: list[str] = []

    async def remove(self, name: str) -> bool:
        self.asked.append(name)
        if name in self.failing:
            raise DaemonError("failed", 500)
        was = name in self.there
        self.there.discard(name)
        return was


def test_a_name_is_random_and_written_down_at_once(names: Names) -> None:
    name = names.new()
    assert re.fullmatch(r"plimsoll-[0-9a-f]{32}", name)
    assert (names._place / name).exists()
    assert names.new() != name


def test_what_is_looked_after_is_no_stray(names: Names) -> None:
    kept, left, gone = names.new(), names.new(), names.new()
    names.abandon(left)
    names.forget(gone)
    assert names.strays() == [left]
    assert (names._place / kept).exists()
    assert not (names._place / gone).exists()


def test_an_empty_table_leaves_nothing(state: Path) -> None:
    with Names(str(state), HOST) as names:
        names.forget(names.new())
    assert not names._place.exists()


def test_a_table_with_names_stays_for_the_next_process(state: Path) -> None:
    with Names(str(state), HOST) as first:
        name = first.new()
    with Names(str(state), HOST) as second:
        assert second.strays() == [name]


def test_what_a_dead_process_left_is_taken_over(state: Path, names: Names) -> None:
    name = names.new()
    killed(names)
    with Names(str(state), HOST) as next_one:
        assert next_one.strays() == [name]
        next_one.forget(name)
    assert not any(names._home.iterdir())


def test_the_table_of_a_process_that_lives_is_never_touched(state: Path, names: Names) -> None:
    names.abandon(names.new())
    with Names(str(state), HOST) as other:
        assert other.strays() == []
        assert other._place != names._place
    assert len(names.strays()) == 1


def test_names_mean_nothing_to_another_daemon(state: Path, names: Names) -> None:
    names.new()
    killed(names)
    with Names(str(state), "tcp://127.0.0.1:2375") as other:
        assert other.strays() == []


def test_only_names_of_ours_are_strays(names: Names) -> None:
    for name in ("plimsoll-x", "other", "plimsoll-" + "g" * 32):
        (names._place / name).touch()
    assert names.strays() == []


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_a_state_directory_that_others_may_use_is_refused(state: Path, mode: int) -> None:
    state.chmod(mode)
    with pytest.raises(StateRefused), Names(str(state), HOST):
        pass


def test_a_link_is_no_state_directory(state: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(state)
    with pytest.raises(StateRefused), Names(str(tmp_path / "link"), HOST):
        pass


async def test_a_stray_is_removed_and_forgotten(names: Names) -> None:
    name, mine = names.new(), names.new()
    names.abandon(name)
    containers = Containers(name, mine, "somebody-elses")
    assert await Reaper(names, containers.remove).sweep()
    assert containers.there == {mine, "somebody-elses"}
    assert names.strays() == []


async def test_a_container_that_may_still_come_to_be_is_looked_for_again(names: Names) -> None:
    name = names.new()
    names.abandon(name)
    containers = Containers()
    reaper = Reaper(names, containers.remove)
    assert await reaper.sweep()
    assert names.strays() == [name]
    containers.there.add(name)
    assert await reaper.sweep()
    assert (names.strays(), containers.there) == ([], set())


@pytest.mark.parametrize("settled", ["made", "old"])
def test_one_that_cannot_come_to_be_any_more_is_settled(names: Names, settled: str) -> None:
    name = names.new()
    assert not names.settled(name)
    if settled == "made":
        names.made(name, "a" * 64)
    else:
        old = (names._place / name).stat().st_mtime - names_module.MAKING_S - 1
        os.utime(names._place / name, (old, old))
    assert names.settled(name)


async def test_one_that_cannot_be_removed_keeps_no_other_from_it_and_is_logged_by_its_code(
    names: Names, capsys: pytest.CaptureFixture[str]
) -> None:
    left = sorted(names.new() for _ in range(3))
    for name in left:
        names.abandon(name)
    containers = Containers(*left, failing=(left[0],))
    reaper = Reaper(names, containers.remove)
    assert not await reaper.sweep()
    assert names.strays() == [left[0]]
    assert capsys.readouterr().err == '{"event": "container-not-removed", "code": "failed"}\n'
    containers.failing.clear()
    assert await reaper.sweep()
    assert names.strays() == []


async def test_it_goes_on_by_itself_until_all_are_gone(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "_PAUSES", (0.001, 0.002))
    name = names.new()
    names.abandon(name)
    containers = Containers(name, failing=(name,))
    task = asyncio.create_task(Reaper(names, containers.remove).run())
    while len(containers.asked) < 5:
        await asyncio.sleep(0.001)
    containers.failing.clear()
    while names.strays():
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert containers.there == set()


async def test_a_look_is_taken_when_it_is_wanted(names: Names) -> None:
    containers = Containers()
    reaper = Reaper(names, containers.remove)
    task = asyncio.create_task(reaper.run())
    await asyncio.sleep(0)
    name = names.new()
    names.abandon(name)
    reaper.wanted.set()
    while not containers.asked:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert containers.asked == [name]


# --- what processes are left ----------------------------------------------------------------------------------------------


class Processes:
    """Of containers, by id; `stubborn` ones cannot be ended."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.stubborn: set[str] = set()

    def end(self, ids: frozenset[str]) -> frozenset[str]:
        self.there -= ids - self.stubborn
        return ids & self.there


OURS, OTHER, STRANGER = "a" * 64, "b" * 64, "c" * 64


def test_the_id_of_a_container_outlives_its_process(state: Path, names: Names) -> None:
    made, never = names.new(), names.new()
    names.made(made, OURS)
    killed(names)
    with Names(str(state), HOST) as next_one:
        assert next_one.strays() == sorted([made, never])
        assert next_one.doubtful == {made}
        assert next_one.settled(made)


def test_a_table_that_somebody_wrote_nonsense_into_names_no_process(state: Path, names: Names) -> None:
    (names._place / names.new()).write_text("1 2 3")
    killed(names)
    with Names(str(state), HOST) as next_one:
        assert next_one.doubtful == set()


async def test_processes_of_strays_are_ended_and_no_others(names: Names) -> None:
    stray, mine = names.new(), names.new()
    names.made(stray, OURS)
    names.made(mine, OTHER)
    names.abandon(stray)
    assert names.doubtful == {stray}
    processes = Processes(OURS, OTHER, STRANGER)
    assert await Reaper(names, Containers(stray).remove, processes.end).sweep()
    assert processes.there == {OTHER, STRANGER}
    assert (names.doubtful, names.strays()) == (set(), [])


async def test_they_are_ended_also_while_there_is_no_daemon(
    names: Names, capsys: pytest.CaptureFixture[str]
) -> None:
    stray = names.new()
    names.made(stray, OURS)
    names.abandon(stray)
    processes, told = Processes(OURS), list[int]()
    reaper = Reaper(
        names, Containers(failing=(stray,)).remove, processes.end, lambda: told.append(len(names.doubtful))
    )
    assert not await reaper.sweep()
    assert (processes.there, names.doubtful, told) == (set(), set(), [0])
    assert names.strays() == [stray]
    assert "failed" in capsys.readouterr().err


async def test_a_container_that_the_daemon_forgot_counts_until_its_processes_have_ended(
    names: Names, capsys: pytest.CaptureFixture[str]
) -> None:
    stray = names.new()
    names.made(stray, OURS)
    names.abandon(stray)
    processes = Processes(OURS)
    processes.stubborn = {OURS}
    reaper = Reaper(names, Containers().remove, processes.end)
    assert not await reaper.sweep()
    assert (names.doubtful, names.strays()) == ({stray}, [stray])
    assert "processes_left" in capsys.readouterr().err
    processes.stubborn = set()
    assert await reaper.sweep()
    assert (names.doubtful, names.strays()) == (set(), [])


def test_no_two_names_of_a_table_have_a_uid_in_common(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is what counts: a name in it may still have a container."""
    first = names.new()
    again = iter([first[len(PREFIX) :], "f" * 24 + first[-8:], "0" * 32])
    monkeypatch.setattr("secrets.token_hex", lambda _: next(again))
    assert names.new() == PREFIX + "0" * 32


def test_uids_are_in_pairs_above_everybody_elses_and_below_the_sign() -> None:
    found = [uid_of(PREFIX + f"{number:032x}") for number in (0, 1, 2**27 - 1, 2**27, 2**128 - 1)]
    assert found == [0x7000_0000, 0x7000_0002, 0x7FFF_FFFE, 0x7000_0000, 0x7FFF_FFFE]
