"""An HTTP answer before its meaning: its head, its bytes, its JSON (checks 18, 19, 20 and 21). Pure."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from plimsoll.client.errors import AnswerNotBound, MalformedResponse, RedirectRefused, ResponseTooLarge
from plimsoll.contract import bounds
from plimsoll.records import strictjson

BODY_LIMIT = 32 * bounds.MIB

OK = 200
LATER = 202

REQUEST_ID = "plimsoll-request-id"
NOT_DISPATCHED = "plimsoll-not-dispatched"

Shape = TypeVar("Shape", bound=BaseModel)

JSON = "application/json"
EVENTS = "text/event-stream"

_JSON_TYPE = re.compile(r"application/(problem\+)?json(;\s*charset=\"?utf-8\"?)?", re.IGNORECASE)
_EVENTS_TYPE = re.compile(r"text/event-stream(;\s*charset=\"?utf-8\"?)?", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,19}")
_REDIRECTS = range(300, 400)
_ERRORS = range(400, 600)


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers; names are lower case."""

    status: int
    headers: tuple[tuple[str, str], ...]

    def only(self, name: str) -> str | None:
        """The header's value if it is there exactly once."""
        values = [value for other, value in self.headers if other == name]
        return values[0] if len(values) == 1 else None

    @property
    def is_error(self) -> bool:
        """Whether the status says that there is no result."""
        return self.status in _ERRORS


@dataclass(frozen=True, slots=True)
class Received:
    """A whole answer, and our own clock in Unix milliseconds before sending and after receiving."""

    head: Head
    body: bytes = field(repr=False)
    sent_ms: int
    received_ms: int


def check_head(head: Head, statuses: Collection[int] = (OK,)) -> None:
    """Refuse an answer by its head, before its body is read; `statuses` are the successes. Raises TransportError's kinds."""
    if head.status in _REDIRECTS:  # check 18: following it would send code and token elsewhere
        raise RedirectRefused(
            f"the service answered with a redirect ({head.status}), which is never followed"
        )
    if head.status not in statuses and not head.is_error:
        raise MalformedResponse(f"the service answered with status {head.status}, which is no answer here")
    length = head.only("content-length")
    if length is not None and _DIGITS.fullmatch(length) and int(length) > BODY_LIMIT:  # check 19
        raise too_large()


def too_large(limit: int = BODY_LIMIT) -> ResponseTooLarge:
    """The error for a body over the limit."""
    return ResponseTooLarge(f"the answer is larger than {limit} bytes")


def is_bound(head: Head, request_id: str) -> bool:
    """Whether the answer is to this very request."""
    return head.only(REQUEST_ID) == request_id


def require_bound(head: Head, request_id: str) -> None:
    """Check 21 for a success. Raises AnswerNotBound; what such an answer holds is nobody's result."""
    if not is_bound(head, request_id):
        raise AnswerNotBound("the answer does not carry the id of our request")


def is_stream(head: Head) -> bool:
    """Whether this is a success whose body is an event stream, not encoded."""
    encoded = any(name == "content-encoding" and value != "identity" for name, value in head.headers)
    return head.status == OK and not encoded and bool(_EVENTS_TYPE.fullmatch(head.only("content-type") or ""))


def json_object(received: Received) -> dict[str, Any]:
    """The body as a JSON object, read strictly (check 20). Raises MalformedResponse, never repeating what was read."""
    head = received.head
    if any(name == "content-encoding" and value != "identity" for name, value in head.headers):
        raise MalformedResponse("the answer is encoded, which was not asked for")
    if not _JSON_TYPE.fullmatch(head.only("content-type") or ""):
        raise MalformedResponse("the answer's content type is not JSON")
    try:
        value = strictjson.loads(received.body)
    except strictjson.JsonFault as fault:
        raise MalformedResponse(f"the answer {fault}") from None
    if not isinstance(value, dict):
        raise MalformedResponse("the answer must be a JSON object")
    return value


def shaped(shape: type[Shape], value: object) -> Shape:
    """`value` as a shape of the contract. Raises MalformedResponse naming place and rule."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise MalformedResponse(f"the answer's {place or 'body'}: {first['msg']}") from None
