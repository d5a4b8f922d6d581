"""What a worker says of one run, taken in event by event and held against what was asked; pure.

A snippet is one step that nobody announces. A project's steps end in their order, none beyond those asked and none after one
that failed; its artifacts come last, each asked for and once. What does not fit is a `Misfit`: such a run may have run, and no
result is ever made up from it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from plimsoll.contract import bounds
from plimsoll.contract.requests import Payload, Project
from plimsoll.contract.results import Artifact, Outcome, ProjectResult, ScriptResult, StepResult
from plimsoll.contract.worker import Accepted, Ended, Out, RunState, StepEnded

DETAIL_BYTES = 512
"""Most that may be said in words of how a project went."""

Said = Accepted | Out | StepEnded | Artifact | Ended


class Misfit(Exception):
    """The worker said what the request leaves no room for; `cause` is a stable code."""

    def __init__(self, cause: str) -> None:
        """Keep the code."""
        super().__init__(cause)
        self.cause = cause


@dataclass(slots=True)
class Heard:
    """What the worker has said of a run of `payload` so far; `changed` wakes whoever follows it live. Bounded by the caps.

    `told` has output and ends of steps as they came; `steps` and `artifacts` what a project has of them.
    """

    payload: Payload = field(repr=False)
    accepted: Accepted | None = None
    ended: Ended | None = None
    told: list[Out | StepEnded] = field(default_factory=list, repr=False)
    steps: list[StepEnded] = field(default_factory=list, repr=False)
    artifacts: list[Artifact] = field(default_factory=list, repr=False)
    changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    _open: bool = False
    """Whether the step that is next to end has printed something."""
    _artifact_bytes: int = 0

    @classmethod
    def from_state(cls, payload: Payload, state: RunState) -> "Heard":
        """The same from the answer to a query, which is held against the request like events. Raises Misfit."""
        heard = cls(payload)
        heard._take(state.accepted)
        for step in state.steps:
            heard._take(*(out for out in state.output if out.step == step.step), step)
        ended = {step.step for step in state.steps}
        heard._take(*(out for out in state.output if out.step not in ended), *state.artifacts, state.ended)
        return heard

    def _take(self, *said: Said | None) -> None:
        for each in said:
            if each is not None:
                self.note(each)

    def note(self, event: Said) -> None:
        """Take in one event. Raises Misfit."""
        match event:
            case Out():
                self._output(event)
            case StepEnded():
                self._step(event)
            case Artifact():
                self._artifact(event)
            case Accepted():
                self.accepted = event
            case Ended():
                self._end(event)
        self.changed.set()

    def _output(self, out: Out) -> None:
        if out.step != len(self.steps) or not self._may_go_on():
            raise Misfit("output_of_another_step")
        self._open = True
        self.told.append(out)

    def _step(self, step: StepEnded) -> None:
        if not isinstance(self.payload, Project):
            raise Misfit("step_of_a_snippet")
        if step.step != len(self.steps) or not self._may_go_on():
            raise Misfit("step_out_of_order")
        self._open = False
        self.steps.append(step)
        self.told.append(step)

    def _may_go_on(self) -> bool:
        """Whether one more step may be under way."""
        if not isinstance(self.payload, Project):
            return True
        more = len(self.steps) < len(self.payload.steps)
        return more and not self.artifacts and not self._stopped()

    def _stopped(self) -> bool:
        return bool(self.steps) and failed(self.steps[-1])

    def _artifact(self, artifact: Artifact) -> None:
        asked = self.payload.artifacts if isinstance(self.payload, Project) else ()
        self._artifact_bytes += len(artifact.content)
        if artifact.path not in asked:
            raise Misfit("artifact_not_asked_for")
        if any(other.path == artifact.path for other in self.artifacts):
            raise Misfit("artifact_twice")
        if self._open:
            raise Misfit("artifact_before_the_end_of_a_step")
        if self._artifact_bytes > bounds.ARTIFACTS_BYTES:
            raise Misfit("artifacts_too_large")
        self.artifacts.append(artifact)

    def _end(self, ended: Ended) -> None:
        if isinstance(self.payload, Project):
            self._end_of_project(ended)
        elif ended.outcome is not Outcome.UNSPECIFIED or ended.outcome_detail or ended.artifacts_truncated:
            raise Misfit("outcome_of_a_snippet")
        self.ended = ended

    def _end_of_project(self, ended: Ended) -> None:
        if self._open:
            raise Misfit("step_without_end")
        if ended.outcome is Outcome.UNSPECIFIED:
            raise Misfit("no_outcome")
        if len(ended.outcome_detail.encode()) > DETAIL_BYTES:
            raise Misfit("outcome_detail_too_long")
        if ended.outcome is Outcome.SETUP_FAILED and self.steps:
            raise Misfit("steps_without_setup")
        if ended.outcome is Outcome.COMPLETED and not self._complete():
            raise Misfit("steps_missing")

    def _complete(self) -> bool:
        asked = len(self.payload.steps) if isinstance(self.payload, Project) else 0
        return len(self.steps) == asked or self._stopped()

    def _outputs(self) -> Callable[[str, int], bytes]:
        """All bytes of a stream of a step, gathered in one pass."""
        parts: dict[tuple[str, int], list[bytes]] = {}
        for each in self.told:
            if isinstance(each, Out):
                parts.setdefault((each.stream, each.step), []).append(each.data)
        return lambda stream, step: b"".join(parts.get((stream, step), ()))

    def result(self) -> ScriptResult | ProjectResult:
        """The result, of a run that has its end. Raises ValueError before that."""
        if self.ended is None:
            raise ValueError("a run without its end has no result")
        if isinstance(self.payload, Project):
            return self._project(self.payload, self.ended)
        output = self._outputs()
        return ScriptResult(
            kind=self.payload.kind,
            exit_code=self.ended.exit_code,
            timed_out=self.ended.timed_out,
            stdout=output("stdout", 0),
            stderr=output("stderr", 0),
            stdout_truncated=self.ended.stdout_truncated,
            stderr_truncated=self.ended.stderr_truncated,
        )

    def _project(self, asked: Project, ended: Ended) -> ProjectResult:
        output = self._outputs()
        steps = (
            StepResult(
                command=asked.steps[step.step],
                exit_code=step.exit_code,
                timed_out=step.timed_out,
                stdout=output("stdout", step.step),
                stderr=output("stderr", step.step),
                stdout_truncated=step.stdout_truncated,
                stderr_truncated=step.stderr_truncated,
                duration_ms=step.duration_ms,
            )
            for step in self.steps
        )
        return ProjectResult(
            outcome=ended.outcome,
            outcome_detail=ended.outcome_detail,
            artifacts_truncated=ended.artifacts_truncated,
            steps=tuple(steps),
            artifacts=tuple(self.artifacts),
        )


def failed(step: StepEnded) -> bool:
    """Whether a project stops after this step."""
    return step.exit_code != 0 or step.timed_out
