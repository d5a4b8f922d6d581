"""Callers as lines: what is written is read back, and every fault is named with its line."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.identity import Scope
from app.store import exchange
from app.store.values import CallerToken, NewCaller, StoredCaller

HEX64 = st.text("0123456789abcdef", min_size=64, max_size=64)
TIMES = st.none() | st.integers(0, 4_000_000_000_000)
TOKENS = st.builds(CallerToken, HEX64, TIMES)
NAMES = st.from_regex(r"[a-z0-9-]{1,64}", fullmatch=True).filter(lambda name: name not in exchange.RESERVED)
CALLERS = st.builds(
    StoredCaller,
    id=st.text("0123456789abcdef", min_size=32, max_size=32).filter(lambda text: text != "0" * 32),
    name=NAMES,
    scopes=st.frozensets(st.sampled_from(Scope)),
    created_unix_ms=st.just(1),
    revoked_unix_ms=TIMES,
    tokens=st.lists(TOKENS, max_size=3, unique_by=lambda token: token.sha256).map(tuple),
)
GOOD = {"name": "alice", "scopes": ["code:run"], "tokens": []}


def reader() -> exchange.Reader:
    numbers: Iterator[int] = iter(range(100))
    return exchange.Reader(lambda: f"{next(numbers):032x}")


@given(CALLERS)
def test_what_is_written_is_read_back(caller: StoredCaller) -> None:
    read = reader()
    expected = NewCaller(caller.id, caller.name, caller.scopes, caller.tokens, caller.revoked_unix_ms)
    assert read.read(exchange.line(caller)) == [expected]
    assert read.faults == []


@given(st.text())
def test_garbage_is_a_fault_and_never_an_error(text: str) -> None:
    read = reader()
    found = read.read(text)
    assert found == []
    assert bool(read.faults) == any(line.strip() for line in text.split("\n"))


def test_an_absent_id_is_made_and_empty_lines_are_skipped() -> None:
    read = reader()
    lines = ["", json.dumps(GOOD), "  ", json.dumps(GOOD | {"name": "bob"})]
    assert [caller.id for caller in read.read("\n".join(lines))] == [f"{0:032x}", f"{1:032x}"]
    assert read.numbers == [2, 4]


SHA = "ab" * 32


@pytest.mark.parametrize(
    ("line", "faults"),
    [
        ("{", ["must be one JSON object, no member twice"]),
        ("[" * 100_000, ["must be one JSON object, no member twice"]),
        ('{"name": "a", "name": "b"}', ["must be one JSON object, no member twice"]),
        ("[]", ["must be one JSON object, no member twice"]),
        (GOOD | {"name": "Alice"}, ["name: must match [a-z0-9-]{1,64}"]),
        (GOOD | {"name": "a\n"}, ["name: must match [a-z0-9-]{1,64}"]),
        (GOOD | {"name": 5}, ["name: must match [a-z0-9-]{1,64}"]),
        (GOOD | {"name": "anonymous"}, ["name: is reserved"]),
        (GOOD | {"id": "xyz"}, ["id: must be 32 hex digits"]),
        (GOOD | {"id": "0" * 32}, ["id: is reserved"]),
        (
            GOOD | {"scopes": "admin"},
            ["scopes: must be a list of admin, code:run, records:read, records:sign"],
        ),
        (
            GOOD | {"scopes": ["all"]},
            ["scopes: must be a list of admin, code:run, records:read, records:sign"],
        ),
        (GOOD | {"tokens": {}}, ["tokens: must be a list"]),
        (GOOD | {"tokens": [SHA]}, ["tokens: each must be an object of sha256 and expires"]),
        (
            GOOD | {"tokens": [{"sha256": SHA, "x": 1}]},
            ["tokens: each must be an object of sha256 and expires"],
        ),
        (GOOD | {"tokens": [{"sha256": "AB" * 32}]}, ["tokens: sha256 must be 64 hex digits"]),
        (
            GOOD | {"tokens": [{"sha256": SHA, "expires": 5}]},
            ["tokens: expires: must be an ISO 8601 time or null"],
        ),
        (GOOD | {"tokens": [{"sha256": SHA}] * 2}, ["tokens: stands in an earlier place too"]),
        (GOOD | {"revoked": "soon"}, ["revoked: must be an ISO 8601 time or null"]),
        (GOOD | {"token": "x"}, ["'token': is no member of a caller"]),
        ({}, ["name: must match [a-z0-9-]{1,64}"]),
    ],
)
def test_each_broken_rule_is_named(line: object, faults: list[str]) -> None:
    read = reader()
    assert read.read("\n" + (line if isinstance(line, str) else json.dumps(line))) == []
    assert [(number, rule) for number, rule in read.faults if rule in faults] == [
        (2, rule) for rule in faults
    ]


def test_what_stands_in_two_lines_is_a_fault_of_the_second() -> None:
    read = reader()
    read.read("\n".join([json.dumps(GOOD), json.dumps(GOOD | {"scopes": ["admin"]})]))
    assert read.faults == [(2, "name: stands in an earlier place too")]


@pytest.mark.parametrize(
    ("text", "unix_ms"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01.5Z", 1_500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01", 1_000),
    ],
)
def test_a_time_is_utc_unless_it_says_otherwise(text: str, unix_ms: int) -> None:
    assert exchange.unix_ms(text) == unix_ms
