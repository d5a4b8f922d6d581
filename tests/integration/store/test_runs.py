"""Runs: conditional changes, atomic ends, pages that leak nothing."""

from dataclasses import fields

import pytest
import sqlalchemy as sa

from app.store.runs import Unfinished
from app.store.schema import audit
from app.store.store import Store
from app.store.values import AlreadyExists, StartingRun, State
from tests.integration.store.samples import ALICE, BOB, finished, line, new_id, record, starting


async def trail(store: Store) -> list[tuple[str, str, str]]:
    query = sa.select(audit.c.event, audit.c.run_id, audit.c.reason).order_by(audit.c.id)
    return [tuple(row) for row in await store._database.fetch(query, many=True)]


async def test_a_starting_run_comes_back_as_it_was_written(store: Store) -> None:
    run = starting(new_id(), trace="t-1")
    await store.runs.insert_starting(run)
    kept = await store.runs.get(run.id, ALICE)
    assert kept is not None
    assert all(getattr(kept, field.name) == getattr(run, field.name) for field in fields(StartingRun))
    assert (kept.state, kept.settled, kept.reason) == (State.STARTING, False, "")
    assert (kept.record, kept.exit_code, kept.timed_out, kept.ended_unix_ms) == (None, None, None, None)


async def test_the_end_its_record_and_its_audit_row_come_together(store: Store) -> None:
    run = starting(new_id())
    await store.runs.insert_starting(run)
    assert await store.runs.finish(run.id, finished(run.id))
    kept = await store.runs.get(run.id, ALICE)
    assert kept is not None
    assert (kept.state, kept.settled, kept.record) == (State.FINISHED, True, record(run.id))
    assert (kept.exit_code, kept.duration_ms, kept.start_ms, kept.ended_unix_ms) == (3, 7, 1, 2_000)
    assert (kept.timed_out, kept.cancelled, kept.stdout_truncated, kept.stderr_truncated) == (
        False,
        True,
        True,
        False,
    )
    assert (kept.stdout_bytes, kept.evidence_sha256) == (10, "e2" * 32)
    assert await trail(store) == [("run.finished", run.id, "")]


async def test_only_the_first_end_counts(store: Store) -> None:
    run = starting(new_id())
    await store.runs.insert_starting(run)
    assert await store.runs.finish(run.id, finished(run.id))
    assert not await store.runs.finish(run.id, finished(run.id, ended=9_000))
    settled = await store.runs.settle(
        run.id, state=State.MAY_HAVE_RUN, reason="lost", settled=True, audit=line(run.id, "run.may_have_run")
    )
    kept = await store.runs.get(run.id, ALICE)
    assert not settled
    assert kept is not None
    assert (kept.state, kept.ended_unix_ms) == (State.FINISHED, 2_000)
    assert len(await trail(store)) == 1


async def test_an_unknown_run_cannot_end(store: Store) -> None:
    missing = new_id()
    assert not await store.runs.finish(missing, finished(missing))
    assert not await store.runs.settle(
        missing, state=State.NOT_DISPATCHED, reason="environment", settled=True, audit=line(missing)
    )
    assert await trail(store) == []


async def test_a_run_id_is_written_once(store: Store) -> None:
    run = starting(new_id())
    await store.runs.insert_starting(run)
    with pytest.raises(AlreadyExists):
        await store.runs.insert_starting(run)


@pytest.mark.parametrize("end", ["finished", "not_dispatched", "may_have_run"])
async def test_may_have_run_settles_once_while_it_is_open(store: Store, end: str) -> None:
    run = starting(new_id())
    await store.runs.insert_starting(run)
    state: Unfinished = State.MAY_HAVE_RUN
    assert await store.runs.settle(run.id, state=state, reason="worker_lost", settled=False, audit=None)
    [still_open] = await store.runs.unfinished()
    assert (still_open.state, still_open.settled, still_open.reason) == (state, False, "worker_lost")
    if end == "finished":
        assert await store.runs.finish(run.id, finished(run.id))
    else:
        last: Unfinished = State.NOT_DISPATCHED if end == "not_dispatched" else State.MAY_HAVE_RUN
        row = line(run.id, f"run.{end}")
        assert await store.runs.settle(run.id, state=last, reason="environment", settled=True, audit=row)
    kept = await store.runs.get(run.id, ALICE)
    assert kept is not None
    assert (kept.state, kept.settled) == (State(end), True)
    assert kept.reason == ("" if end == "finished" else "environment")
    assert [event for event, _, _ in await trail(store)] == [f"run.{end}"]
    assert not await store.runs.settle(run.id, state=state, reason="late", settled=True, audit=None)


