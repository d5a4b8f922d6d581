"""What each caller has stored is counted as it changes, is bounded, and goes with retention."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa

from app.store import schema
from app.store.store import Store
from app.store.stored import RUN_BYTES, UNLIMITED, StorageLimit
from app.store.values import State, StorageExceeded
from tests.integration.store.counts import counted as kept_bytes
from tests.integration.store.samples import ALICE, BOB, finished, keep, line, new_id, starting

TRACE = "{" + "x" * 998 + "}"


async def counted(store: Store) -> dict[str, tuple[int, int]]:
    """Runs and bytes by caller, as they are counted."""
    rows = await store._database.fetch(sa.select(schema.stored))
    return {caller: (runs, size) for caller, runs, size in rows}


async def summed(store: Store) -> dict[str, tuple[int, int]]:
    """The same, summed up from the rows."""
    runs = schema.runs.c
    query = sa.select(runs.caller_id, sa.func.count(), sa.func.sum(sa.func.length(runs.grant_trace)))
    found = await store._database.fetch(query.group_by(runs.caller_id))
    return {caller: (count, count * RUN_BYTES + int(size or 0)) for caller, count, size in found}


async def one(store: Store, caller_id: str = ALICE, *, created: int = 1_000, trace: str | None = None) -> str:
    """A finished run."""
    run = starting(new_id(), caller_id=caller_id, created=created)
    await store.runs.insert_starting(run)
    assert await store.runs.finish(
        run.id, replace(finished(run.id, ended=created + 1_000), grant_trace=trace)
    )
    return run.id


async def test_counts_are_what_is_there_whatever_becomes_of_runs(store: Store) -> None:
    await one(store)
    await one(store, trace=TRACE)
    await one(store, BOB, created=5_000, trace=TRACE)
    uncertain, unknown = starting(new_id()), starting(new_id())
    await store.runs.insert_starting(uncertain)
    for settled, trace in ((False, TRACE), (False, None), (True, TRACE * 2)):
        audit = line(uncertain.id, "run.may_have_run") if settled else None
        assert await store.runs.settle(
            uncertain.id,
            state=State.MAY_HAVE_RUN,
            reason="lost",
            settled=settled,
            audit=audit,
            grant_trace=trace,
        )
    assert not await store.runs.finish(uncertain.id, replace(finished(uncertain.id), grant_trace=TRACE))
    assert await store.runs.fence(unknown, "environment", line(unknown.id, "run.not_dispatched"))
    assert await store.runs.fence(unknown, "environment", line(unknown.id, "run.not_dispatched")) is False
    assert await counted(store) == await summed(store)
    assert (await counted(store))[ALICE] == (4, 4 * RUN_BYTES + 3 * len(TRACE))
    while await store.prune(4_000, 2):
        assert await counted(store) == await summed(store)
    assert await counted(store) == {BOB: (1, RUN_BYTES + len(TRACE))}


@pytest.mark.parametrize(
    "limit",
    [replace(UNLIMITED, runs=3), replace(UNLIMITED, bytes=3 * RUN_BYTES + len(TRACE))],
    ids=["runs", "bytes"],
)
async def test_one_caller_is_at_its_bound_and_the_next_is_not(store: Store, limit: StorageLimit) -> None:
    store.runs.limit = limit
    for number in range(3):
        await one(store, trace=TRACE if number == 0 else None)
    refused = starting(new_id(), created=9_000)
    with pytest.raises(StorageExceeded):
        await store.runs.insert_starting(refused, keep("k1"))
    assert await store.runs.get(refused.id, ALICE) is None
    assert await kept_bytes(store) == {}
    await one(store, BOB, created=9_000)
    while await store.prune(5_000):
        pass
    await store.runs.insert_starting(refused, keep("k1"))
    assert await counted(store) == await summed(store)


async def test_of_many_at_once_exactly_as_many_are_stored_as_may_be(store: Store) -> None:
    store.runs.limit = replace(UNLIMITED, runs=7)
    asked = [store.runs.insert_starting(starting(new_id())) for _ in range(20)]
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(each is None for each in done) == 7
    assert {type(each) for each in done if each is not None} == {StorageExceeded}
    assert await counted(store) == {ALICE: (7, 7 * RUN_BYTES)}


async def test_ends_and_retention_at_once_lock_nothing_for_ever(store: Store) -> None:
    """Whoever changes several counts takes them in one order."""
    runs = [
        starting(new_id(), caller_id=who, created=1_000 + number)
        for number, who in enumerate((ALICE, BOB) * 20)
    ]
    for run in runs:
        await store.runs.insert_starting(run, keep(reserve_bytes=10))
    old = [await one(store, who) for who in (BOB, ALICE) * 10]
    assert len(old) == 20
    ends = [
        store.runs.finish(run.id, replace(finished(run.id), grant_trace=TRACE), b"answer") for run in runs
    ]
    prunes = [store.prune(1_001, 3) for _ in range(8)]
    async with asyncio.timeout(60):
        await asyncio.gather(*ends, *prunes)
    assert await counted(store) == await summed(store)
