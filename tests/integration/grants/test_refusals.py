"""Which runs with a grant are not dispatched, and why; and that what raw SQL changed in a profile opens no box (S25)."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from tests.integration.grants.conftest import BROKER, PROFILE, Api, Granted, api
from tests.integration.service.stand import Json, Served, Stand, bearer, keyed


def mark(answer: httpx2.Response) -> tuple[int, str]:
    problem: Json = answer.json()
    return answer.status_code, problem["not_dispatched"]["reason"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Granted, Served, Api]]:
    granted = Granted(Stand(tmp_path_factory.mktemp("house"), "", dict(BROKER)))
    with granted.stand.service() as served, api() as server:
        granted.profile(server)
        yield granted, served, server


House = tuple[Granted, Served, Api]


def test_an_unknown_profile_and_another_callers_are_refused_alike(house: House) -> None:
    granted, served, server = house
    unknown = granted.run(served, "effect call:GET=/v1/employees", profile="no-such")
    foreign = granted.run(served, "effect call:GET=/v1/employees", caller="another")
    assert mark(unknown) == mark(foreign) == (403, "permission")
    told = [each.json() | {"request_id": ""} for each in (unknown, foreign)]
    assert told[0] == told[1]
    assert not granted.stand.effects()
    assert not server.seen


def test_a_kept_answer_is_not_for_a_caller_who_lost_the_profile(house: House) -> None:
    granted, served, server = house
    granted.profile(server, "lent")
    first = granted.run(served, "out:kept", profile="lent", headers=keyed("lent-1"))
    again = granted.run(served, "out:kept", profile="lent", headers=keyed("lent-1"))
    assert (first.status_code, first.content) == (200, again.content)
    assert granted.admin("grants", "remove", "lent").returncode == 0
    assert mark(granted.run(served, "out:kept", profile="lent", headers=keyed("lent-1"))) == (
        403,
        "permission",
    )


def test_a_kind_whose_guests_cannot_call_is_unsupported(house: House) -> None:
    granted, served, _ = house
    assert mark(granted.run(served, "out:x", kind="python")) == (501, "unsupported")


def test_without_a_broker_a_grant_is_unsupported(tmp_path: Path) -> None:
    granted = Granted(Stand(tmp_path, "", {}))
    with granted.stand.service() as served:
        assert mark(granted.run(served, "out:x")) == (501, "unsupported")
        described = served.http.get("/v1/describe", headers=bearer(granted.caller("reporting"))).json()
        assert described["grants"] == {"served": False, "broker": "none"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("origin", "EVIL"),
        ("allow", ["GET /v1/employees", "GET /v1/employees/*", "POST /v1/notes", "GET /v1/salaries"]),
        ("allowed_callers", ["reporting", "another"]),
        ("credential", {"header": "x-token"}),
        ("name", "renamed"),
    ],
)
def test_a_profile_that_raw_sql_changed_gets_no_lease_and_no_connection(
    house: House, field: str, value: object
) -> None:
    granted, served, _ = house
    with api() as evil, api() as good:
        granted.profile(good, "changed")
        with closing(sqlite3.connect(granted.stand.file, timeout=30)) as database, database:
            (text,) = database.execute("SELECT profile FROM grants WHERE name = 'changed'").fetchone()
            profile = json.loads(text)
            new = evil.origin if value == "EVIL" else value
            profile[field] = profile[field] | new if isinstance(new, dict) else new
            database.execute("UPDATE grants SET profile = ? WHERE name = 'changed'", [json.dumps(profile)])
        answer = granted.run(served, "effect:x call:GET=/v1/employees", profile="changed")
        assert mark(answer) == (503, "environment")
        assert (evil.seen, good.seen) == ([], [])
    assert not granted.stand.labels()


def test_a_box_of_another_profile_gets_no_lease(house: House) -> None:
    """Whoever can write the database moves the box of a good API beside a profile for an API of their own."""
    granted, served, server = house
    with api() as evil:
        granted.apply(PROFILE.format(name="mine", origin=evil.origin, max_calls=5), "a-secret-of-their-own")
        with closing(sqlite3.connect(granted.stand.file, timeout=30)) as database, database:
            database.execute(
                "UPDATE grants SET sealed = (SELECT sealed FROM grants WHERE name = 'hr-read') WHERE name = 'mine'"
            )
        assert mark(granted.run(served, "call:GET=/v1/employees", profile="mine")) == (503, "environment")
        assert (evil.seen, server.seen) == ([], [])


def test_an_address_that_is_not_listed_gets_no_lease(house: House) -> None:
    granted, served, _ = house
    granted.apply(PROFILE.format(name="inside", origin="https://10.1.2.3", max_calls=5))
    assert mark(granted.run(served, "effect:y", profile="inside")) == (503, "environment")
    (line,) = [
        each
        for each in served.running.lines()
        if each.get("event") == "grant.refused" and each["profile"] == "inside"
    ]
    assert line["fault"] == "address_not_listed"
    assert "10.1.2.3" not in json.dumps(line)


def test_the_service_itself_is_no_api(house: House) -> None:
    granted, served, _ = house
    granted.apply(PROFILE.format(name="ours", origin=served.running.url, max_calls=5))
    assert mark(granted.run(served, "effect:z", profile="ours")) == (503, "environment")
