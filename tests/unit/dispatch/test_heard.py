"""What a worker may say of a run, event by event: what fits gives one result, what does not is named and gives none."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.dispatch.heard import DETAIL_BYTES, Heard, Misfit, Said
from plimsoll.contract import bounds
from plimsoll.contract.requests import File, JavaScript, Payload, Project, Python
from plimsoll.contract.results import Artifact, Outcome, ProjectResult, ScriptResult, StepResult
from plimsoll.contract.worker import Ended, Out, RunState, StepEnded
from tests.support.fakes import BOOT, accepted, ended

ASKED = Project((File("in", b"x"),), ("one", "two", "three"), ("a", "b/c"))
SNIPPETS: tuple[Payload, ...] = (JavaScript("1"), Python("1"))


def done(**changes: Any) -> Ended:
    return ended(**{"outcome": Outcome.COMPLETED} | changes)


WHOLE: tuple[Said, ...] = (
    accepted(),
    Out("stdout", b"1", 0),
    Out("stderr", b"e", 0),
    Out("stdout", b"2", 0),
    StepEnded(0, 0, duration_ms=7, stderr_truncated=True),
    StepEnded(1, 0),
    Out("stdout", b"3", 2),
    StepEnded(2, 4),
    Artifact("b/c", b"\xff"),
    Artifact("a", b""),
    done(exit_code=4, artifacts_truncated=True),
)
RESULT = ProjectResult(
    outcome=Outcome.COMPLETED,
    artifacts_truncated=True,
    steps=(
        StepResult("one", 0, stdout=b"12", stderr=b"e", stderr_truncated=True, duration_ms=7),
        StepResult("two"),
        StepResult("three", 4, stdout=b"3"),
    ),
    artifacts=(Artifact("b/c", b"\xff"), Artifact("a", b"")),
)


def heard(payload: Payload, said: Sequence[Said]) -> Heard:
    one = Heard(payload)
    for each in said:
        one.note(each)
    return one


def state(said: Sequence[Said]) -> RunState:
    """What the worker answers to a query about the same run: the output of each stream of each step in one piece."""
    output: dict[tuple[int, str], bytes] = {}
    for each in said:
        if isinstance(each, Out):
            output[each.step, each.stream] = output.get((each.step, each.stream), b"") + each.data
    return RunState(
        "r" * 32,
        BOOT,
        "finished",
        accepted(),
        next((each for each in said if isinstance(each, Ended)), None),
        tuple(Out(stream, data, step) for (step, stream), data in output.items()),  # type: ignore[arg-type]
        tuple(each for each in said if isinstance(each, StepEnded)),
        tuple(each for each in said if isinstance(each, Artifact)),
    )


def test_a_project_is_its_steps_with_their_commands_and_output_and_its_artifacts() -> None:
    assert heard(ASKED, WHOLE).result() == RESULT


def test_a_query_tells_the_same_result_as_the_events() -> None:
    assert Heard.from_state(ASKED, state(WHOLE)).result() == RESULT


@pytest.mark.parametrize("payload", SNIPPETS, ids=["javascript", "python"])
def test_a_snippet_is_one_step_of_its_own_kind(payload: Payload) -> None:
    said = (accepted(), Out("stdout", b"a"), Out("stderr", b"b"), Out("stdout", b"c"), ended(exit_code=3))
    expected = ScriptResult(payload.kind, 3, stdout=b"ac", stderr=b"b")
    assert heard(payload, said).result() == expected
    assert Heard.from_state(payload, state(said)).result() == expected


def test_the_first_step_that_fails_is_the_last() -> None:
    for failed in (StepEnded(0, 1), StepEnded(0, 0, timed_out=True)):
        result = heard(ASKED, (accepted(), failed, done())).result()
        assert isinstance(result, ProjectResult)
        assert len(result.steps) == 1


def test_a_project_may_end_before_its_first_step_and_in_the_middle_of_them() -> None:
    for outcome in (Outcome.SETUP_FAILED, Outcome.RUNNER_FAILED, Outcome.TIMED_OUT, Outcome.PROTOCOL_ERROR):
        assert heard(ASKED, (accepted(), done(outcome=outcome))).result() is not None
    assert (
        heard(ASKED, (accepted(), StepEnded(0, 0), done(outcome=Outcome.RUNNER_FAILED))).result() is not None
    )


STEPS: tuple[Said, ...] = tuple(StepEnded(number, 0) for number in range(3))
HALF = bounds.ARTIFACTS_BYTES // 2
OF_A_PROJECT: dict[str, tuple[str, tuple[Said, ...]]] = {
    "a later step first": ("step_out_of_order", (StepEnded(1, 0),)),
    "a step twice": ("step_out_of_order", (StepEnded(0, 0), StepEnded(0, 0))),
    "a step of a negative number": ("step_out_of_order", (StepEnded(-1, 0),)),
    "more steps than asked": ("step_out_of_order", (*STEPS, StepEnded(3, 0))),
    "a step after one that failed": ("step_out_of_order", (StepEnded(0, 1), StepEnded(1, 0))),
    "a step after one at its deadline": (
        "step_out_of_order",
        (StepEnded(0, 0, timed_out=True), StepEnded(1, 0)),
    ),
    "a step after an artifact": ("step_out_of_order", (StepEnded(0, 0), Artifact("a", b""), StepEnded(1, 0))),
    "output of a later step": ("output_of_another_step", (Out("stdout", b"x", 1),)),
    "output of a step that ended": ("output_of_another_step", (StepEnded(0, 0), Out("stdout", b"x", 0))),
    "output after the last step": ("output_of_another_step", (*STEPS, Out("stdout", b"x", 3))),
    "output after a step that failed": ("output_of_another_step", (StepEnded(0, 1), Out("stdout", b"x", 1))),
    "output after an artifact": ("output_of_another_step", (Artifact("a", b""), Out("stdout", b"x", 0))),
    "an artifact nobody asked for": ("artifact_not_asked_for", (*STEPS, Artifact("in", b"x"))),
    "an artifact twice": ("artifact_twice", (*STEPS, Artifact("a", b"x"), Artifact("a", b"x"))),
    "artifacts over their bound": (
        "artifacts_too_large",
        (*STEPS, Artifact("a", b"x" * HALF), Artifact("b/c", b"x" * (HALF + 1))),
    ),
    "an artifact in the middle of a step": (
        "artifact_before_the_end_of_a_step",
        (Out("stdout", b"x"), Artifact("a", b"x")),
    ),
    "an end in the middle of a step": ("step_without_end", (Out("stdout", b"x"), done())),
    "no outcome": ("no_outcome", (*STEPS, ended())),
    "steps without a setup": ("steps_without_setup", (StepEnded(0, 0), done(outcome=Outcome.SETUP_FAILED))),
    "a completion without its steps": ("steps_missing", (StepEnded(0, 0), done())),
    "a completion without any step": ("steps_missing", (done(),)),
    "endless words": ("outcome_detail_too_long", (*STEPS, done(outcome_detail="x" * (DETAIL_BYTES + 1)))),
}


@pytest.mark.parametrize("name", OF_A_PROJECT)
def test_what_does_not_fit_a_project_is_named(name: str) -> None:
    cause, said = OF_A_PROJECT[name]
    with pytest.raises(Misfit) as caught:
        heard(ASKED, (accepted(), *said))
    assert caught.value.cause == cause


OF_A_STATE = (
    "more steps than asked",
    "an artifact nobody asked for",
    "an artifact twice",
    "no outcome",
    "a step twice",
)


@pytest.mark.parametrize("name", OF_A_STATE)
def test_nor_does_it_fit_as_the_answer_to_a_query(name: str) -> None:
    cause, said = OF_A_PROJECT[name]
    with pytest.raises(Misfit) as caught:
        Heard.from_state(ASKED, state(said))
    assert caught.value.cause == cause


OF_A_SNIPPET: dict[str, tuple[str, Said]] = {
    "a step": ("step_of_a_snippet", StepEnded(0, 0)),
    "an artifact": ("artifact_not_asked_for", Artifact("a", b"")),
    "output of a second step": ("output_of_another_step", Out("stdout", b"x", 1)),
    "an outcome": ("outcome_of_a_snippet", done()),
    "words about an outcome": ("outcome_of_a_snippet", ended(outcome_detail="well")),
    "artifacts that were cut": ("outcome_of_a_snippet", ended(artifacts_truncated=True)),
}


@pytest.mark.parametrize("payload", SNIPPETS, ids=["javascript", "python"])
@pytest.mark.parametrize("name", OF_A_SNIPPET)
def test_what_only_a_project_has_does_not_fit_a_snippet(name: str, payload: Payload) -> None:
    cause, said = OF_A_SNIPPET[name]
    with pytest.raises(Misfit) as caught:
        heard(payload, (accepted(), said))
    assert caught.value.cause == cause


def test_artifacts_of_exactly_the_bound_fit() -> None:
    said = (accepted(), *STEPS, Artifact("a", b"x" * HALF), Artifact("b/c", b"x" * HALF), done())
    assert heard(ASKED, said).result() is not None


def test_nothing_of_a_guest_is_in_a_repr() -> None:
    text = repr(heard(Project((), ("secret-step",), ("a",)), (accepted(), Out("stdout", b"secret-output"))))
    assert "secret" not in text
