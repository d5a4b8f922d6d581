"""When the ballast is made, given back, and made anew."""

import shutil
from pathlib import Path

import pytest

from app.store.ballast import MOST_BYTES, Ballast, Disk

GIB = 1 << 30


class FakeDisk:
    """A file system of 1 GiB that is as full as the test says."""

    free = GIB // 2

    def __call__(self, _: Path) -> Disk:
        return Disk(GIB, self.free)


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture
def ballast(tmp_path: Path, disk: FakeDisk) -> Ballast:
    return Ballast(tmp_path / "plimsoll.db", disk)


def test_it_is_made_once_and_given_back_when_the_disk_is_full(ballast: Ballast, disk: FakeDisk) -> None:
    assert [ballast.tend(), ballast.tend()] == ["made", None]
    assert (ballast.path.name, ballast.path.stat().st_size) == ("plimsoll.db.ballast", MOST_BYTES)
    disk.free = GIB // 50
    assert ballast.tend() is None
    disk.free = GIB // 101
    assert ballast.tend() == "released"
    assert not ballast.path.exists()


def test_it_is_made_anew_only_where_a_tenth_stays_free_and_until_then_it_is_no_room(
    ballast: Ballast, disk: FakeDisk
) -> None:
    disk.free = GIB // 10 + MOST_BYTES - 1
    assert ballast.tend() is None
    assert ballast.missing_bytes(disk(ballast.path)) == MOST_BYTES
    disk.free = GIB // 10 + MOST_BYTES + 1
    assert ballast.tend() == "made"
    assert ballast.missing_bytes(disk(ballast.path)) == 0


def test_a_small_disk_gives_a_fifth(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path / "plimsoll.db", lambda _: Disk(10 << 20, 9 << 20))
    assert ballast.tend() == "made"
    assert ballast.path.stat().st_size == 2 << 20


def test_one_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    size = 1_000 * shutil.disk_usage(tmp_path).total
    ballast = Ballast(tmp_path / "gone" / "plimsoll.db", lambda _: Disk(size, size))
    with pytest.raises(OSError, match="No such file"):
        ballast.tend()
