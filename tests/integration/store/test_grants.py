"""Public keys of profiles in both databases: published while a profile has them, and after that as long as its tokens live."""

import json
from dataclasses import replace

import pytest
import sqlalchemy as sa

from app.store import grants as grants_module
from app.store.grants import SLACK_MS
from app.store.schema import grant_callers, grants, retired_keys
from app.store.store import Store, open_store
from app.store.values import StoredGrant, TooMuch
from plimsoll.contract.profiles import LIFETIME_CEILING_S, CredentialTerms, CredentialType, Profile
from tests.integration.store.samples import Clock

LIFETIME_S = 600


def profile(name: str, key: str, lifetime_s: int = LIFETIME_S) -> StoredGrant:
    terms = CredentialTerms(
        CredentialType.JWT, "hr", issuer="plimsoll", algorithm="EdDSA", lifetime_s=lifetime_s
    )
    found = Profile(name, "https://hr.example.com", ("GET /v1/employees",), ("reporting",), terms)
    return StoredGrant(found, b"sealed", public_key=key)


async def keys(store: Store) -> list[str]:
    return sorted(set(await store.grants.keys()))


async def test_a_key_is_there_as_soon_as_its_profile_is(database_url: str) -> None:
    async with open_store(database_url, clock=Clock()) as store:
        await store.grants.apply([profile("a", "key-a"), profile("b", "")])
        assert await keys(store) == ["key-a"]
        found = await store.grants.get("a", "reporting")
        assert found is not None
        assert found.public_key == "key-a"
    async with open_store(database_url, clock=Clock()) as store:
        assert await keys(store) == ["key-a"]


@pytest.mark.parametrize("way", ["removed", "rotated"])
async def test_a_key_that_went_stays_as_long_as_its_tokens_can_be_valid(database_url: str, way: str) -> None:
    clock = Clock()
    async with open_store(database_url, clock=clock) as store:
        await store.grants.apply([profile("a", "old")])
        if way == "removed":
            assert await store.grants.remove("a")
        else:
            await store.grants.apply([profile("a", "new")])
        now = [] if way == "removed" else ["new"]
        clock.now += LIFETIME_S * 1_000 + SLACK_MS - 1
        assert await keys(store) == sorted([*now, "old"])
        clock.now += 1
        assert await keys(store) == now


async def test_the_longest_of_a_keys_lifetimes_counts(database_url: str) -> None:
    """The key was used for tokens of a day, then for those of a minute, and for another profile's."""
    clock = Clock()
    async with open_store(database_url, clock=clock) as store:
        await store.grants.apply([profile("a", "key", LIFETIME_CEILING_S)])
        await store.grants.apply([profile("a", "key", 60), profile("b", "key", 60)])
        await store.grants.remove("a")
        await store.grants.remove("b")
        clock.now += LIFETIME_CEILING_S * 1_000
        assert await keys(store) == ["key"]


async def test_a_key_that_is_used_again_is_current(database_url: str) -> None:
    clock = Clock()
    async with open_store(database_url, clock=clock) as store:
        await store.grants.apply([profile("a", "key")])
        await store.grants.remove("a")
        await store.grants.apply([profile("a", "key")])
        clock.now += 10 * LIFETIME_CEILING_S * 1_000
        assert await keys(store) == ["key"]


async def test_keys_that_ended_are_forgotten_by_retention(database_url: str) -> None:
    clock = Clock()
    async with open_store(database_url, clock=clock) as store:
        await store.grants.apply([profile("a", "key")])
        await store.grants.remove("a")

        def count(connection: sa.Connection) -> int:
            return connection.execute(sa.select(sa.func.count()).select_from(retired_keys)).scalar_one()

        await store.prune(clock.now)
        assert await store._database.write(count) == 1
        clock.now += LIFETIME_S * 1_000 + SLACK_MS + 1
        await store.prune(clock.now)
        assert await store._database.write(count) == 0


