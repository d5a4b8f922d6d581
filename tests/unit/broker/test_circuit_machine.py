"""Any order of calls, answers, looks and waits: the API is left alone as asked, and never for good."""

import math

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.circuit import LATE_S, LONGEST_WAIT_S, Circuit, Go, Probe, Shed


class Calls(RuleBasedStateMachine):
    """Knows only what was asked for and when, not how the circuit keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.circuit = Circuit(has_probe=True)
        self.flying: list[Go] = []
        self.looks = 0
        self.last_look = -math.inf
        self.last_first = -math.inf
        self.throttled_until = -math.inf
        self.down_until = -math.inf
        self.turned_away = False
        self.first = 0

    @rule(seconds=st.sampled_from([0.0, 0.3, 0.7, 1.0, 5.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def call(self) -> None:
        verdict = self.circuit.ask(self.now)
        match verdict:
            case Go(first):
                assert self.now >= self.throttled_until
                assert self.now >= self.down_until
                assert bool(first) == self.turned_away
                if first:
                    self.first, self.last_first = first, self.now
                self.flying.append(verdict)
            case Probe():
                assert self.throttled_until <= self.now < self.down_until
                assert self.now >= self.last_look + (LATE_S if self.looks else 1)
                self.looks, self.last_look = 1, self.now
            case Shed(seconds):
                assert self.turned_away
                assert 1 <= seconds <= LONGEST_WAIT_S

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(),
        status=st.sampled_from([200, 404, 500, 429, 503]),
        asked=st.sampled_from([None, 0.0, 0.5, 3.0, 99.0]),
    )
    def answer(self, data: st.DataObject, status: int, asked: float | None) -> None:
        went = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        self.circuit.answered(self.now, status, asked, first=went.first)
        until = self.now + (1.0 if asked is None else min(asked, LONGEST_WAIT_S))
        if status == 429:
            self.throttled_until = max(self.throttled_until, until)
        elif status == 503:
            self.down_until = max(self.down_until, until)
        if status in {429, 503}:
            self.turned_away, self.first = True, 0
        else:
            self.ends(went)

    @precondition(lambda self: self.flying)
    @rule()
    def break_off(self) -> None:
        went = self.flying.pop()
        self.circuit.ended(first=went.first)
        self.ends(went)

    def ends(self, went: Go) -> None:
        """Only the latest of the first ones opens the way: an earlier one says nothing about a wait that came after it."""
        if went.first and went.first == self.first:
            self.turned_away, self.first = False, 0

    @precondition(lambda self: self.looks)
    @rule(healthy=st.booleans())
    def look(self, *, healthy: bool) -> None:
        self.looks = 0
        self.circuit.probed(healthy=healthy)
        if healthy:
            self.down_until = -math.inf

    @invariant()
    def it_is_never_shut_for_good(self) -> None:
        assert max(self.throttled_until, self.down_until) <= self.now + LONGEST_WAIT_S


TestCalls = Calls.TestCase
