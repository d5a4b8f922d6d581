"""Everything the client raises.

    PlimsollError                      .not_dispatched  .request_id  .result
    ├── InvalidOption                  a client, or its private service, was set up wrongly
    │   ├── InvalidBaseURL
    │   └── InsecureHTTP               cleartext to something that is not loopback
    ├── Refusal                        the service answered that it gives no result   .code  .status
    │   ├── InvalidRequest             .faults (also raised before anything is sent)
    │   │   ├── NotFound               no such run, record or evidence, or somebody else's
    │   │   └── KeyConflict            the idempotency key came with another request before
    │   ├── Unauthenticated
    │   ├── PermissionDenied
    │   ├── InsufficientIsolation      no wall here meets the floor
    │   ├── SoftwareMismatch           no software here meets the rule
    │   ├── Unsupported
    │   │   └── ExecutionDisabled
    │   ├── ProtocolMismatch           .description when it was found by describe()
    │   ├── Capacity                   .retry_after
    │   ├── Unavailable                a part of the service is down
    │   ├── MayHaveRun                 .run_id
    │   ├── RunPending                 the run has no final word yet   .run_id
    │   └── ServiceError               the service broke, or answered in a way we do not know
    ├── TransportError                 no whole answer came
    │   ├── RequestTimeout             the whole exchange took longer than its deadline
    │   ├── RedirectRefused
    │   ├── ResponseTooLarge
    │   ├── StreamCut                  a stream broke off, or ended without a result
    │   └── MalformedResponse
    ├── DataLoss                       an answer came and cannot be believed   .result
    │   ├── AnswerNotBound             it does not carry our request's id
    │   ├── NoRecord
    │   ├── NoResult                   the run ended, and what it printed is not kept (any more)
    │   ├── RecordVersion              .version
    │   ├── RecordMismatch             .fields
    │   ├── ResultKindMismatch
    │   ├── ResultMismatch             other steps or artifacts than were asked for
    │   ├── IsolationEvidenceMismatch  the wall it states does not meet the floor
    │   ├── EvidenceMismatch           evidence that is not what its digest names
    │   └── StaleAnswer                an old answer: its times or its sandbox are not this run's
    └── LocalServiceError              the private service did not start   .errors

`not_dispatched` is the mark: a reason proves that nothing ran, `"unknown"` that nothing ran for a reason this library has no
word for. None is no proof of anything: the code may have run. The library never retries, marked or not; a caller that does
should do so only with a mark.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from plimsoll.contract.refusals import FieldFault, Reason
from plimsoll.contract.rest import DescribeBody

if TYPE_CHECKING:
    from plimsoll.client.results import AnyRun

Mark = Reason | Literal["unknown"] | None


class PlimsollError(Exception):
    """Root. `request_id` is the id we sent, empty when nothing was built; `result` what came, where it could be read."""

    def __init__(
        self,
        message: str,
        *,
        not_dispatched: Mark = None,
        request_id: str = "",
        result: "AnyRun | None" = None,
    ) -> None:
        super().__init__(message)
        self.not_dispatched = not_dispatched
        self.request_id = request_id
        self.result = result


class InvalidOption(PlimsollError):
    """Nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, not_dispatched=Reason.REQUEST)


class InvalidBaseURL(InvalidOption):
    pass


class InsecureHTTP(InvalidOption):
    pass


class Refusal(PlimsollError):
    """`code` is the service's stable word (empty before sending), `status` the HTTP status (0 before sending).

    `faults` name broken rules, `retry_after` is whole seconds, `run_id` the run an answer speaks of.
    """

    def __init__(
        self,
        message: str,
        *,
        not_dispatched: Mark = None,
        code: str = "",
        status: int = 0,
        faults: Sequence[FieldFault] = (),
        retry_after: int | None = None,
        run_id: str | None = None,
    ) -> None:
        super().__init__(message, not_dispatched=not_dispatched)
        self.code = code
        self.status = status
        self.faults = tuple(faults)
        self.retry_after = retry_after
        self.run_id = run_id


class InvalidRequest(Refusal):
    pass


class NotFound(InvalidRequest):
    pass


class KeyConflict(InvalidRequest):
    """Nothing of this request ran; what the other request under this key did is another matter."""


class Unauthenticated(Refusal):
    pass


class PermissionDenied(Refusal):
    pass


class InsufficientIsolation(Refusal):
    pass


class SoftwareMismatch(Refusal):
    pass


class Unsupported(Refusal):
    pass


class ExecutionDisabled(Unsupported):
    pass


class ProtocolMismatch(Refusal):
    """`description` is the service's whole description, when describe() found the difference."""

    description: DescribeBody | None = None


class Capacity(Refusal):
    pass


class Unavailable(Refusal):
    pass


class MayHaveRun(Refusal):
    pass


class RunPending(Refusal):
    """Not marked: `run_id` is under way, or its end may still become known. Ask for it again, never for a second run."""


class ServiceError(Refusal):
    pass


class TransportError(PlimsollError):
    """Marked `environment` when the connection failed before a byte of the request left, else not marked."""


class RequestTimeout(TransportError):
    pass


class RedirectRefused(TransportError):
    pass


class ResponseTooLarge(TransportError):
    pass


class StreamCut(TransportError):
    pass


class MalformedResponse(TransportError):
    pass


class DataLoss(PlimsollError):
    """Never marked: whatever the answer is, the code may have run."""


class AnswerNotBound(DataLoss):
    pass


class NoRecord(DataLoss):
    pass


class NoResult(DataLoss):
    pass


class RecordVersion(DataLoss):
    def __init__(self, message: str, *, version: int, result: "AnyRun | None" = None) -> None:
        super().__init__(message, result=result)
        self.version = version


class RecordMismatch(DataLoss):
    """`fields` are the record's fields that do not hold, in the order of the checks."""

    def __init__(self, message: str, *, fields: Sequence[str], result: "AnyRun | None" = None) -> None:
        super().__init__(message, result=result)
        self.fields = tuple(fields)


class ResultKindMismatch(DataLoss):
    pass


class ResultMismatch(DataLoss):
    pass


class IsolationEvidenceMismatch(DataLoss):
    pass


class EvidenceMismatch(DataLoss):
    pass


class StaleAnswer(DataLoss):
    pass


class LocalServiceError(PlimsollError):
    """`errors` are the service's own words, when it said any. Nothing was sent."""

    def __init__(self, message: str, *, errors: Sequence[str] = ()) -> None:
        super().__init__(message, not_dispatched=Reason.ENVIRONMENT)
        self.errors = tuple(errors)
