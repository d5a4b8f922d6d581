"""What a trace says about its program: by example, and of any trace."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dispatch.advice import FAN_OUT, FINDINGS, REPEATS, advise
from plimsoll.contract.advice import Advice, AdviceCode
from plimsoll.contract.leases import CallTrace, TraceEntry
from tests.architecture.repository import ROOT
from tests.docs.pages import blocks, page, table

LIST, ONE, NOTE, NAME = (
    "GET /v1/employees?page",
    "GET /v1/employees/*",
    "PUT /v1/notes/*",
    "GET /v1/employees/*/name",
)
ALLOW = (LIST, ONE, NOTE, NAME)
CALL = TraceEntry(0, 200, delivered=True, bytes_back=90, ms=4)
REPEAT = replace(CALL, repeat=True)


def traced(entries: Sequence[TraceEntry], *routes: str, left_out: int = 0) -> CallTrace:
    return CallTrace(routes or (ONE,), tuple(entries), left_out, sent=len(entries) + left_out)


def codes(entries: Sequence[TraceEntry], *routes: str) -> list[tuple[str, str, int]]:
    return [(each.code, each.route, each.count) for each in advise(traced(entries, *routes), ALLOW)]


def test_calls_on_single_items_are_a_fan_out_and_the_grants_list_route_is_named() -> None:
    (found,) = advise(traced([CALL] * 12), ALLOW)
    assert found == Advice(
        code="fan_out",
        route=ONE,
        count=12,
        sentence="12 calls were about one item each; the list route of the same grant may answer for many at once.",
        suggested_route=LIST,
        ms=48,
        bytes_back=1080,
    )


def test_the_page_shows_what_is_said() -> None:
    (shown,) = [
        json.loads(each.text) for each in blocks(ROOT / "docs" / "advice.md") if each.language == "json"
    ]
    assert shown == [asdict(each) for each in advise(traced([CALL] * 12), ALLOW)]


def test_the_page_has_the_thresholds() -> None:
    rows = table(page("advice"), "code", "when", "what helps")
    assert [(code, when.split(" or more")[0]) for code, when, _ in rows] == [
        ("`fan_out`", str(FAN_OUT)),
        ("`repeated_read`", str(REPEATS)),
    ]


@pytest.mark.parametrize("count", [0, 1, FAN_OUT - 1])
def test_fewer_calls_are_no_fan_out(count: int) -> None:
    assert codes([CALL] * count) == []
    assert codes([CALL] * FAN_OUT) == [("fan_out", ONE, FAN_OUT)]


def test_a_route_of_one_path_is_never_fanned_out() -> None:
    assert codes([CALL] * 100, LIST) == []


@pytest.mark.parametrize(
    ("route", "suggested"),
    [(ONE, LIST), (NAME, LIST), (NOTE, ""), ("GET /v1/teams/*", ""), ("POST /v1/employees/*", "")],
)
def test_only_a_route_that_reads_the_same_collection_is_suggested(route: str, suggested: str) -> None:
    (found,) = advise(traced([CALL] * 20, route), (*ALLOW, route))
    assert found.suggested_route == suggested
    assert ("list route" in found.sentence) is bool(suggested)


def test_what_was_read_before_is_a_repeated_read_and_no_fan_out() -> None:
    assert codes([CALL, *[REPEAT] * REPEATS]) == [("repeated_read", ONE, REPEATS)]
    assert codes([CALL, *[REPEAT] * (REPEATS - 1)]) == []
    assert codes([CALL, *[REPEAT] * 40], LIST) == [("repeated_read", LIST, 40)]


def test_both_may_hold_of_one_route() -> None:
    assert codes([*[CALL] * 10, *[REPEAT] * 12]) == [("repeated_read", ONE, 12), ("fan_out", ONE, 10)]


def test_calls_without_an_answer_are_not_counted() -> None:
    assert codes([replace(CALL, delivered=False, status=0)] * 100) == []


def test_what_the_trace_left_out_is_not_guessed_at_and_is_said() -> None:
    (found,) = advise(traced([CALL] * 12, left_out=1), ALLOW)
    assert (found.count, found.at_least) == (12, True)
    assert found.sentence.startswith("At least 12 calls ")
    assert advise(traced([CALL] * (FAN_OUT - 1), left_out=500), ALLOW) == ()


def test_the_most_calls_come_first_and_a_handful_is_all() -> None:
    routes = tuple(f"GET /v1/{number}/*" for number in range(9))
    entries = [replace(CALL, route=number) for number in range(9) for _ in range(10 + number)]
    found = advise(traced(entries, *routes), routes)
    assert [each.route for each in found] == [f"GET /v1/{number}/*" for number in (8, 7, 6, 5)]
    assert len(found) == FINDINGS


def test_a_route_that_the_grant_does_not_hold_is_never_named() -> None:
    assert codes([CALL] * 100, "GET /v1/what/a/guest/said/*") == []


TRACES = st.builds(
    traced,
    st.lists(
        st.builds(
            TraceEntry,
            route=st.integers(0, 3),
            status=st.sampled_from([0, 200, 404]),
            delivered=st.booleans(),
            bytes_back=st.integers(0, 1 << 22),
            ms=st.integers(0, 30_000),
            repeat=st.booleans(),
        ),
        max_size=120,
    ),
    *map(st.just, ALLOW),
    left_out=st.integers(0, 3),
)


@given(TRACES)
def test_of_any_trace_findings_are_few_bounded_and_the_same_again(trace: CallTrace) -> None:
    found = advise(trace, ALLOW)
    assert found == advise(trace, ALLOW)
    assert len(found) <= FINDINGS
    assert len({(each.code, each.route) for each in found}) == len(found)
    for each in found:
        assert each.code in set(AdviceCode)
        assert each.route in ALLOW
        assert each.suggested_route in {"", *ALLOW}
        assert each.at_least is (trace.left_out > 0)
        of_route = [entry for entry in trace.entries if trace.routes[entry.route] == each.route]
        assert min(FAN_OUT, REPEATS) <= each.count <= len(of_route)
        assert each.ms <= sum(entry.ms for entry in of_route)
        assert len(each.sentence) < 256


@given(TRACES, st.randoms())
def test_of_any_trace_the_order_of_its_calls_does_not_matter(trace: CallTrace, chance: Random) -> None:
    mixed = list(trace.entries)
    chance.shuffle(mixed)
    assert advise(replace(trace, entries=tuple(mixed)), ALLOW) == advise(trace, ALLOW)


@given(TRACES)
def test_of_any_trace_findings_do_not_get_fewer_calls_with_more_calls(trace: CallTrace) -> None:
    two = ALLOW[1:3]  # which have no more findings than are made
    more = replace(trace, entries=(*trace.entries, *[replace(CALL, route=1)] * FAN_OUT))
    before = {(each.code, each.route): each.count for each in advise(trace, two)}
    after = {(each.code, each.route): each.count for each in advise(more, two)}
    assert after["fan_out", ONE] >= FAN_OUT
    assert all(after.get(key, 0) >= count for key, count in before.items())
