"""What is somebody else's is answered as what is not there, for the same work: the same statements, no row, no more read.

Nothing here looks at a clock.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.store import grants, rows, sqlite
from app.store.database import Database
from app.store.grants import Grants
from app.store.runs import Runs
from app.store.store import Store, open_store
from app.store.values import StoredGrant
from plimsoll.contract.profiles import CredentialTerms, CredentialType, Profile
from tests.integration.store.samples import ALICE, BOB, Clock, finished, keep, new_id, starting

LARGE = 4 << 20
TERMS = CredentialTerms(CredentialType.STATIC)
THEIRS, OWN = new_id(), new_id()
PAGE = 4_096


class Counting:
    """A database that notes every read: its statement, the rows it gave, the bytes in them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.seen: list[tuple[sa.Select[Any], int, int]] = []

    async def fetch(
        self, statement: sa.Select[Any], parameters: dict[str, Any] | None = None, **hints: bool
    ) -> Sequence[Any]:
        found = await self._database.fetch(statement, parameters, **hints)
        size = sum(len(value) for row in found for value in row if isinstance(value, str | bytes))
        self.seen.append((statement, len(found), size))
        return found

    def taken(self) -> list[tuple[sa.Select[Any], int, int]]:
        seen, self.seen = self.seen, []
        return seen


def profile(name: str, caller: str, size: int = 1) -> StoredGrant:
    found = Profile(name, "https://hr.example.com", ("GET /v1/x",), (caller,), TERMS)
    return StoredGrant(found, b"s" * size, catalog="c" * size)


async def filled(store: Store) -> None:
    """A profile and a run of each, and what is large is the other's."""
    await store.grants.apply([profile("own", "alice"), profile("theirs", "bob", LARGE)])
    for run_id, caller_id in ((OWN, ALICE), (THEIRS, BOB)):
        await store.runs.insert_starting(
            starting(run_id, caller_id=caller_id),
            keep("k" + caller_id, reserve_bytes=LARGE, caller_quota_bytes=LARGE, total_quota_bytes=3 * LARGE),
        )
        assert await store.runs.finish(run_id, finished(run_id), b"b" * (LARGE if caller_id == BOB else 1))


@pytest.fixture
async def full(store: Store) -> Store:
    await filled(store)
    return store


async def test_a_foreign_profile_costs_what_an_unknown_one_does(full: Store) -> None:
    counting = Counting(full._database)
    repository = Grants(counting, Clock())  # type: ignore[arg-type]  # it only reads
    assert await repository.get("theirs", "alice") is None
    foreign = counting.taken()
    assert await repository.get("nobody", "alice") is None
    assert foreign == counting.taken() == [(grants._ONE, 0, 0)]
    assert await repository.get("own", "alice") is not None
    assert counting.taken()[0][1] == 1


async def test_a_list_reads_nothing_of_others(full: Store) -> None:
    counting = Counting(full._database)
    repository = Grants(counting, Clock())  # type: ignore[arg-type]  # it only reads
    assert [each.profile.name for each in await repository.usable("alice")] == ["own"]
    ((_, found, size),) = counting.taken()
    assert (found, size < PAGE) == (1, True)


async def test_a_foreign_run_key_or_cursor_costs_what_an_unknown_one_does(full: Store) -> None:
    counting = Counting(full._database)
    repository = Runs(counting, Clock())  # type: ignore[arg-type]  # it only reads
    for ask in (repository.get, repository.body, repository.grant_trace):
        assert await ask(THEIRS, ALICE) is None
        foreign = counting.taken()
        assert await ask(new_id(), ALICE) is None
        assert foreign == counting.taken()
        assert [each[1:] for each in foreign] == [(0, 0)]
    for key in ("k" + BOB, "no-such-key"):
        assert await repository.by_key(ALICE, key) is None
        assert counting.taken() == [(rows.BY_KEY, 0, 0)]
    page = await full.runs.page(BOB, None, 1)
    assert page is not None
    for cursor in ("made-up", page.next_cursor or "made-up"):
        assert await repository.page(ALICE, cursor, 1) is None
        assert counting.taken() == []


def read_bytes() -> int:
    """Bytes this thread has read from files and pipes."""
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


def cost(path: Path, statement: sa.Select[Any], **asked: Any) -> int:
    """Pages that SQLite reads of the file for it, with nothing of it in memory."""
    compiled = sqlite._compiled(statement)
    given = compiled.construct_params(asked) or {}
    with closing(sqlite3.connect(path, isolation_level=None)) as cold:
        cold.execute("PRAGMA mmap_size = 0")
        cold.execute("SELECT name FROM sqlite_master").fetchall()
        before = read_bytes()
        assert cold.execute(compiled.string, given).fetchall() == []
        return (read_bytes() - before) // PAGE  # the rest is this very file of /proc


async def test_sqlite_reads_no_page_more_of_a_foreign_profile_and_no_content_of_a_foreign_run(
    sqlite_url: str, sqlite_path: Path
) -> None:
    async with open_store(sqlite_url, clock=Clock()) as store:
        await filled(store)
    unknown = cost(sqlite_path, grants._ONE, name="nobody", caller="alice")
    assert cost(sqlite_path, grants._ONE, name="theirs", caller="alice") == unknown
    # A run's id is 128 random bits. One more page, where its caller stands, is all that it costs to have guessed one.
    now = Clock().now
    for statement in (rows.one(own=True), rows.body(own=True), rows.grant_trace(own=True)):
        asked = {"caller": ALICE, "now": now}
        unknown = cost(sqlite_path, statement, run=new_id(), **asked)
        assert cost(sqlite_path, statement, run=THEIRS, **asked) <= unknown + 2
