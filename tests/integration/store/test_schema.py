"""The tables made at once, the tables migrated, and the tables the code names are the same ones."""

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import create_async_engine

from app.store import callers, grants, revision, rows, sqlite
from app.store.schema import metadata
from app.store.store import open_store
from app.store.values import StoreUnusable
from migrations import HEAD, configuration
from tests.conftest import ROOT
from tests.integration.store.samples import Clock


def run(program: str, *argv: str) -> None:
    """Run a program with warnings as errors, somewhere else."""
    command = [sys.executable, "-W", "error", "-c", program, *argv]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd="/")
    assert done.returncode == 0, done.stderr


def definitions(path: Path) -> set[tuple[str, str]]:
    """Every table and index by name with the text that made it, white space apart."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, coalesce(sql, '') FROM sqlite_master").fetchall()
    connection.close()
    return {(name, "".join(text.split())) for name, text in rows}


def migrated(path: Path) -> None:
    with sqlite.engine_for(path).connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        revision.upgrade(connection, None)
        connection.exec_driver_sql("COMMIT")


def differences(connection: sa.Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, metadata))


async def test_a_fresh_file_equals_a_migrated_one(sqlite_url: str, sqlite_path: Path, tmp_path: Path) -> None:
    async with open_store(sqlite_url, clock=Clock()):
        pass
    migrated(tmp_path / "migrated.db")
    assert definitions(sqlite_path) == definitions(tmp_path / "migrated.db")


async def test_the_migrated_schema_is_what_the_code_names(tmp_path: Path) -> None:
    migrated(tmp_path / "migrated.db")
    with sqlite.engine_for(tmp_path / "migrated.db").connect() as connection:
        assert differences(connection) == []


async def test_the_migrated_schema_is_what_the_code_names_on_postgres(postgres_url: str) -> None:
    async with open_store(postgres_url, clock=Clock()):
        pass
    engine = create_async_engine(postgres_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await engine.dispose()


def test_head_is_the_newest_revision(tmp_path: Path) -> None:
    with sqlite.engine_for(tmp_path / "any.db").connect() as connection:
        scripts = ScriptDirectory.from_config(configuration(connection))
        assert scripts.get_heads() == [HEAD]


async def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    async with open_store(database_url, clock=Clock()) as store:
        await store._database.write(
            lambda connection: (
                connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'")).rowcount
            )
        )
    with pytest.raises(StoreUnusable, match="newer version"):
        async with open_store(database_url, clock=Clock()):
            pass


async def test_a_database_of_something_else_is_refused(sqlite_url: str, sqlite_path: Path) -> None:
    sqlite_path.parent.mkdir()
    with sqlite3.connect(sqlite_path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreUnusable, match="something else"):
        async with open_store(sqlite_url, clock=Clock()):
            pass
    assert {name for name, _ in definitions(sqlite_path)} == {"theirs"}


def test_a_start_on_a_fresh_or_known_file_loads_no_alembic(sqlite_url: str) -> None:
    """Importing it costs more than the start itself."""
    program = (
        "import asyncio, sys\n"
        "from app.store.store import open_store\n"
        "async def main():\n"
        f"    async with open_store({sqlite_url!r}, clock=lambda: 1): pass\n"
        "asyncio.run(main())\n"
        "asyncio.run(main())\n"
        "assert not {'alembic', 'asyncpg', 'sqlalchemy.ext.asyncio'} & set(sys.modules)\n"
    )
    run(program)


def test_migrations_work_from_an_installed_package_wherever_it_is(tmp_path: Path) -> None:
    """A folder name with a blank and a percent sign, another current directory, no configuration file."""
    place = tmp_path / "100%s of it"
    for package in ("app", "migrations"):
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import migrations\n"
        "from pathlib import Path\n"
        "from app.store import revision, sqlite\n"
        "assert migrations.__file__.startswith(sys.argv[1])\n"
        "with sqlite.engine_for(Path(sys.argv[2])).connect() as connection:\n"
        "    connection.exec_driver_sql('BEGIN IMMEDIATE')\n"
        "    revision.upgrade(connection, None)\n"
        "    connection.exec_driver_sql('COMMIT')\n"
        "    assert revision.current_revision(connection) == migrations.HEAD\n"
    )
    run(program, str(place), str(tmp_path / "installed.db"))


PLANS = [
    (
        grants._ONE,
        [
            "SEARCH grants USING INDEX sqlite_autoindex_grants_1",
            "SCALAR SUBQUERY",
            "SEARCH grant_callers USING COVERING INDEX",
        ],
    ),
    (callers._AUTHENTICATE, ["SEARCH caller_tokens USING INDEX", "SEARCH callers USING INDEX"]),
    (rows.one(own=True), ["SEARCH runs USING INDEX sqlite_autoindex_runs_1", "SEARCH records USING INDEX"]),
    (rows.newest(own=True, after=False), ["SEARCH runs USING INDEX ix_runs_caller", "SEARCH records USING"]),
    (rows.newest(own=True, after=True), ["SEARCH runs USING INDEX ix_runs_caller", "SEARCH records USING"]),
    (
        rows.newest(own=False, after=True),
        ["SEARCH runs USING INDEX ix_runs_created", "SEARCH records USING"],
    ),
    (rows.UNSETTLED, ["SCAN runs USING INDEX ix_runs_unsettled"]),
    (rows.CANCELLED, ["SCAN runs USING INDEX ix_runs_unsettled"]),
    (rows.body(own=True), ["SEARCH answers USING INDEX sqlite_autoindex_answers"]),
    (
        rows.BY_KEY,
        ["SEARCH answers USING INDEX sqlite_autoindex_answers", "SEARCH runs USING", "SEARCH records USING"],
    ),
]


@pytest.mark.parametrize(("statement", "plan"), PLANS)
async def test_no_read_scans_a_table(sqlite_url: str, statement: sa.Select[Any], plan: list[str]) -> None:
    """The open runs are few, and they are all there is in their index."""
    async with open_store(sqlite_url, clock=Clock()) as store:
        explained = sa.text(f"EXPLAIN QUERY PLAN {sqlite._compiled(statement).string}")
        bound = dict.fromkeys(sqlite._compiled(statement).params, 1)
        steps = await store._database.write(lambda connection: connection.execute(explained, bound).all())
    assert [step[3][: len(expected)] for step, expected in zip(steps, plan, strict=True)] == plan
