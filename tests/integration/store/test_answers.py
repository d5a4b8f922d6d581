"""Kept answers: byte for byte, for their caller, until they expire, within their quotas."""

import asyncio
from typing import Any

import pytest

from app.store.answers import TOTAL
from app.store.runs import Unfinished
from app.store.store import Store
from app.store.values import KeyTaken, QuotaExceeded, State
from tests.integration.store.counts import counted, held
from tests.integration.store.samples import (
    ALICE,
    BOB,
    DAY_MS,
    Clock,
    finished,
    keep,
    new_id,
    settle,
    starting,
)

KEY, OTHER = "0c" * 32, "0d" * 32
EVERY_BYTE = bytes(range(256)) * 3


async def started(store: Store, key: str | None = KEY, caller_id: str = ALICE, **changed: Any) -> str:
    run = starting(new_id(), caller_id=caller_id)
    await store.runs.insert_starting(run, keep(key, **changed))
    return run.id


async def test_an_answer_comes_back_byte_for_byte_by_key_and_by_run(store: Store) -> None:
    run_id = await started(store)
    before = await store.runs.by_key(ALICE, KEY)
    assert before is not None
    assert (before.run.id, before.run.state, before.fingerprint, before.body) == (
        *(run_id, State.STARTING),
        *("f1" * 32, None),
    )
    assert await store.runs.finish(run_id, finished(run_id), EVERY_BYTE)
    after = await store.runs.by_key(ALICE, KEY)
    assert after is not None
    assert (after.run, after.body) == (await store.runs.get(run_id, ALICE), EVERY_BYTE)
    assert after.run.kept
    assert after.run.record is not None
    assert await store.runs.body(run_id, ALICE) == await store.runs.body(run_id, None) == EVERY_BYTE
    assert "\\x00" not in repr(after)


async def test_an_empty_answer_is_an_answer(store: Store) -> None:
    run_id = await started(store)
    await store.runs.finish(run_id, finished(run_id), b"")
    assert await store.runs.body(run_id, ALICE) == b""
    assert await counted(store) == {}


async def test_a_foreign_answer_is_as_unknown_as_one_that_never_was(store: Store) -> None:
    run_id = await started(store)
    await store.runs.finish(run_id, finished(run_id), b"x")
    assert await store.runs.by_key(BOB, KEY) is None
    assert await store.runs.by_key(ALICE, OTHER) is None
    assert await store.runs.body(run_id, BOB) is None
    assert await store.runs.body(new_id(), ALICE) is None


async def test_one_key_of_two_callers_is_two_keys(store: Store) -> None:
    mine, theirs = await started(store), await started(store, caller_id=BOB)
    for caller_id, run_id in ((ALICE, mine), (BOB, theirs)):
        found = await store.runs.by_key(caller_id, KEY)
        assert found is not None
        assert found.run.id == run_id


async def test_a_key_that_is_taken_leaves_nothing_of_the_second_run(store: Store) -> None:
    first = await started(store)
    second = starting(new_id())
    with pytest.raises(KeyTaken):
        await store.runs.insert_starting(second, keep(KEY))
    assert await store.runs.get(second.id, None) is None
    assert await counted(store) == await held(store) == {ALICE: 1_000, TOTAL: 1_000}
    # A run that is not finished, or finished, is replaced by nobody who says so.
    for _ in range(2):
        with pytest.raises(KeyTaken):
            await started(store, replaces_run_id=first)
        await store.runs.finish(first, finished(first), b"x")


async def test_async_runs_without_a_key_keep_their_answers_side_by_side(store: Store) -> None:
    ids = [await started(store, None) for _ in range(3)]
    for number, run_id in enumerate(ids):
        await store.runs.finish(run_id, finished(run_id), bytes([number]))
    assert [await store.runs.body(run_id, ALICE) for run_id in ids] == [b"\x00", b"\x01", b"\x02"]


async def test_a_run_that_keeps_nothing_has_no_answer(store: Store) -> None:
    run = starting(new_id())
    await store.runs.insert_starting(run)
    await store.runs.finish(run.id, finished(run.id), b"dropped")
    kept = await store.runs.get(run.id, ALICE)
    assert kept is not None
    assert not kept.kept
    assert await store.runs.body(run.id, ALICE) is None


async def test_the_key_of_a_run_that_was_not_dispatched_moves_to_the_next(store: Store) -> None:
    first = await started(store)
    await settle(store, first, State.NOT_DISPATCHED)
    waiting = await store.runs.by_key(ALICE, KEY)
    assert waiting is not None
    assert (waiting.run.state, waiting.run.reason) == (State.NOT_DISPATCHED, "lost")
    with pytest.raises(KeyTaken):
        await started(store)
    second = await started(store, replaces_run_id=first)
    with pytest.raises(KeyTaken):
        await started(store, replaces_run_id=first)
    await store.runs.finish(second, finished(second), b"second")
    found = await store.runs.by_key(ALICE, KEY)
    assert found is not None
    assert (found.run.id, found.body) == (second, b"second")
    assert await store.runs.get(first, ALICE) is not None
    assert await counted(store) == await held(store) == {ALICE: 6, TOTAL: 6}


