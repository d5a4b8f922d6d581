"""The host's table: what a ticket is worth, and that it never says "never started" of something that may have run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.contract.requests import Kind
from plimsoll.contract.results import Artifact
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import TICKET_TTL_MS, Ended, Out, Spec
from providers.host import table as module
from providers.host.table import Held, Running, Table

BOOT = "b" * 32


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


class Secrets:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        return f"{self.made:032x}"


def spec(run_id: str) -> Spec:
    return Spec(run_id, "t" * 32, Kind.JAVASCRIPT, None, 1_000, 65_536)


def made(slots: int = 2, kept_ids: int = 100) -> tuple[Table, Clock]:
    clock = Clock()
    return Table(slots, BOOT, clock_ms=clock, new_secret=Secrets(), kept_ids=kept_ids), clock


def held(table: Table, run_id: str) -> Held:
    ticket = table.reserve(spec(run_id))
    assert isinstance(ticket, Held)
    return ticket


def started(table: Table, run_id: str) -> Running:
    running = table.spend(run_id, held(table, run_id).secret)
    assert isinstance(running, Running)
    return running


def test_a_ticket_is_spent_once() -> None:
    table, _ = made()
    ticket = held(table, "r")
    assert isinstance(table.spend("r", ticket.secret), Running)
    assert table.spend("r", ticket.secret) == "unknown"


def test_a_ticket_is_good_for_its_run_and_secret_only() -> None:
    table, _ = made()
    one, two = held(table, "one"), held(table, "two")
    assert table.spend("one", two.secret) == "unknown"
    assert table.spend("none", one.secret) == "unknown"
    assert isinstance(table.spend("one", one.secret), Running)


def test_a_ticket_expires_exactly_at_its_time() -> None:
    table, clock = made()
    last, late = held(table, "last"), held(table, "late")
    clock.now += TICKET_TTL_MS - 1
    assert isinstance(table.spend("last", last.secret), Running)
    clock.now += 1
    assert table.spend("late", late.secret) == "expired"
    assert table.state("late").state == "void"


def test_an_expired_id_may_reserve_again_and_a_voided_one_may_not() -> None:
    table, clock = made()
    held(table, "r")
    clock.now += TICKET_TTL_MS
    held(table, "r")
    table.void("r")
    assert table.reserve(spec("r")) == "used"
    assert table.state("r").state == "void"


def test_void_fences_an_expired_ticket_too() -> None:
    table, clock = made()
    held(table, "r")
    clock.now += TICKET_TTL_MS
    assert table.free == 2
    table.void("r")
    assert table.reserve(spec("r")) == "used"


def test_slots_are_running_runs_and_good_tickets() -> None:
    table, clock = made(slots=2)
    started(table, "one")
    held(table, "two")
    assert (table.free, table.reserve(spec("three"))) == (0, "full")
    clock.now += TICKET_TTL_MS
    assert table.free == 1
    table.end("one", None)
    assert table.free == 2


def test_void_leaves_a_running_run_alone() -> None:
    table, _ = made()
    started(table, "r")
    table.void("r")
    assert table.state("r").state == "running"


def test_a_run_that_never_started_is_void_for_good() -> None:
    table, _ = made()
    started(table, "r")
    table.never_started("r")
    assert table.state("r").state == "void"
    assert table.reserve(spec("r")) == "used"


def test_an_end_is_kept_with_its_output_and_then_forgotten_as_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = made()
    started(table, "r").keep(Out("stdout", b"out"))
    table.end("r", Ended(0))
    assert (table.state("r").state, table.state("r").output) == ("finished", (Out("stdout", b"out"),))
    clock.now += module.KEPT_MS
    assert table.state("r").state == "broken"  # it did start, and what became of it is not known any more
    assert table.reserve(spec("r")) == "used"


def test_ends_are_bounded_by_count_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_ENDS", 3)
    monkeypatch.setattr(module, "KEPT_BYTES", 100)
    table, _ = made()
    for number in range(5):
        started(table, str(number)).keep(Out("stdout", b"x" * 10))
        table.end(str(number), Ended(0))
    assert [table.state(str(number)).state for number in range(5)] == ["broken"] * 2 + ["finished"] * 3
    big = started(table, "big")
    big.keep(Out("stderr", b"x" * 45, step=1))
    big.artifacts.append(Artifact("a", b"x" * 50))
    table.end("big", Ended(0))
    assert table.state("4").state == "broken"
    assert table.state("big").state == "finished"


def test_once_a_started_id_is_forgotten_no_id_is_unknown() -> None:
    table, clock = made(kept_ids=2)
    assert table.state("never seen").state == "unknown"
    for run_id in ("a", "b", "c"):
        started(table, run_id)
        table.end(run_id, None)
    clock.now += module.KEPT_MS
    assert table.state("a").state == "broken"
    assert table.state("never seen").state == "broken"


def test_every_run_keeps_the_weakest_wall_since_its_start_and_what_was_last_seen_of_it() -> None:
    table, _ = made()
    early, late = started(table, "early"), started(table, "late")
    early.behind(Tier.PROCESS, "first")
    table.lower(Tier.NONE, "dropped")
    late.behind(Tier.PROCESS, "mended")
    table.lower(Tier.PROCESS, "mended again")
    assert (early.tier, early.evidence_sha256) == (Tier.NONE, "dropped")
    assert (late.tier, late.evidence_sha256) == (Tier.PROCESS, "mended again")


steps = st.lists(
    st.tuples(st.sampled_from(["reserve", "spend", "void", "end", "wait"]), st.sampled_from("abcd")),
    max_size=60,
)


@given(steps)
@settings(deadline=None)
def test_whatever_happens_a_started_run_is_never_called_unstarted(done: list[tuple[str, str]]) -> None:
    """`unknown` or `void` of an id whose code ran would be a false proof; slots never go negative."""
    table, clock = made(slots=2, kept_ids=2)
    secrets: dict[str, str] = {}
    ran: set[str] = set()
    running: set[str] = set()
    for what, run_id in done:
        if what == "reserve" and isinstance(ticket := table.reserve(spec(run_id)), Held):
            assert run_id not in ran or table._forgot
            secrets[run_id] = ticket.secret
        elif what == "spend" and isinstance(table.spend(run_id, secrets.get(run_id, "")), Running):
            ran.add(run_id)
            running.add(run_id)
        elif what == "void":
            table.void(run_id)
        elif what == "end" and run_id in running:
            table.end(run_id, Ended(0))
            running.discard(run_id)
        elif what == "wait":
            clock.now += 2_000
        assert 0 <= table.free <= 2
        assert all(table.state(each).state not in {"unknown", "void"} for each in ran)
