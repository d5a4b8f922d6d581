"""A database that the first version made, with data in it, becomes one of today."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

from app.store import files, postgres, schema, sqlite
from app.store.store import open_store
from app.store.stored import RUN_BYTES
from app.store.values import StartingRun, State, StoreUnusable
from migrations import configuration
from plimsoll.contract import codec
from plimsoll.contract.profiles import CredentialTerms, CredentialType, Profile
from tests.integration.store.samples import ALICE, Clock, new_id, record, starting

TERMS = CredentialTerms(CredentialType.STATIC)
OPEN, DONE = "0a" * 16, "0d" * 16


def _row(run: StartingRun) -> dict[str, Any]:
    row = asdict(run) | {"kind": run.kind.value, "tier": run.tier.value, "state": "starting", "reason": ""}
    del row["owner"]
    return row | {"settled": False}


def first_version(connection: sa.Connection) -> None:
    """The tables of revision 0001, an open run and one that is finished."""
    command.upgrade(configuration(connection), "0001")
    tables = sa.MetaData()
    tables.reflect(connection)
    runs, records = tables.tables["runs"], tables.tables["records"]
    assert "owner" not in runs.c
    connection.execute(sa.insert(runs), _row(starting(OPEN)))
    ended = {"state": "finished", "settled": True, "exit_code": 3, "stdout_bytes": 5}
    connection.execute(sa.insert(runs), _row(starting(DONE)) | ended)
    connection.execute(sa.insert(records), asdict(record(DONE)) | {"run_id": DONE})


@contextmanager
def _sqlite(path: Path) -> Iterator[sa.Connection]:
    files.prepare(path)
    with sqlite.engine_for(path).connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection
        connection.exec_driver_sql("COMMIT")


async def made(database_url: str, fill: Callable[[sa.Connection], None]) -> None:
    """A database of before."""
    url = sa.make_url(database_url)
    if url.get_backend_name() == "sqlite":
        with _sqlite(sqlite.path_of(url)) as connection:
            fill(connection)
        return
    engine = postgres.engine_for(url)
    async with engine.begin() as connection_:
        await connection_.run_sync(fill)
    await engine.dispose()


@pytest.fixture
async def old_url(database_url: str) -> str:
    await made(database_url, first_version)
    return database_url


async def test_what_was_there_is_there_and_can_go_on(old_url: str) -> None:
    """The run that was open has no owner that anybody knows, and ends as every other."""
    async with open_store(old_url, clock=Clock()) as store:
        done, still_open = await store.runs.get(DONE, ALICE), await store.runs.get(OPEN, ALICE)
        assert done is not None
        assert still_open is not None
        assert (done.state, done.exit_code, done.record) == (State.FINISHED, 3, record(DONE))
        assert (still_open.state, still_open.settled) == (State.STARTING, False)
        assert {(run.kept, run.owner) for run in (done, still_open)} == {(False, "")}
        await store.runs.insert_starting(replace(starting(new_id()), owner="r1"))
        assert await store.runs.reconcile_at_start(9_000, "service_restarted") == 2


async def test_an_upgrade_is_done_once(old_url: str) -> None:
    for _ in range(2):
        async with open_store(old_url, clock=Clock()) as store:
            assert await store.runs.get(DONE, ALICE) is not None


async def test_no_file_is_migrated_under_a_living_service(sqlite_url: str, sqlite_path: Path) -> None:
    with _sqlite(sqlite_path) as connection:
        first_version(connection)
    with files.sole_owner(sqlite_path), pytest.raises(StoreUnusable, match="another plimsolld"):
        async with open_store(sqlite_url, clock=Clock(), sole_owner=False):
            pass
    async with open_store(sqlite_url, clock=Clock(), sole_owner=False) as store:
        assert await store.runs.get(DONE, ALICE) is not None


async def test_what_callers_had_stored_is_counted(old_url: str) -> None:
    async with open_store(old_url, clock=Clock()) as store:
        query = sa.select(schema.stored)
        assert [tuple(row) for row in await store._database.fetch(query)] == [(ALICE, 2, 2 * RUN_BYTES)]


async def test_who_may_use_a_profile_of_before_may_use_it_still(database_url: str) -> None:
    """A profile that somebody spoiled is nobody's, and stops no upgrade."""
    kept = Profile("kept", "https://hr.example.com", ("GET /v1/x",), ("alice", "bob"), TERMS)

    def third_version(connection: sa.Connection) -> None:
        command.upgrade(configuration(connection), "0003")
        tables = sa.MetaData()
        tables.reflect(connection)
        row: dict[str, Any] = dict.fromkeys(("description", "catalog", "advice", "public_key"), "")
        row |= {"preamble": "{}", "sealed": b"box", "created_unix_ms": 1, "updated_unix_ms": 1}
        texts = {
            "kept": codec.dumps(kept).decode(),
            "spoiled": "{",
            "list": "[]",
            "odd": '{"allowed_callers": 7}',
        }
        for name, text in texts.items():
            connection.execute(sa.insert(tables.tables["grants"]), row | {"name": name, "profile": text})

    await made(database_url, third_version)
    async with open_store(database_url, clock=Clock()) as store:
        for who, names in (("alice", ["kept"]), ("bob", ["kept"]), ("another", [])):
            assert [each.profile.name for each in await store.grants.usable(who)] == names
        found = await store.grants.get("kept", "alice")
        assert found is not None
        assert found.profile == kept
