"""What a run's calls say about how well its program calls the API; pure, and the same for equal traces.

It is asked once the result is final, so it can change nothing. It knows routes of the profile and numbers: neither a path nor a
word of a guest is in a trace. Entries that a trace left out are not guessed at: counts then say `at_least`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll.contract.advice import Advice, AdviceCode
from plimsoll.contract.grants import ANY_SEGMENT, Route, parse_route
from plimsoll.contract.leases import CallTrace, TraceEntry

FAN_OUT: Final = 10
"""From so many calls on single items on. Each costs one way to the API and back; fewer cost no more than starting a sandbox."""
REPEATS: Final = 3
"""From so many reads of something known on. A look before, one after and one to make sure are ordinary programs."""
FINDINGS: Final = 4
"""Of the most calls. Whoever mends these runs again, and is told of the next."""

_SINGLY: Final = "{count} calls were about one item each; "
_LIST: Final = "the list route of the same grant may answer for many at once."
_BATCH: Final = "if the API has a route for many items, it takes fewer calls, and the grant has to allow it."
_KEEP: Final = (
    "{count} calls read what the run had read before, with no write in between;"
    " keep the first answer, unless it is to change."
)


@dataclass(frozen=True, slots=True)
class _Called:
    """The delivered calls of one route: first readings and writes, and repeats."""

    text: str
    route: Route
    fresh: tuple[TraceEntry, ...]
    repeats: tuple[TraceEntry, ...]


def advise(trace: CallTrace, allow: Sequence[str]) -> tuple[Advice, ...]:
    """The findings on a run's calls, most calls first. `allow` are its grant's routes; of no other one is anything said."""
    granted = {text: parse_route(text) for text in allow}
    found = [each for called in _by_route(trace, granted) for each in _findings(called, trace, granted)]
    return tuple(sorted(found, key=lambda each: (-each.count, each.code, each.route))[:FINDINGS])


def _by_route(trace: CallTrace, granted: dict[str, Route]) -> Iterator[_Called]:
    delivered: dict[int, list[TraceEntry]] = {}
    for entry in trace.entries:
        if entry.delivered:
            delivered.setdefault(entry.route, []).append(entry)
    for place, entries in delivered.items():
        text = trace.routes[place]
        if text in granted:
            fresh = tuple(entry for entry in entries if not entry.repeat)
            yield _Called(text, granted[text], fresh, tuple(entry for entry in entries if entry.repeat))


def _findings(called: _Called, trace: CallTrace, granted: dict[str, Route]) -> Iterator[Advice]:
    partial = trace.left_out > 0
    if ANY_SEGMENT in called.route.segments and len(called.fresh) >= FAN_OUT:
        suggested = _list_route(called.route, granted)
        sentence = _SINGLY + (_LIST if suggested else _BATCH)
        yield _advice(AdviceCode.FAN_OUT, called, called.fresh, sentence, suggested, partial=partial)
    if len(called.repeats) >= REPEATS:
        yield _advice(AdviceCode.REPEATED_READ, called, called.repeats, _KEEP, partial=partial)


def _advice(
    code: AdviceCode,
    called: _Called,
    about: Sequence[TraceEntry],
    sentence: str,
    suggested: str = "",
    *,
    partial: bool,
) -> Advice:
    count = f"At least {len(about)}" if partial else str(len(about))
    return Advice(
        code=code.value,
        route=called.text,
        count=len(about),
        sentence=sentence.format(count=count),
        at_least=partial,
        suggested_route=suggested,
        ms=sum(entry.ms for entry in about),
        bytes_back=sum(entry.bytes_back for entry in about),
    )


def _list_route(route: Route, granted: dict[str, Route]) -> str:
    """The granted route, first in its order, that reads the collection which this one reads single items of; empty: none."""
    if route.method != "GET":
        return ""
    last = len(route.segments) - 1 - route.segments[::-1].index(ANY_SEGMENT)
    collection = route.segments[:last]
    same = (text for text, each in granted.items() if each.method == "GET" and each.segments == collection)
    return next(same, "")