async def test_a_foreign_run_is_as_unknown_as_one_that_never_was(store: Store) -> None:
    run = starting(new_id())
    await store.runs.insert_starting(run)
    assert await store.runs.get(run.id, BOB) is None
    assert await store.runs.get(new_id(), ALICE) is None
    assert await store.runs.get(run.id, None) is not None


async def test_pages_are_newest_first_complete_and_the_callers_own(store: Store) -> None:
    """Several runs share a millisecond, and runs that arrive between two pages disturb neither."""
    mine = [starting(new_id(), created=1_000 + number // 3) for number in range(10)]
    for run in mine:
        await store.runs.insert_starting(run)
        await store.runs.insert_starting(starting(new_id(), caller_id=BOB, created=run.created_unix_ms))
    await store.runs.finish(mine[0].id, finished(mine[0].id))
    seen, cursor = [], None
    while True:
        page = await store.runs.page(ALICE, cursor, 3)
        assert page is not None
        seen += [(run.created_unix_ms, run.id) for run in page.runs]
        await store.runs.insert_starting(starting(new_id(), created=5_000))
        if (cursor := page.next_cursor) is None:
            break
    assert seen == sorted(((run.created_unix_ms, run.id) for run in mine), reverse=True)
    everything = await store.runs.page(None, None, 100)
    assert everything is not None
    assert len(everything.runs) == 24
    assert everything.next_cursor is None
    assert sum(run.record is not None for run in everything.runs) == 1


async def test_a_page_that_is_exactly_full_says_whether_there_is_more(store: Store) -> None:
    for _ in range(4):
        await store.runs.insert_starting(starting(new_id()))
    first = await store.runs.page(ALICE, None, 2)
    assert first is not None
    second = await store.runs.page(ALICE, first.next_cursor, 2)
    assert second is not None
    assert (len(second.runs), second.next_cursor) == (2, None)


async def test_a_foreign_cursor_is_as_unknown_as_garbage(store: Store) -> None:
    for _ in range(2):
        await store.runs.insert_starting(starting(new_id()))
    page = await store.runs.page(ALICE, None, 1)
    assert page is not None
    assert page.next_cursor is not None
    assert await store.runs.page(BOB, page.next_cursor, 1) is None
    assert await store.runs.page(None, page.next_cursor, 1) is None
    assert await store.runs.page(ALICE, "garbage", 1) is None
    assert await store.runs.page(ALICE, "", 1) is None


async def test_a_start_settles_what_an_earlier_process_left_open(store: Store) -> None:
    left, uncertain, done = (starting(new_id()) for _ in range(3))
    for run in (left, uncertain, done):
        await store.runs.insert_starting(run)
    await store.runs.settle(
        uncertain.id, state=State.MAY_HAVE_RUN, reason="worker_lost", settled=False, audit=None
    )
    await store.runs.finish(done.id, finished(done.id))
    assert await store.runs.reconcile_at_start(9_000, "service_restarted") == 2
    assert await store.runs.reconcile_at_start(9_000, "service_restarted") == 0
    assert await store.runs.unfinished() == []
    for run in (left, uncertain):
        kept = await store.runs.get(run.id, ALICE)
        assert kept is not None
        assert (kept.state, kept.settled, kept.reason) == (State.MAY_HAVE_RUN, True, "service_restarted")
    rows = await trail(store)
    assert sorted(rows[1:]) == sorted(
        ("run.may_have_run", run.id, "service_restarted") for run in (left, uncertain)
    )
