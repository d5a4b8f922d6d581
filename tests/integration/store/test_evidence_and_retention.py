"""Evidence stays as long as anything may refer to it; everything else is forgotten in bounded batches."""

import asyncio

import sqlalchemy as sa

from app.store import schema
from app.store.store import Store
from app.store.values import State, StoredEvidence
from plimsoll.contract.tiers import Tier
from tests.integration.store.samples import (
    ALICE,
    EVIDENCE,
    FACTS,
    Clock,
    caller,
    finished,
    new_id,
    starting,
    token,
)


async def count(store: Store, table: sa.Table) -> int:
    (row,) = await store._database.fetch(sa.select(sa.func.count()).select_from(table))
    total: int = row[0]
    return total


async def test_evidence_comes_back_as_it_was_put_once_or_often(store: Store) -> None:
    puts = (store.evidence.put(EVIDENCE, "wasm", Tier.PROCESS, FACTS) for _ in range(5))
    await asyncio.gather(*puts)
    kept = await store.evidence.get(EVIDENCE)
    assert kept == StoredEvidence(EVIDENCE, "wasm", Tier.PROCESS, FACTS)
    assert await store.evidence.get("00" * 32) is None


async def test_old_runs_go_with_records_and_trail_in_batches(store: Store) -> None:
    for number in range(7):
        run = starting(new_id(), created=1_000 + number)
        await store.runs.insert_starting(run)
        await store.runs.finish(run.id, finished(run.id, ended=1_000 + number))
    assert await store.prune(1_005, 2) == 4
    assert (await count(store, schema.runs), await count(store, schema.records)) == (5, 5)
    while await store.prune(1_005, 2):
        pass
    assert await count(store, schema.runs) == 2
    assert await count(store, schema.records) == 2
    assert await count(store, schema.audit) == 2


async def test_an_open_run_is_never_forgotten(store: Store) -> None:
    run, uncertain = starting(new_id()), starting(new_id())
    for each in (run, uncertain):
        await store.runs.insert_starting(each)
    await store.runs.settle(
        uncertain.id, state=State.MAY_HAVE_RUN, reason="worker_lost", settled=False, audit=None
    )
    assert await store.prune(9_999) == 0
    assert await store.runs.finish(run.id, finished(run.id))


async def test_evidence_goes_when_nothing_can_refer_to_it(store: Store, clock: Clock) -> None:
    for digest in ("e2" * 32, EVIDENCE, "01" * 32):
        await store.evidence.put(digest, "wasm", Tier.PROCESS, FACTS)
    run = starting(new_id(), created=clock.now + 1)
    await store.runs.insert_starting(run)
    await store.runs.finish(run.id, finished(run.id, ended=clock.now + 1))
    before = clock.now + 1
    assert await store.prune(before, keep_evidence=["01" * 32]) == 1
    assert await store.evidence.get(EVIDENCE) is None
    assert await store.evidence.get("e2" * 32) is not None
    assert await store.evidence.get("01" * 32) is not None
    assert await store.prune(before) == 1


async def test_expired_tokens_are_forgotten_and_names_are_not(store: Store, clock: Clock) -> None:
    await store.callers.create(caller("alice", token("01", 10), token("02"), caller_id=ALICE))
    await store.callers.create(caller("bob"))
    await store.callers.revoke("bob")
    assert await store.prune(11) == 1
    alice, bob = await store.callers.all()
    assert (alice.tokens, bob.name) == ((token("02"),), "bob")
