"""Rules on the header of a call that are this API's own, pure. What every request must keep is checked before (app.http)."""

from app.http.checks import Headers, values_of
from plimsoll.contract.refusals import Code, Reason, Refusal

_VERSION = b"connect-protocol-version"
_DETAIL = 'Connect-Protocol-Version must be sent once, as "1"'


def broken_rule(headers: Headers) -> Refusal | None:
    """The first rule that the header of a call breaks."""
    if [value for name, value in headers if name == _VERSION] != [b"1"]:
        return Refusal(Code.INVALID_HEADER, _DETAIL, Reason.REQUEST)
    return _not_served(headers)


def _not_served(headers: Headers) -> Refusal | None:
    """A header that asks for what this API does not do. Ignored, it would promise that."""
    values = values_of(headers)
    asked = {
        "Idempotency-Key": b"idempotency-key" in values,
        "Prefer: respond-async": "respond-async" in values.get(b"prefer", "").lower(),
        "Accept: text/event-stream": "text/event-stream" in values.get(b"accept", "").lower(),
    }
    for name, wanted in asked.items():
        if wanted:
            detail = f"{name} is served at POST /v1/runs only"
            return Refusal(Code.UNSUPPORTED, detail, Reason.UNSUPPORTED)
    return None
