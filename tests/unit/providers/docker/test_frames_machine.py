"""The frame machine against an agent that says anything in any order, beside a model of what it may say."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from plimsoll.contract.requests import Project, Python
from plimsoll.contract.results import Artifact
from providers.docker.agent import wire
from providers.docker.frames import (
    BadTalk,
    Called,
    Event,
    Output,
    ProjectEnded,
    Ready,
    SnippetEnded,
    StepEnded,
    Talk,
)

PATHS = ("a", "b", "c")
STEPS = 2
CAP = 8
WORDS = st.sampled_from(["ready", "pong", "out", "step", "artifact", "call", "result", "mark", "oom"])
RARELY = st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])
VALUES = st.one_of(
    st.integers(-1, 3), st.booleans(), st.sampled_from(["stdout", "a", "completed", ""]), st.none()
)


class Hostile(RuleBasedStateMachine):
    """Rules with a sensible word, rules with nonsense; what comes out is checked as it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.talk = Talk(CAP)
        self.events: list[Event] = []
        self.project = self.calls = False

    @initialize(project=st.booleans(), early=st.booleans(), calls=st.booleans())
    def begin(self, *, project: bool, early: bool, calls: bool) -> None:
        self.project, self.calls = project, calls
        if not early:
            self.say({"t": "ready", "warm": []})
        payload = Project(steps=("x",) * STEPS, artifacts=PATHS) if project else Python("1")
        self.talk.begin(payload, calls=calls)
        if early:
            self.say({"t": "ready", "warm": []})

    def say(self, header: dict[str, Any], body: bytes = b"") -> None:
        self.feed(wire.encode(header, body))

    def feed(self, data: bytes, *, keep: bool = True) -> None:
        """On a copy: what breaks it is dropped, and the next rule goes on from where the talk was whole."""
        copy = deepcopy(self.talk)
        events: list[Event] = []
        try:
            events.extend(copy.feed(data))
        except BadTalk:
            with pytest.raises(BadTalk):
                list(copy.feed(wire.encode({"t": "result", "exit": 0})))
            return
        if keep:
            self.talk = copy
            self.events += events

    def ended(self) -> int:
        return sum(isinstance(event, StepEnded) for event in self.events)

    @rule(beside=RARELY, stream=st.sampled_from(["stdout", "stderr"]), body=st.binary(min_size=1, max_size=4))
    def output(self, beside: int, stream: str, body: bytes) -> None:
        self.say({"t": "out", "step": self.ended() + beside, "stream": stream}, body)

    @rule(beside=RARELY, code=st.sampled_from([0, 0, 1]))
    def step_ends(self, beside: int, code: int) -> None:
        self.say({"t": "step", "step": self.ended() + beside, "exit": code})

    @rule(path=st.sampled_from([*PATHS, "d"]), size=st.sampled_from([0, 0, 1, 2]), cut=RARELY)
    def artifact(self, path: str, size: int, cut: int) -> None:
        self.say({"t": "artifact", "path": path, "size": size}, b"x" * (size - cut))

    def called(self) -> list[int]:
        return [event.number for event in self.events if isinstance(event, Called)]

    @rule(beside=RARELY, size=st.integers(0, 3), cut=RARELY)
    def call(self, beside: int, size: int, cut: int) -> None:
        self.say({"t": "call", "n": len(self.called()) + 1 + beside, "size": size}, b"x" * (size - cut))

    @rule(number=st.integers(1, 40))
    def reply(self, number: int) -> None:
        list(self.talk.reply(number, b"answer"))

    @invariant()
    def calls_are_numbered_and_come_only_where_they_may(self) -> None:
        assert self.called() == list(range(1, len(self.called()) + 1))
        assert self.calls or not self.called()
        for index, event in enumerate(self.events):
            if isinstance(event, Called):
                assert not any(isinstance(before, Artifact) for before in self.events[:index])
                assert sum(isinstance(before, StepEnded) for before in self.events[:index]) < STEPS

    @rule(code=st.integers(0, 1))
    def snippet_ends(self, code: int) -> None:
        self.say({"t": "result", "exit": code})

    @rule(outcome=st.sampled_from(["completed", "setup_failed", "runner_failed"]))
    def project_ends(self, outcome: str) -> None:
        self.say({"t": "result", "outcome": outcome, "detail": "", "truncated": False})

    @rule(word=WORDS, fields=st.dictionaries(st.sampled_from(["exit", "step", "path", "n", "warm"]), VALUES))
    def nonsense(self, word: str, fields: dict[str, Any]) -> None:
        self.say({"t": word, **fields})

    @rule(data=st.binary(min_size=8, max_size=24))
    def noise(self, data: bytes) -> None:
        self.feed(data, keep=False)

    @invariant()
    def at_most_one_result_and_nothing_after_it(self) -> None:
        ends = [event for event in self.events if isinstance(event, SnippetEnded | ProjectEnded)]
        assert len(ends) <= 1
        assert not ends or self.events[-1] is ends[0]
        assert all(isinstance(end, ProjectEnded) == self.project for end in ends)

    @invariant()
    def ready_is_said_once_and_first(self) -> None:
        assert [index for index, event in enumerate(self.events) if isinstance(event, Ready)] in ([], [0])

    @invariant()
    def steps_come_in_order_and_none_after_a_failed_one(self) -> None:
        ended = [event for event in self.events if isinstance(event, StepEnded)]
        assert [event.step for event in ended] == list(range(len(ended)))
        assert len(ended) <= (STEPS if self.project else 0)
        assert all(event.exit_code == 0 for event in ended[:-1])

    @invariant()
    def output_belongs_to_the_step_under_way(self) -> None:
        step = 0
        for event in self.events:
            if isinstance(event, StepEnded):
                step = event.step + 1
            elif isinstance(event, Output):
                assert event.step == step
                assert event.data

    @invariant()
    def artifacts_are_among_those_asked_for_and_come_once(self) -> None:
        paths = [event.path for event in self.events if isinstance(event, Artifact)]
        assert [path for path in PATHS if path in paths] == paths
        assert self.project or not paths

    @invariant()
    def artifacts_come_after_the_last_step(self) -> None:
        for index, event in enumerate(self.events):
            if isinstance(event, Artifact):
                ended = [before for before in self.events[:index] if isinstance(before, StepEnded)]
                assert len(ended) == STEPS or ended[-1].exit_code != 0


Hostile.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestHostileAgent = Hostile.TestCase
