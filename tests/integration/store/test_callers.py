"""Callers: overlapping tokens, immediate revocation, names that are never given twice."""

import pytest
import sqlalchemy as sa

from app.identity import Caller, Scope
from app.store.schema import audit
from app.store.store import Store
from app.store.values import AlreadyExists, NewCaller, UnknownCaller
from tests.integration.store.samples import ALICE, BOB, Clock, caller, new_id, token


async def names(store: Store) -> list[str]:
    return [kept.name for kept in await store.callers.all()]


async def test_a_token_names_its_caller_until_it_expires(store: Store, clock: Clock) -> None:
    scopes = frozenset({Scope.ADMIN, Scope.RUN})
    await store.callers.create(NewCaller(ALICE, "alice", scopes, (token("01", clock.now + 10),)))
    assert await store.callers.authenticate("01" * 32, clock.now + 9) == Caller(ALICE, "alice", scopes)
    assert await store.callers.authenticate("01" * 32, clock.now + 10) is None
    assert await store.callers.authenticate("02" * 32, clock.now) is None


async def test_rotation_overlaps_and_never_lengthens_a_token(store: Store, clock: Clock) -> None:
    await store.callers.create(caller("alice", token("01"), token("02", clock.now + 5)))
    await store.callers.rotate("alice", token("03"), 1_000)

    async def valid(at: int) -> list[str]:
        return [
            text
            for text in ("01", "02", "03")
            if await store.callers.authenticate(text * 32, clock.now + at) is not None
        ]

    assert await valid(0) == ["01", "02", "03"]
    assert await valid(999) == ["01", "03"]
    assert await valid(1_000) == ["03"]
    await store.callers.rotate("alice", token("04"), 0)
    assert await valid(0) == []
    assert await store.callers.authenticate("04" * 32, clock.now) is not None


async def test_revocation_is_immediate_final_and_keeps_the_name(store: Store, clock: Clock) -> None:
    await store.callers.create(caller("alice", token("01")))
    assert await store.callers.any_exist()
    await store.callers.revoke("alice")
    assert await store.callers.authenticate("01" * 32, clock.now) is None
    assert not await store.callers.any_exist()
    with pytest.raises(UnknownCaller):
        await store.callers.rotate("alice", token("02"), 0)
    with pytest.raises(UnknownCaller):
        await store.callers.revoke("alice")
    with pytest.raises(AlreadyExists):
        await store.callers.create(caller("alice", token("03")))
    assert await store.callers.authenticate("03" * 32, clock.now) is None
    [kept] = await store.callers.all()
    assert (kept.name, kept.revoked_unix_ms, kept.tokens) == ("alice", clock.now, ())


async def test_nothing_of_a_caller_is_kept_when_its_token_is_taken(store: Store) -> None:
    await store.callers.create(caller("alice", token("01")))
    with pytest.raises(AlreadyExists):
        await store.callers.create(caller("bob", token("02"), token("01")))
    assert await names(store) == ["alice"]
    await store.callers.create(caller("bob", token("02")))


async def test_an_import_is_all_or_nothing_and_names_every_fault(store: Store) -> None:
    await store.callers.create(caller("alice", token("01"), caller_id=ALICE))
    new = (caller("carol"), caller("alice", token("01")), caller("dave", caller_id=ALICE))
    assert await store.callers.import_(new) == [
        (1, "name: was used before"),
        (1, "tokens: belongs to a caller already"),
        (2, "id: was used before"),
    ]
    assert await names(store) == ["alice"]
    gone = NewCaller(BOB, "gone", frozenset(), (), revoked_unix_ms=5)
    assert await store.callers.import_((caller("carol", token("02")), gone)) == []
    assert await names(store) == ["alice", "carol", "gone"]


async def test_every_change_leaves_its_line_in_the_trail(store: Store) -> None:
    await store.callers.create(caller("alice", caller_id=ALICE))
    await store.callers.rotate("alice", token("02"), 0)
    await store.callers.revoke("alice")
    await store.callers.import_([caller("bob", caller_id=BOB)])
    with pytest.raises(AlreadyExists):
        await store.callers.create(caller("bob", caller_id=new_id()))
    query = sa.select(audit.c.event, audit.c.caller_id).order_by(audit.c.id)
    rows = [tuple(row) for row in await store._database.fetch(query)]
    changes = [(f"caller.{word}", ALICE) for word in ("created", "rotated", "revoked")]
    assert rows == [*changes, ("caller.imported", BOB)]
