"""The files of a SQLite store: ours alone, refused otherwise, and served by one process."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app.store.store import open_store, other_owner
from app.store.values import StoreUnusable
from tests.integration.store.samples import Clock, caller, new_id, starting


async def refused(url: str, match: str) -> None:
    with pytest.raises(StoreUnusable, match=match):
        async with open_store(url, clock=Clock()):
            pass


def place(path: Path, content: bytes = b"") -> None:
    path.parent.mkdir()
    path.write_bytes(content)


def modes(directory: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


async def test_every_file_is_0600_in_a_0700_directory_whatever_the_umask(
    sqlite_url: str, sqlite_path: Path
) -> None:
    os.umask(0o000)
    async with open_store(sqlite_url, clock=Clock()) as store:
        await store.runs.insert_starting(starting(new_id()))
        names = ("plimsoll.db", "plimsoll.db-shm", "plimsoll.db-wal", "plimsoll.db.lock")
        assert modes(sqlite_path.parent) == dict.fromkeys(names, 0o600)
    assert stat.S_IMODE(sqlite_path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777])
async def test_a_directory_that_others_can_reach_is_refused(
    sqlite_url: str, sqlite_path: Path, mode: int
) -> None:
    sqlite_path.parent.mkdir()
    sqlite_path.parent.chmod(mode)
    await refused(sqlite_url, "make it 700")
    assert modes(sqlite_path.parent) == {}


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".lock"])
async def test_a_file_that_others_can_reach_is_refused(
    sqlite_url: str, sqlite_path: Path, suffix: str
) -> None:
    sqlite_path.parent.mkdir()
    path = sqlite_path.with_name(sqlite_path.name + suffix)
    path.touch()
    path.chmod(0o640)
    await refused(sqlite_url, "make it 600")


@pytest.mark.parametrize("suffix", ["", "-wal", ".lock"])
async def test_a_link_is_never_followed(
    sqlite_url: str, sqlite_path: Path, suffix: str, tmp_path: Path
) -> None:
    sqlite_path.parent.mkdir()
    target = tmp_path / "target"
    sqlite_path.with_name(sqlite_path.name + suffix).symlink_to(target)
    await refused(sqlite_url, "must be a regular file")
    assert not target.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("what", ["directory", "file"])
async def test_what_belongs_to_somebody_else_is_refused(
    sqlite_url: str, sqlite_path: Path, what: str
) -> None:
    place(sqlite_path)
    os.chown(sqlite_path.parent if what == "directory" else sqlite_path, 12_345, 12_345)
    await refused(sqlite_url, "belongs to uid 12345")
    found = other_owner(sqlite_url)
    assert found == ((sqlite_path.parent, 12_345) if what == "directory" else None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_root_makes_no_directory_inside_somebody_elses(tmp_path: Path) -> None:
    os.chown(tmp_path, 12_345, 12_345)
    url = f"sqlite+aiosqlite:///{tmp_path / 'new' / 'deeper' / 'plimsoll.db'}"
    assert other_owner(url) == (tmp_path, 12_345)


async def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    place(tmp_path / "data" / "file")
    await refused(
        f"sqlite+aiosqlite:///{tmp_path / 'data' / 'file' / 'deeper' / 'plimsoll.db'}", "Not a directory"
    )


async def test_a_file_that_is_no_database_is_refused(sqlite_url: str, sqlite_path: Path) -> None:
    place(sqlite_path, b"this is not a database, and long enough to be looked at " * 10)
    await refused(sqlite_url, "cannot be opened as a database")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite+aiosqlite:///:memory:",
        "sqlite+aiosqlite://",
        "sqlite+aiosqlite:////tmp/x.db?mode=ro",
        "sqlite:////tmp/x.db",
        "mysql://x/y",
    ],
)
async def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    await refused(url, "database URL")


async def test_a_second_service_on_the_file_is_refused_while_the_first_lives(
    sqlite_url: str, sqlite_path: Path
) -> None:
    program = (
        "import asyncio\n"
        "from app.store.store import open_store\n"
        "async def main():\n"
        f"    async with open_store({sqlite_url!r}, clock=lambda: 1): print('served')\n"
        "asyncio.run(main())\n"
    )

    def second() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
        )

    async with open_store(sqlite_url, clock=Clock()) as store:
        assert "another plimsolld serves" in second().stderr
        await refused(sqlite_url, "another plimsolld serves")
        async with open_store(sqlite_url, clock=Clock(), sole_owner=False) as beside:
            await beside.callers.create(caller())
        assert await store.callers.any_exist()
    assert second().stdout == "served\n"
