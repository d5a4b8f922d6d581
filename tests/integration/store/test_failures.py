"""What a failing database is allowed to say, and what it proves."""

import asyncio
import traceback
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.store import schema
from app.store.store import Store, open_store
from app.store.values import AlreadyExists, StoreError, StoreUnavailable, StoreUnusable
from tests.integration.store import servers
from tests.integration.store.samples import ALICE, Clock, finished, new_id, starting

CANARY = "canary-5c1ad0"


async def test_no_row_value_is_in_the_text_of_a_database_error(store: Store) -> None:
    """Both a broken key and a statement the database refuses; Postgres puts values into its details."""
    run = starting(CANARY, trace=CANARY)
    await store.runs.insert_starting(run)
    texts = []
    for unit in (
        lambda connection: connection.execute(sa.insert(schema.runs), [_row(run)]),
        lambda connection: connection.execute(sa.text(f"SELECT '{CANARY}' FROM nowhere")),
        lambda connection: connection.execute(
            sa.insert(schema.records), {"run_id": CANARY + "x", "version": CANARY}
        ),
    ):
        with pytest.raises(StoreError) as raised:
            await store._database.write(unit)
        texts += [str(raised.value), repr(raised.value), *traceback.format_exception(raised.value)]
    assert not [text for text in texts if CANARY in text]


def _row(run: Any) -> dict[str, Any]:
    values = {name: getattr(run, name) for name in run.__slots__}
    return values | {"state": "starting", "reason": "", "settled": False}


async def test_a_unit_that_fails_keeps_nothing_and_the_next_one_works(store: Store) -> None:
    run = starting(new_id())

    def half(connection: sa.Connection) -> None:
        connection.execute(sa.insert(schema.runs), [_row(run)])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store._database.write(half)
    assert await store.runs.get(run.id, ALICE) is None
    await store.runs.insert_starting(run)


async def test_one_failing_item_in_a_batch_fails_alone(store: Store) -> None:
    twice = new_id()
    ids = [new_id() for _ in range(40)]
    ids[20:20] = [twice, twice]
    done = await asyncio.gather(
        *(store.runs.insert_starting(starting(run_id)) for run_id in ids), return_exceptions=True
    )
    failed = [outcome for outcome in done if outcome is not None]
    assert [type(outcome) for outcome in failed] == [AlreadyExists]
    page = await store.runs.page(None, None, 100)
    assert page is not None
    assert {run.id for run in page.runs} == set(ids)


async def test_a_thousand_runs_at_once_all_end(store: Store) -> None:
    async def one() -> bool:
        run = starting(new_id())
        await store.runs.insert_starting(run)
        return await store.runs.finish(run.id, finished(run.id))

    assert all(await asyncio.gather(*(one() for _ in range(1_000))))
    assert await store.runs.unfinished() == []
    (row,) = await store._database.fetch(sa.select(sa.func.count()).select_from(schema.records))
    assert row[0] == 1_000


async def test_a_closed_store_says_that_nothing_was_committed(sqlite_url: str) -> None:
    async with open_store(sqlite_url, clock=Clock()) as store:
        pass
    with pytest.raises(StoreUnavailable) as raised:
        await store.runs.insert_starting(starting(new_id()))
    assert raised.value.outcome == "not_committed"
    with pytest.raises(StoreUnavailable):
        await store.runs.get(new_id(), ALICE)


def _die(connection: sa.Connection) -> None:
    connection.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))


async def test_connections_the_server_ended_are_replaced(postgres_url: str, postgres_socket: Path) -> None:
    async with open_store(postgres_url, clock=Clock()) as store:
        run = starting(new_id())
        await store.runs.insert_starting(run)
        ending = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'plimsoll'"
        await asyncio.to_thread(servers.execute, postgres_socket, ending)
        assert await store.runs.finish(run.id, finished(run.id))
        await asyncio.to_thread(servers.execute, postgres_socket, ending)
        assert await store.runs.get(run.id, ALICE) is not None


async def test_a_server_that_ends_before_the_commit_proves_that_nothing_was_kept(postgres_url: str) -> None:
    async with open_store(postgres_url, clock=Clock()) as store:
        with pytest.raises(StoreUnavailable) as raised:
            await store._database.write(_die)
        assert raised.value.outcome == "not_committed"


async def test_a_commit_that_fails_proves_nothing(postgres_url: str) -> None:
    """A deferred constraint is the server's own way to fail at COMMIT."""
    async with open_store(postgres_url, clock=Clock()) as store:

        def unit(connection: sa.Connection) -> None:
            connection.execute(sa.text("CREATE TABLE late (x int UNIQUE DEFERRABLE INITIALLY DEFERRED)"))
            connection.execute(sa.text("INSERT INTO late VALUES (1), (1)"))

        with pytest.raises(StoreUnavailable) as raised:
            await store._database.write(unit)
        assert raised.value.outcome == "unknown"


async def test_a_server_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="cannot be opened"):
        async with open_store(servers.url(tmp_path), clock=Clock()):
            pass


@pytest.mark.parametrize("tail", ["?sslmode=require", "?ssl=nonsense", ":notaport/x"])
async def test_a_bad_url_is_a_clear_error_without_its_password(postgres_socket: Path, tail: str) -> None:
    url = f"postgresql+asyncpg://postgres:{CANARY}@" + (
        tail if tail[0] == ":" else f"/postgres{tail}&host={postgres_socket}"
    )
    with pytest.raises(StoreUnusable, match=r"the database (URL|cannot)") as raised:
        async with open_store(url, clock=Clock()):
            pass
    assert CANARY not in "".join(traceback.format_exception(raised.value))


async def test_commits_reach_the_disk_whatever_the_servers_default(postgres_url: str) -> None:
    async with open_store(postgres_url, clock=Clock()) as store:
        query = sa.select(sa.func.current_setting("synchronous_commit"))
        assert [row[0] for row in await store._database.fetch(query)] == ["on"]


async def test_a_sqlite_commit_is_flushed_and_references_are_checked(sqlite_url: str) -> None:
    async with open_store(sqlite_url, clock=Clock()) as store:

        def unit(connection: sa.Connection) -> list[object]:
            pragmas = ("journal_mode", "synchronous", "foreign_keys")
            return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]

        assert await store._database.write(unit) == ["wal", 2, 1]
