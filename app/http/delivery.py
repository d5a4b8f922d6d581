"""How a caller wants its answer, read from three headers; pure. What is not understood is refused, never ignored."""

import hashlib
import re
from dataclasses import dataclass

from app.http.checks import Headers, values_of
from plimsoll.contract.refusals import Code, Reason, Refusal

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_MEDIA = re.compile(r"\s*([^;,\s]+)\s*((?:;[^,]*)?)")


@dataclass(frozen=True, slots=True)
class Delivery:
    """`key_sha256` of an Idempotency-Key or None; `later`: 202 at once; `stream`: server-sent events."""

    key_sha256: str | None = None
    later: bool = False
    stream: bool = False

    @property
    def kept(self) -> bool:
        """Whether the answer outlives the connection."""
        return self.later or self.key_sha256 is not None


def read_delivery(headers: Headers) -> Delivery | Refusal:
    """The three headers of `POST /v1/runs`: Idempotency-Key, Prefer, Accept."""
    values = values_of(headers)
    key = values.get(b"idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        return _bad("Idempotency-Key must be 1 to 255 visible ASCII characters")
    later = "respond-async" in _preferences(values.get(b"prefer", ""))
    stream = accepts_events(values.get(b"accept", ""))
    if later and stream:
        return _bad("Prefer: respond-async and Accept: text/event-stream exclude each other")
    return Delivery(hashlib.sha256(key.encode()).hexdigest() if key else None, later, stream)


def accepts_events(accept: str) -> bool:
    """Whether `text/event-stream` is asked for (with any weight but 0)."""
    for media, parameters in _MEDIA.findall(accept.lower()):
        if media == "text/event-stream":
            return not re.search(r"q=0(\.0*)?\s*(;|$)", parameters)
    return False


def _preferences(prefer: str) -> set[str]:
    return {re.split(r"[;=]", part, maxsplit=1)[0].strip().lower() for part in prefer.split(",")}


def _bad(rule: str) -> Refusal:
    return Refusal(Code.INVALID_HEADER, rule, Reason.REQUEST)
