"""A trace is bounded, counts everything, and has no place for what it must not hold."""

from dataclasses import fields, replace
from typing import Any

import pytest

from broker.trace import ENTRIES, Entry, Trace, Tracer
from plimsoll.contract.grants import CallCode

KEY = b"k" * 32
ENTRY = Entry("GET /v1/employees/*", "GET", 200, delivered=True, bytes_back=10, ms=3)


def test_an_empty_trace_says_nothing() -> None:
    assert Tracer(KEY).so_far() == Trace((), 0, 0, 0, 0, 0, 0, ())


def test_entries_are_bounded_and_counts_are_not() -> None:
    tracer = Tracer(KEY)
    for _ in range(ENTRIES + 7):
        tracer.went(ENTRY, 5, "/v1/employees/7")
    trace = tracer.so_far()
    assert (len(trace.entries), trace.left_out) == (ENTRIES, 7)
    assert (trace.sent, trace.delivered) == (ENTRIES + 7, ENTRIES + 7)
    assert (trace.bytes_out, trace.bytes_back) == (5 * (ENTRIES + 7), 10 * (ENTRIES + 7))


def test_what_was_denied_and_what_was_shed_are_counted_apart() -> None:
    tracer = Tracer(KEY)
    for code in (CallCode.DENIED, CallCode.SHED, CallCode.DENIED):
        tracer.failed(code)
    tracer.probed()
    trace = tracer.so_far()
    assert dict(trace.failed) == {CallCode.DENIED: 2, CallCode.SHED: 1}
    assert (trace.sent, trace.probes) == (0, 1)


def test_there_is_no_field_for_what_guests_and_apis_said() -> None:
    assert {field.name for field in fields(Entry)} == {
        "route",
        "method",
        "status",
        "delivered",
        "bytes_back",
        "ms",
        "repeat",
    }
    assert {field.name for field in fields(Trace)} == {
        "entries",
        "left_out",
        "sent",
        "delivered",
        "bytes_out",
        "bytes_back",
        "probes",
        "failed",
    }


def repeats(*calls: tuple[Entry, str], key: bytes = KEY) -> list[bool]:
    tracer = Tracer(key)
    for entry, target in calls:
        tracer.went(entry, 0, target)
    return [entry.repeat for entry in tracer.so_far().entries]


def test_the_same_get_is_a_repeat_from_the_second_on() -> None:
    calls = [(ENTRY, "/v1/employees/1"), (ENTRY, "/v1/employees/2"), (ENTRY, "/v1/employees/1")]
    assert repeats(*calls, calls[0]) == [False, False, True, True]


def test_another_query_is_another_read() -> None:
    assert repeats((ENTRY, "/v1/x?page=1"), (ENTRY, "/v1/x?page=2"), (ENTRY, "/v1/x")) == [False] * 3


@pytest.mark.parametrize(
    "changes",
    [{"delivered": False}, {"status": 404}, {"status": 304}, {"status": 0}, {"method": "HEAD"}],
)
def test_what_brought_no_answer_to_keep_is_no_repeat_and_is_not_remembered(changes: dict[str, Any]) -> None:
    other = replace(ENTRY, **changes)
    assert repeats((other, "/v1/x"), (other, "/v1/x"), (ENTRY, "/v1/x"), (other, "/v1/x")) == [False] * 4


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_after_a_write_everything_is_read_for_the_first_time(method: str, *, delivered: bool) -> None:
    write = replace(ENTRY, method=method, delivered=delivered)
    read = (ENTRY, "/v1/x")
    assert repeats(read, read, (write, "/v1/y"), read, read) == [False, True, False, False, True]


def test_no_more_is_remembered_than_there_are_entries_and_none_of_it_is_a_target() -> None:
    tracer = Tracer(KEY)
    for number in range(2 * ENTRIES):
        tracer.went(ENTRY, 0, f"/v1/employees/{number}")
    seen = tracer._read._seen
    assert len(seen) == ENTRIES
    assert all(len(digest) == 16 for digest in seen)


def test_equal_targets_of_two_runs_have_nothing_in_common() -> None:
    one, other = Tracer(KEY), Tracer(b"o" * 32)
    for tracer in (one, other):
        tracer.went(ENTRY, 0, "/v1/employees/1")
    assert not one._read._seen & other._read._seen
