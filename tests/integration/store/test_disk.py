"""A SQLite file on a small file system of its own: one caller does not fill it, and what is deleted gives room back."""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.dispatch.disk import MIN_FREE
from app.main import storage_limit
from app.settings import Settings
from app.store import files, sqlite
from app.store.ballast import disk_of
from app.store.store import Store, open_store
from app.store.values import StorageExceeded, StoreUnavailable
from tests.integration.store.samples import ALICE, BOB, Clock, finished, new_id, starting
from tests.integration.store.test_upgrade import first_version

SIZE = 40 << 20
AT_ONCE = 256


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def url(disk: Path) -> str:
    return f"sqlite+aiosqlite:///{disk / 'plimsoll.db'}"


async def one(store: Store, caller_id: str, created: int) -> None:
    run = starting(new_id(), caller_id=caller_id, created=created)
    await store.runs.insert_starting(run)
    assert await store.runs.finish(run.id, finished(run.id, ended=created))


async def fill(store: Store, caller_id: str) -> int:
    """Runs of this caller until it may store no more; how many."""
    count = 0
    while True:
        done = await asyncio.gather(
            *(one(store, caller_id, 1_000) for _ in range(AT_ONCE)), return_exceptions=True
        )
        count += sum(each is None for each in done)
        refused = [each for each in done if each is not None]
        assert {type(each) for each in refused} <= {StorageExceeded}
        if refused:
            return count


async def forget(store: Store, before: int) -> int:
    """Retention; how many pages went back to the disk."""
    while await store.prune(before):
        pass
    pages = 0
    while went := await store.shrink():
        pages += went
    return pages


async def test_one_caller_does_not_fill_the_disk_and_retention_gives_its_room_back(disk: Path) -> None:
    async with open_store(url(disk), clock=Clock()) as store:
        store.runs.limit = storage_limit(Settings(), store.disk_bytes())
        empty = disk_of(disk).free
        assert await fill(store, ALICE) == SIZE // 4 // 2_048
        used = (disk / "plimsoll.db").stat().st_size
        assert empty - disk_of(disk).free < SIZE / 2
        free = store.free_fraction()
        assert free is not None
        assert free > MIN_FREE
        await one(store, BOB, 5_000)
        assert await forget(store, 2_000) > 1_000
        assert (disk / "plimsoll.db").stat().st_size < used / 10
        await one(store, ALICE, 5_000)


async def test_free_pages_of_the_file_count_as_room(disk: Path) -> None:
    async with open_store(url(disk), clock=Clock()) as store:
        store.runs.limit = storage_limit(Settings(), store.disk_bytes())
        await fill(store, ALICE)
        filler = disk / "filler"
        assert store.ballast
        assert store.ballast.tend() == "made"
        filler.write_bytes(bytes(disk_of(disk).free - SIZE // 25))
        full = store.free_fraction()
        while await store.prune(2_000):
            pass
        room = store.free_fraction()
        assert full is not None
        assert room is not None
        assert full < MIN_FREE < room
        filler.unlink()


async def test_on_a_full_disk_the_ballast_lets_ends_be_written_and_retention_make_room(disk: Path) -> None:
    async with open_store(url(disk), clock=Clock()) as store:
        assert store.ballast
        assert store.ballast.tend() == "made"
        open_run = starting(new_id(), created=5_000)
        await store.runs.insert_starting(open_run)
        for _ in range(8):
            await asyncio.gather(*(one(store, ALICE, 1_000) for _ in range(AT_ONCE)))
        with sqlite3.connect(disk / "plimsoll.db") as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        filler = disk / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(SIZE))
        with pytest.raises(StoreUnavailable):
            await store.prune(2_000)
        assert store.free_fraction() == 0.0
        assert store.ballast.tend() == "released"
        assert await store.runs.finish(open_run.id, finished(open_run.id))
        assert await forget(store, 2_000) > 0
        room = store.free_fraction()
        assert room is not None
        assert room < MIN_FREE  # what the ballast gave back is not for new runs
        filler.unlink()
        assert store.ballast.tend() == "made"
        assert (store.ballast.path.stat().st_mode & 0o777, store.ballast.path.stat().st_size) == (
            0o600,
            SIZE // 5,
        )


async def test_a_file_of_before_is_made_one_that_shrinks(disk: Path) -> None:
    path = disk / "plimsoll.db"
    files.prepare(path)
    with sqlite3.connect(path) as old:
        old.execute("PRAGMA auto_vacuum = NONE")
        old.execute("PRAGMA journal_mode = WAL")
        old.execute("CREATE TABLE was (x)")
        old.execute("DROP TABLE was")
    old.close()
    with sqlite.engine_for(path).connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        first_version(connection)
        connection.exec_driver_sql("COMMIT")
        assert connection.exec_driver_sql("PRAGMA auto_vacuum").scalar_one() == 0
    async with open_store(url(disk), clock=Clock()) as store:
        for _ in range(8):
            await asyncio.gather(*(one(store, ALICE, 1_000) for _ in range(AT_ONCE)))
        used = path.stat().st_size
        await store.runs.reconcile_at_start(1_000, "service_restarted")
        assert await forget(store, 2_000) > 500
        assert path.stat().st_size < used / 2


async def test_a_file_of_before_without_room_to_write_it_anew_is_served_as_it_is(disk: Path) -> None:
    """SQLite would need twice its size; free pages are then used again, and count as room."""
    path = disk / "plimsoll.db"
    files.prepare(path)
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE big (x)")
        old.execute("INSERT INTO big VALUES (zeroblob(?))", (26 << 20,))
        old.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        old.execute("DROP TABLE alembic_version")
    old.close()
    with sqlite.engine_for(path).connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        first_version(connection)
        connection.exec_driver_sql("COMMIT")
    async with open_store(url(disk), clock=Clock()) as store:
        await one(store, BOB, 5_000)
        assert await store.shrink() == 0