async def test_a_profile_that_was_spoiled_behind_our_back_can_be_removed_and_replaced(
    database_url: str,
) -> None:
    async with open_store(database_url, clock=Clock()) as store:

        def spoil(connection: sa.Connection) -> None:
            connection.execute(sa.update(grants).values(profile='{"name": "spoiled"'))

        await store.grants.apply([profile("a", "key")])
        await store._database.write(spoil)
        await store.grants.apply([profile("a", "new")])
        await store._database.write(spoil)
        assert await store.grants.remove("a")
        assert await keys(store) == ["key", "new"]


async def test_what_is_published_is_bounded(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile beyond the bound is refused, a retired key left out."""
    monkeypatch.setattr(grants_module, "PROFILES", 3)
    async with open_store(database_url, clock=Clock()) as store:
        await store.grants.apply([profile(f"p{number}", f"key-{number}") for number in range(3)])
        with pytest.raises(TooMuch, match="3 profiles"):
            await store.grants.apply([profile("one-more", "key-more")])
        assert await keys(store) == ["key-0", "key-1", "key-2"]
        for number in range(grants_module.RETIRED + 5):
            await store.grants.apply([profile("p0", f"rotated-{number}")])
        assert len(await keys(store)) <= grants_module.RETIRED + 3


async def test_what_all_profiles_show_is_bounded(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants_module, "SHOWN_CHARACTERS", 100)
    async with open_store(database_url, clock=Clock()) as store:
        first = replace(profile("a", ""), description="x" * 40, catalog="y" * 40)
        await store.grants.apply([first])
        with pytest.raises(TooMuch, match="100 characters"):
            await store.grants.apply([replace(profile("b", ""), preamble=json.dumps({"python": "z" * 40}))])
        assert [each.profile.name for each in await store.grants.all()] == ["a"]


@pytest.mark.parametrize("spoiled", ["", "not JSON", "{}", "[]", "null", '{"name": "b", "allow": 7}'])
async def test_a_profile_that_somebody_spoiled_is_nobodys_and_hides_no_other(
    database_url: str, spoiled: str
) -> None:
    async with open_store(database_url, clock=Clock()) as store:
        await store.grants.apply([profile("a", ""), profile("b", ""), profile("c", "")])
        await write(store, "b", profile=spoiled)
        await write(store, "c", preamble=spoiled)
        found = {each.profile.name: each for each in await store.grants.all()}
        assert [found[name].profile.allowed_callers for name in "abc"] == [("reporting",), (), ("reporting",)]
        assert found["c"].preamble in {"{}", spoiled}
        assert isinstance(json.loads(found["c"].preamble), dict)
        assert await store.grants.get("b", "reporting") is None
        assert [each.profile.name for each in await store.grants.usable("reporting")] == ["a", "c"]
        assert await store.grants.remove("b")


async def write(store: Store, name: str, **columns: str) -> None:
    """Past the command."""
    statement = sa.update(grants).where(grants.c.name == name).values(columns)
    await store.grants._database.write(lambda connection: connection.execute(statement).rowcount)


async def test_a_profile_is_for_its_callers_of_now(store: Store) -> None:
    """Both by name and in lists: those of its last change, whatever the rows say that led there."""
    first = profile("a", "")
    others = replace(first, profile=replace(first.profile, allowed_callers=("another", "third")))
    await store.grants.apply([first, profile("b", "")])
    assert await store.grants.get("a", "another") is None
    await store.grants.apply([others])
    assert await store.grants.get("a", "reporting") is None
    found = await store.grants.get("a", "another")
    assert found is not None
    assert found.profile == others.profile
    assert [each.profile.name for each in await store.grants.usable("reporting")] == ["b"]
    assert [each.profile.name for each in await store.grants.usable("third")] == ["a"]
    await store._database.write(
        lambda connection: (
            connection.execute(sa.insert(grant_callers), {"caller": "reporting", "profile": "a"}).rowcount
        )
    )
    assert await store.grants.get("a", "reporting") is None
    assert [each.profile.name for each in await store.grants.usable("reporting")] == ["b"]
    assert await store.grants.remove("a")
    assert await store.grants.usable("third") == []
