"""A trace is bounded, counts everything, and has no place for what it must not hold."""

from dataclasses import fields

from broker.trace import ENTRIES, Entry, Trace, Tracer
from plimsoll.contract.grants import CallCode

ENTRY = Entry("GET /v1/employees/*", "GET", 200, delivered=True, bytes_back=10, ms=3)


def test_an_empty_trace_says_nothing() -> None:
    assert Tracer().so_far() == Trace((), 0, 0, 0, 0, 0, 0, ())


def test_entries_are_bounded_and_counts_are_not() -> None:
    tracer = Tracer()
    for _ in range(ENTRIES + 7):
        tracer.went(ENTRY, 5)
    trace = tracer.so_far()
    assert (len(trace.entries), trace.left_out) == (ENTRIES, 7)
    assert (trace.sent, trace.delivered) == (ENTRIES + 7, ENTRIES + 7)
    assert (trace.bytes_out, trace.bytes_back) == (5 * (ENTRIES + 7), 10 * (ENTRIES + 7))


def test_what_was_denied_and_what_was_shed_are_counted_apart() -> None:
    tracer = Tracer()
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
