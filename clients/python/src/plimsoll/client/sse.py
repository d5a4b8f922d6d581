"""Server-sent events, read strictly and a piece at a time; pure. What a browser would let pass is refused here.

An event is one line `event: NAME`, one line `data: …` and an empty line, all ended by a line feed; a line that begins with a
colon is a comment. A second line of data, another field or a carriage return is malformed: our service never sends one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from plimsoll.client.errors import MalformedResponse
from plimsoll.contract import bounds

LINE_BYTES = bounds.MIB
"""Longest line of a snippet. The longest honest one is a result with two streams of control characters, about 800 KiB."""

_NAME = re.compile(rb"[a-z][a-z_-]{0,31}")


@dataclass(frozen=True, slots=True)
class Event:
    """One event; its data is one line, not read yet."""

    name: str
    data: bytes = field(repr=False)


class Parser:
    """Bytes in, events out; however the bytes are cut into pieces, the events are the same."""

    def __init__(self, limit: int = LINE_BYTES) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._event: dict[bytes, bytes] = {}

    @property
    def between(self) -> bool:
        """Whether the last event is complete."""
        return not self._rest and not self._event

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that `data` completes, one after the other. Raises MalformedResponse at the first fault."""
        first, *more = data.split(b"\n")
        self._take(first)
        for part in more:
            line = bytes(self._rest)
            self._rest.clear()
            if (event := self._line(line)) is not None:
                yield event
            self._take(part)

    def _take(self, part: bytes) -> None:
        if len(self._rest) + len(part) > self._limit:
            raise MalformedResponse(f"the stream has a line of more than {self._limit} bytes")
        self._rest += part

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._complete()
        if b"\r" in line:
            raise MalformedResponse("the stream has a carriage return")
        if line.startswith(b":"):
            return None
        name, _, value = line.partition(b":")
        if name not in {b"event", b"data"} or name in self._event:
            raise MalformedResponse("the stream has a line that is no part of an event")
        self._event[name] = value.removeprefix(b" ")
        return None

    def _complete(self) -> Event | None:
        found, self._event = self._event, {}
        if not found:
            return None
        if len(found) != 2 or not _NAME.fullmatch(found[b"event"]):  # noqa: PLR2004 - the two lines of an event
            raise MalformedResponse("the stream has an event without a name or without data")
        return Event(found[b"event"].decode("ascii"), found[b"data"])
