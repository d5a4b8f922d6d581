"""Many at once on one key, one quota, one answer: one wins, nothing is exceeded, and every lock is let go."""

import asyncio
import itertools
from collections import Counter

from app.store.answers import TOTAL
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

KEY = "0c" * 32
CALLERS = (ALICE, BOB, "ca" * 16)


async def attempt(store: Store, caller_id: str = ALICE, key: str | None = KEY, **changed: object) -> str:
    """The run's id, or the name of what was raised."""
    run_id = new_id()
    try:
        await store.runs.insert_starting(starting(run_id, caller_id=caller_id), keep(key, **changed))
    except (KeyTaken, QuotaExceeded) as refused:
        return type(refused).__name__
    return run_id


async def test_one_of_three_hundred_gets_the_key(store: Store) -> None:
    outcomes = await asyncio.gather(*(attempt(store) for _ in range(300)))
    [winner] = set(outcomes) - {"KeyTaken"}
    assert outcomes.count("KeyTaken") == 299
    found = await store.runs.by_key(ALICE, KEY)
    assert found is not None
    assert found.run.id == winner
    assert [run.id for run in await store.runs.unfinished()] == [winner]
    assert await counted(store) == await held(store) == {ALICE: 1_000, TOTAL: 1_000}


async def test_one_of_twenty_retries_gets_the_key_of_a_run_that_was_not_dispatched(store: Store) -> None:
    first = await attempt(store)
    for _ in range(3):
        await settle(store, first, State.NOT_DISPATCHED)
        outcomes = await asyncio.gather(*(attempt(store, replaces_run_id=first) for _ in range(20)))
        [winner] = set(outcomes) - {"KeyTaken"}
        assert outcomes.count("KeyTaken") == 19
        assert [run.id for run in await store.runs.unfinished()] == [winner]
        assert await counted(store) == await held(store) == {ALICE: 1_000, TOTAL: 1_000}
        first = winner


async def test_one_of_forty_gets_a_key_that_has_expired(store: Store, clock: Clock) -> None:
    await attempt(store)
    clock.now += DAY_MS
    later = clock.now + DAY_MS
    outcomes = await asyncio.gather(*(attempt(store, expires_unix_ms=later) for _ in range(40)))
    assert outcomes.count("KeyTaken") == 39
    assert await counted(store) == await held(store) == {ALICE: 1_000, TOTAL: 1_000}


async def test_no_quota_is_exceeded_by_many_at_once_and_all_of_it_comes_back(
    store: Store, clock: Clock
) -> None:
    """Three callers with room for 10 answers each, and 25 in all."""
    outcomes = await asyncio.gather(
        *(
            attempt(store, caller_id, None, total_quota_bytes=25_000)
            for caller_id in CALLERS
            for _ in range(40)
        )
    )
    won = [outcome for outcome in outcomes if outcome != "QuotaExceeded"]
    assert len(won) == 25
    counts = await counted(store)
    assert counts == await held(store)
    assert counts[TOTAL] == 25_000
    assert max(counts[caller_id] for caller_id in CALLERS) <= 10_000
    await asyncio.gather(*(store.runs.finish(run_id, finished(run_id), b"x" * 7) for run_id in won))
    assert (await counted(store))[TOTAL] == 25 * 7
    clock.now += DAY_MS
    while await store.prune(0, 10):
        pass
    assert await counted(store) == await held(store) == {}


async def test_starting_ending_settling_and_pruning_at_once_wait_for_each_other_in_one_order(
    store: Store, clock: Clock
) -> None:
    """On Postgres two orders would be a deadlock, which would be raised here."""
    keys = itertools.count()
    outcomes: Counter[str] = Counter()

    async def life(number: int) -> None:
        caller_id = CALLERS[number % 3]
        expires = clock.now + (-1 if number % 4 == 0 else DAY_MS)
        key = f"{next(keys):064x}"
        run_id = await attempt(store, caller_id, key, expires_unix_ms=expires, caller_quota_bytes=50_000)
        outcomes[run_id if run_id == "QuotaExceeded" else "started"] += 1
        if run_id == "QuotaExceeded":
            return
        if number % 5 == 0:
            await settle(store, run_id, State.MAY_HAVE_RUN)
        elif number % 7:
            await store.runs.finish(run_id, finished(run_id), b"x" * (number % 900))

    async def tidy() -> None:
        for _ in range(20):
            await store.prune(0, 5)
            await store.runs.adopt_orphans("r1", "replica_lost", 0)

    await asyncio.gather(*(life(number) for number in range(200)), tidy(), tidy())
    assert outcomes["started"] >= 50
    assert await counted(store) == await held(store)