@pytest.mark.parametrize("state", [State.NOT_DISPATCHED, State.MAY_HAVE_RUN])
async def test_a_run_that_ends_without_an_answer_gives_back_its_bytes_and_holds_its_key(
    store: Store, state: Unfinished
) -> None:
    run_id = await started(store)
    assert await settle(store, run_id, State.MAY_HAVE_RUN, settled=False)
    assert (await counted(store))[ALICE] == 1_000
    assert await settle(store, run_id, state)
    assert await counted(store) == await held(store) == {}
    found = await store.runs.by_key(ALICE, KEY)
    assert found is not None
    assert (found.run.state, found.body) == (state, None)


async def test_an_expired_key_is_unknown_and_can_be_used_again(store: Store, clock: Clock) -> None:
    old = await started(store)
    await store.runs.finish(old, finished(old), b"old")
    clock.now += DAY_MS - 1
    assert await store.runs.by_key(ALICE, KEY) is not None
    clock.now += 1
    assert await store.runs.by_key(ALICE, KEY) is None
    assert await store.runs.body(old, None) is None
    new = await started(store, expires_unix_ms=clock.now + DAY_MS)
    found = await store.runs.by_key(ALICE, KEY)
    assert found is not None
    assert (found.run.id, found.body) == (new, None)
    assert await counted(store) == await held(store) == {ALICE: 1_000, TOTAL: 1_000}


async def test_an_answer_over_its_reservation_or_after_its_time_is_not_kept(
    store: Store, clock: Clock
) -> None:
    """The run is finished all the same, and no quota is exceeded."""
    large, late = await started(store), await started(store, OTHER)
    assert await store.runs.finish(large, finished(large), b"x" * 1_001)
    assert await store.runs.body(large, ALICE) is None
    clock.now += DAY_MS
    await store.prune(0)
    assert await store.runs.finish(late, finished(late), b"x")
    assert await store.runs.body(late, ALICE) is None
    assert await counted(store) == await held(store) == {}


@pytest.mark.parametrize(
    ("changed", "scope"),
    [
        ({"caller_quota_bytes": 1_500}, "caller"),
        ({"total_quota_bytes": 1_500}, "total"),
        ({"caller_quota_bytes": 999}, "caller"),
        ({"total_quota_bytes": 999}, "total"),
        ({"caller_quota_bytes": 0, "total_quota_bytes": 0}, "caller"),
    ],
)
async def test_without_room_nothing_is_written_and_whose_room_it_is_is_said(
    store: Store, changed: dict[str, int], scope: str
) -> None:
    await started(store, OTHER)
    run = starting(new_id())
    with pytest.raises(QuotaExceeded) as raised:
        await store.runs.insert_starting(run, keep(KEY, **changed))
    assert raised.value.scope == scope
    assert await store.runs.get(run.id, None) is None
    assert await store.runs.by_key(ALICE, KEY) is None
    assert await counted(store) == {ALICE: 1_000, TOTAL: 1_000}


async def test_the_first_answer_of_all_meets_the_quotas_too(store: Store) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"caller_quota_bytes": 999}, "caller"),
        ({"total_quota_bytes": 999}, "total"),
    ]
    for changed, scope in cases:
        with pytest.raises(QuotaExceeded) as raised:
            await started(store, **changed)
        assert raised.value.scope == scope
    await started(store, caller_quota_bytes=1_000, total_quota_bytes=1_000)


async def test_answers_go_when_they_expire_and_their_runs_not_before(store: Store, clock: Clock) -> None:
    """Also where retention is shorter than a day: a key must not forget its run."""
    ids = [await started(store, key) for key in (KEY, OTHER)]
    for run_id in ids:
        await store.runs.finish(run_id, finished(run_id), b"answer")
    assert await store.prune(1_500) == 0
    clock.now += DAY_MS
    assert await store.prune(1_500, 1) == 2  # one answer, and its run
    assert await counted(store) == await held(store) == {ALICE: 6, TOTAL: 6}
    assert await store.prune(1_500) == 2
    assert await store.prune(1_500) == 1  # the count of a caller who has nothing left
    assert await store.prune(1_500) == 0
    assert await counted(store) == await held(store) == {}
    assert [await store.runs.get(run_id, None) for run_id in ids] == [None, None]


async def test_a_restart_gives_back_what_open_runs_had_reserved(store: Store) -> None:
    await asyncio.gather(*(started(store, None) for _ in range(5)))
    assert await store.runs.reconcile_at_start(9_000, "service_restarted") == 5
    assert await counted(store) == await held(store) == {}
