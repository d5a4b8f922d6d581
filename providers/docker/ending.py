"""How a run ends, by itself or not, said in the seam's words. Pure.

A project's exit code is that of its last step, also of one that was stopped. It has artifacts only if it came to its own end.
"""

from dataclasses import dataclass
from enum import Enum

from plimsoll.contract.requests import JavaScript, Project, Python
from plimsoll.contract.results import EXIT_CANCELLED, EXIT_DEADLINE, EXIT_FLOOD, EXIT_MEMORY, Outcome
from plimsoll.contract.worker import Out, StepEnded
from providers.docker.frames import ProjectEnded, Runnable
from providers.docker.ledger import Ledger
from providers.seam import Finish

_FAILED = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a run that did not end by itself; `outcome` and `detail` are a project's."""

    exit_code: int
    outcome: Outcome
    detail: str
    timed_out: bool = False
    oom_killed: bool = False
    cancelled: bool = False


class Stop(Enum):
    """Why the host ends a run."""

    DEADLINE = Verdict(EXIT_DEADLINE, Outcome.TIMED_OUT, "", timed_out=True)
    CANCELLED = Verdict(EXIT_CANCELLED, Outcome.RUNNER_FAILED, "cancelled", cancelled=True)
    FLOOD = Verdict(EXIT_FLOOD, Outcome.RUNNER_FAILED, "output_flood")
    MEMORY = Verdict(EXIT_MEMORY, Outcome.RUNNER_FAILED, "out_of_memory", oom_killed=True)


def runnable(payload: object) -> Runnable:
    """The payload as one that containers run. Raises TypeError."""
    if not isinstance(payload, JavaScript | Python | Project):
        raise TypeError(type(payload).__name__)
    return payload


def of_snippet(ledger: Ledger, exit_code: int) -> Finish:
    """A snippet ended by itself."""
    return _snippet(ledger, Verdict(exit_code, Outcome.UNSPECIFIED, ""))


def of_project(ledger: Ledger, said: ProjectEnded) -> Finish:
    """A project ended by itself, at its end, at a step that failed, or because it could not be set up or gone on with."""
    otherwise = 0 if said.outcome is Outcome.COMPLETED else _FAILED
    return Finish(
        ledger.last_exit or otherwise,
        outcome=said.outcome,
        outcome_detail=said.detail,
        artifacts_truncated=said.artifacts_truncated,
    )


def of_stop(payload: Runnable, ledger: Ledger, why: Stop) -> Finish:
    """The host ended it."""
    verdict = why.value
    if not isinstance(payload, Project):
        return _snippet(ledger, verdict)
    return Finish(
        verdict.exit_code if ledger.last_exit is None else ledger.last_exit,
        timed_out=verdict.timed_out,
        oom_killed=verdict.oom_killed,
        cancelled=verdict.cancelled,
        outcome=verdict.outcome,
        outcome_detail=verdict.detail,
    )


def cut_off(payload: Runnable, ledger: Ledger, why: Stop, now: float) -> list[Out | StepEnded]:
    """The last output of a run that is stopped, and the end of the step that was under way; the others never began."""
    if not isinstance(payload, Project):
        return [*ledger.flush()]
    if ledger.last_exit or ledger.step >= len(payload.steps):
        return []  # the steps were over, only artifacts were to come
    return ledger.end_step(why.value.exit_code, now, timed_out=why.value.timed_out)


def _snippet(ledger: Ledger, verdict: Verdict) -> Finish:
    return Finish(
        verdict.exit_code,
        timed_out=verdict.timed_out,
        oom_killed=verdict.oom_killed,
        cancelled=verdict.cancelled,
        stdout_truncated=ledger.truncated("stdout"),
        stderr_truncated=ledger.truncated("stderr"),
    )
