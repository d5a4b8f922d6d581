"""A run that was started earlier: what is known of it, and what its state says; pure.

No failure to ask proves anything about the run itself, so of all errors here only one is marked: the state `not_dispatched`, on
an answer that is bound to our own request and about this very run.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Generic

from plimsoll.client import errors, refusals, verify, views
from plimsoll.client.answers import LATER, Received, shaped
from plimsoll.client.requests import seconds_rule
from plimsoll.client.results import R
from plimsoll.contract.refusals import FieldFault
from plimsoll.contract.rest import CancelBody, RunView

_WAIT_MAX_S = 60
_PAUSE_S = 0.2
_FOREVER_S = 1e9


@dataclass(frozen=True, slots=True)
class Started(Generic[R]):
    """A run that the service took. `finished` when the answer was there already, kept under the key."""

    id: str
    expected: verify.Expected[R]
    sent_ms: int
    finished: R | None = field(default=None, repr=False)


def started(
    expected: verify.Expected[R], request_id: str, answer: dict[str, Any], received: Received
) -> Started[R]:
    """The run behind an answer to `Prefer: respond-async`."""
    if received.head.status == LATER:
        run_id = shaped(RunView, answer).id
        return Started(run_id, replace(expected, run_id=run_id), received.sent_ms)
    run = verify.run_answer(expected, request_id, answer, received)
    return Started(run.id, expected, received.sent_ms, run)


def pending(answer: dict[str, Any]) -> errors.RunPending:
    """The error for a run under our key that has no final word yet."""
    return still(shaped(RunView, answer).id)


def still(run_id: str) -> errors.RunPending:
    """The error for a run that has no final word yet."""
    return errors.RunPending("the run has no final word yet: it may still be running", run_id=run_id)


def settled_view(run_id: str, answer: dict[str, Any]) -> RunView | None:
    """The run as kept once its state is final, else None. Raises what the state means when there is no result."""
    found = views.view(run_id, answer)
    if not found.settled or found.state == "starting":
        return None
    if found.state == "may_have_run":
        raise errors.MayHaveRun("the run was started and its end is not known", run_id=run_id)
    if found.state == "not_dispatched":
        raise _not_dispatched(found)
    if found.record is None:
        raise errors.NoRecord("the answer has no record")
    return found


def _not_dispatched(found: RunView) -> errors.PlimsollError:
    if found.not_dispatched is None or found.record is not None or found.result is not None:
        return errors.MalformedResponse("the answer says that nothing ran, and something else")
    return refusals.state_refusal(found.not_dispatched.reason, found.id)


def final_run(run: Started[R], request_id: str, answer: dict[str, Any], received: Received) -> R | None:
    """The run once it ended and everything holds, None before. Raises as `settled_view`, NoResult, DataLoss's kinds."""
    found = settled_view(run.id, answer)
    if found is None:
        return None
    if found.result is None:
        raise errors.NoResult("the run ended, and what it printed is not kept (any more)")
    since = replace(received, sent_ms=run.sent_ms)
    return verify.run_answer(run.expected, request_id, answer | {"recorded": True}, since)


def outcome(run_id: str, answer: dict[str, Any]) -> str:
    """What asking to cancel came to."""
    found = shaped(CancelBody, answer)
    if found.id != run_id:
        raise errors.AnswerNotBound("the answer is about another run")
    return found.outcome


class Patience:
    """How long to go on asking: `seconds` in all, each question well within the exchange's own deadline."""

    def __init__(self, seconds: float | None, deadline_s: float, now: float) -> None:
        """Raises InvalidRequest for what is no duration, not marked: that says nothing about the run."""
        total = deadline_s if seconds is None else seconds
        if rule := seconds_rule(total) or ("must not be negative" if total < 0 else None):
            raise errors.InvalidRequest(f"timeout: {rule}", faults=[FieldFault("timeout", rule)])
        self._until = now + min(total, _FOREVER_S)
        self._longest = min(_WAIT_MAX_S, int(deadline_s / 2))

    def wait(self, now: float) -> int:
        """Whole seconds that the service is asked to wait."""
        return max(0, min(self._longest, int(self._until - now)))

    def pause(self, now: float) -> float | None:
        """Seconds until the next question, None when there shall be none."""
        left = self._until - now
        return min(_PAUSE_S, left) if left > 0 else None
