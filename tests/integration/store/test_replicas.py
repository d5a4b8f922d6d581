"""Replicas on one database: whose run it is, who may be asked to stop it, and what becomes of a replica that is gone."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.store.schema import audit, replicas
from app.store.store import Store, open_store
from app.store.values import State, StoredRun
from tests.integration.store.counts import counted
from tests.integration.store.samples import ALICE, BOB, Clock, finished, keep, new_id, settle, starting

LONG_MS = 60_000


async def started(store: Store, owner: str, key: str | None = None) -> str:
    run = starting(new_id(), owner=owner)
    await store.runs.insert_starting(run, keep(key) if key else None)
    return run.id


async def got(store: Store, run_id: str) -> StoredRun:
    run = await store.runs.get(run_id, None)
    assert run is not None
    return run


async def trail(store: Store) -> list[tuple[str, str]]:
    query = sa.select(audit.c.run_id, audit.c.reason).where(audit.c.event == "run.may_have_run")
    return sorted(tuple(row) for row in await store._database.fetch(query))


async def lapsed(store: Store, owner: str) -> None:
    """A replica that had a lease and was not heard of again."""
    await store.replicas.beat(owner, 1)
    await asyncio.sleep(0.01)


async def test_only_an_open_run_can_be_asked_to_stop_and_only_by_its_caller(store: Store) -> None:
    first, second, foreign = [
        await started(store, "r1"),
        await started(store, "r1"),
        await started(store, "r2"),
    ]
    done = await started(store, "r1")
    await store.runs.finish(done, finished(done))
    assert await store.runs.request_cancel(first, BOB) is None
    assert await store.runs.request_cancel(new_id(), ALICE) is None
    assert await store.runs.cancel_requests("r1") == []
    for run_id, caller_id in ((first, ALICE), (first, ALICE), (foreign, None)):
        asked = await store.runs.request_cancel(run_id, caller_id)
        assert asked == await got(store, run_id)
    ended = await store.runs.request_cancel(done, ALICE)
    assert ended is not None
    assert (ended.state, ended.record is not None) == (State.FINISHED, True)
    assert await store.runs.cancel_requests("r1") == [first]
    assert await store.runs.cancel_requests("r2") == [foreign]
    await store.runs.finish(first, finished(first))
    assert await store.runs.cancel_requests("r1") == []
    await settle(store, second, State.MAY_HAVE_RUN, settled=False)
    await store.runs.request_cancel(second, ALICE)
    assert await store.runs.cancel_requests("r1") == [second]


async def test_the_runs_of_replicas_that_live_are_left_alone(store: Store) -> None:
    await store.replicas.beat("r1", LONG_MS)
    await store.replicas.beat("r2", LONG_MS)
    ids = [await started(store, "r1"), await started(store, "r2")]
    assert await store.runs.adopt_orphans("r1", "replica_lost", 0) == 0
    assert {(await got(store, run_id)).state for run_id in ids} == {State.STARTING}


async def test_a_replica_that_was_stopped_does_not_adopt_its_own_runs(store: Store) -> None:
    """It is alive, since it asks, and can still end them."""
    await lapsed(store, "r1")
    run_id = await started(store, "r1")
    assert await store.runs.adopt_orphans("r1", "replica_lost", 0) == 0
    assert (await got(store, run_id)).state is State.STARTING


async def test_a_lost_replicas_runs_may_have_run_first_openly_and_then_finally(store: Store) -> None:
    await lapsed(store, "r2")
    run_id = await started(store, "r2", "0c" * 32)
    assert await store.runs.adopt_orphans("r1", "replica_lost", LONG_MS) == 1
    assert await store.runs.adopt_orphans("r1", "replica_lost", LONG_MS) == 0
    run = await got(store, run_id)
    assert (run.state, run.settled, run.reason) == (State.MAY_HAVE_RUN, False, "replica_lost")
    assert (await trail(store), (await counted(store))[ALICE]) == ([], 1_000)
    assert await store.runs.adopt_orphans("r1", "another_reason", 0) == 1
    run = await got(store, run_id)
    assert (run.state, run.settled, run.reason) == (State.MAY_HAVE_RUN, True, "replica_lost")
    assert await trail(store) == [(run_id, "replica_lost")]
    assert await counted(store) == {}
    assert not await store.runs.finish(run_id, finished(run_id), b"too late")
    assert await store.runs.body(run_id, ALICE) is None


async def test_a_replica_that_comes_back_ends_its_runs_itself(store: Store) -> None:
    await lapsed(store, "r2")
    ended, running = await started(store, "r2", "0c" * 32), await started(store, "r2")
    assert await store.runs.adopt_orphans("r1", "replica_lost", LONG_MS) == 2
    assert await store.runs.finish(ended, finished(ended), b"late")
    assert await store.runs.body(ended, ALICE) == b"late"
    await store.replicas.beat("r2", LONG_MS)
    assert await store.runs.adopt_orphans("r1", "replica_lost", 0) == 0
    assert await store.runs.finish(running, finished(running))
    assert await trail(store) == []


async def test_what_a_replica_left_open_is_final_at_once(store: Store) -> None:
    """Nobody comes back who has left, so there is nothing to wait for."""
    await store.replicas.beat("r2", LONG_MS)
    run_id = await started(store, "r2")
    await store.replicas.leave("r2")
    await store.replicas.leave("never-was")
    assert await store.runs.adopt_orphans("r1", "replica_lost", LONG_MS) == 1
    run = await got(store, run_id)
    assert (run.state, run.settled, run.reason) == (State.MAY_HAVE_RUN, True, "replica_lost")
    assert await trail(store) == [(run_id, "replica_lost")]


async def test_a_run_of_nobody_is_an_orphan_and_waited_for_all_the_same(store: Store) -> None:
    """Such as one that a version without replicas left, or one whose replica was forgotten while it was stopped."""
    run_id = await started(store, "")
    assert await store.runs.adopt_orphans("r1", "replica_lost", LONG_MS) == 1
    assert not (await got(store, run_id)).settled
    await store.replicas.beat("", LONG_MS)
    assert await store.runs.adopt_orphans("r1", "replica_lost", 0) == 0


async def test_what_its_owner_said_of_a_run_is_kept_when_it_becomes_final(store: Store) -> None:
    await lapsed(store, "r2")
    run_id = await started(store, "r2")
    await settle(store, run_id, State.MAY_HAVE_RUN, settled=False)
    assert await store.runs.adopt_orphans("r1", "replica_lost", LONG_MS) == 0
    assert await store.runs.adopt_orphans("r1", "replica_lost", 0) == 1
    assert await trail(store) == [(run_id, "lost")]


@pytest.mark.parametrize("final_after_ms", [LONG_MS, 0])
async def test_replicas_that_adopt_at_once_change_each_run_once(store: Store, final_after_ms: int) -> None:
    """The owners, resumed, end half of their runs at the same moment: each has one end, and one line of the trail."""
    await lapsed(store, "r3")
    ids = [await started(store, "r3") for _ in range(60)]
    adopting = [
        store.runs.adopt_orphans(own_id, "replica_lost", final_after_ms) for own_id in ("r1", "r2", "r4") * 3
    ]
    ending = [store.runs.finish(run_id, finished(run_id)) for run_id in ids[:30]]
    adopted, ended = await asyncio.gather(asyncio.gather(*adopting), asyncio.gather(*ending))
    runs = [await got(store, run_id) for run_id in ids]
    assert [run.state is State.FINISHED for run in runs[:30]] == ended
    assert {run.state for run in runs[30:]} == {State.MAY_HAVE_RUN}
    assert {run.settled for run in runs[30:]} == {final_after_ms == 0}
    assert 30 <= sum(adopted) <= 60
    lost = [run.id for run in runs if run.state is State.MAY_HAVE_RUN and run.settled]
    assert await trail(store) == sorted((run_id, "replica_lost") for run_id in lost)


async def test_a_replica_is_forgotten_when_it_is_old_and_has_no_open_run(store: Store) -> None:
    for owner in ("r1", "r2", "r3"):
        await store.replicas.beat(owner, LONG_MS)
    run_id = await started(store, "r2")
    for owner in ("r2", "r3"):
        await store.replicas.leave(owner)
    assert await store.prune(1_000) == 1
    await store.runs.finish(run_id, finished(run_id))
    assert await store.prune(1_000) == 1
    query = sa.select(replicas.c.id)
    assert [row[0] for row in await store._database.fetch(query)] == ["r1"]


async def test_only_a_sqlite_store_has_a_sole_owner_and_a_file_system(
    store: Store, database_url: str
) -> None:
    on_sqlite = database_url.startswith("sqlite")
    assert store.sole_owner is on_sqlite
    free = store.free_fraction()
    assert (free is not None) is on_sqlite
    assert free is None or 0 <= free <= 1


async def test_a_file_system_that_cannot_be_asked_counts_as_full(sqlite_url: str, sqlite_path: Path) -> None:
    async with open_store(sqlite_url, clock=Clock()) as store:
        await asyncio.to_thread(sqlite_path.rename, sqlite_path.with_suffix(".gone"))
        assert store.free_fraction() == 0
