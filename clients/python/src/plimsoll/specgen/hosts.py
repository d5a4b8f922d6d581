"""Callers and models see what is made of a document, and are not to see where the API is: its host is taken out.

What callers are shown of an operation are words that the document may fill with anything, and words that its calls need. From
the first the host is cut; an operation whose calls need it is left out. Both are findings.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from plimsoll.contract.grants import Origin
from plimsoll.contract.profiles import naming
from plimsoll.specgen.document import shown
from plimsoll.specgen.model import Api, Finding, Operation, Parameter, Place

RULE: Final = "host"
_CUT: Final = "…"


def callable_ones(
    made: Sequence[Operation], origin: Origin | None, note: Callable[[Finding], None]
) -> tuple[Operation, ...]:
    """Those whose calls do not need the host."""
    if origin is None:
        return tuple(made)
    named = naming(origin.host)
    needed = [each for each in made if _needs(each, named)]
    for each in needed:
        note(Finding("left out", "#/paths", RULE, _why(each)))
    return tuple(each for each in made if each not in needed)


def cut(api: Api, note: Callable[[Finding], None]) -> Api:
    """The same without the host of its origin in any text."""
    if api.origin is None:
        return api
    plain = _without(api, naming(api.origin.host))
    if plain != api:
        told = f"texts name the API's host, which callers are not to see: {_CUT} is in its place"
        note(Finding("note", "#", RULE, told))
    return plain


def _why(each: Operation) -> str:
    return f"calls of {shown(str(each.route))} name the API's own host, which callers are not to see"


def _needs(each: Operation, named: re.Pattern[str]) -> bool:
    wires = (one.wire for one in each.parameters if one.place is not Place.PATH)
    content_type = each.body.content_type if each.body else ""
    return any(map(named.search, (str(each.route), content_type, *wires)))


def _without(api: Api, named: re.Pattern[str]) -> Api:
    return replace(
        api,
        title=_cut(api.title, named),
        version=_cut(api.version, named),
        operations=tuple(_operation(each, named) for each in api.operations),
    )


def _operation(each: Operation, named: re.Pattern[str]) -> Operation:
    return replace(
        each,
        summary=_cut(each.summary, named),
        answer=_cut(each.answer, named),
        parameters=tuple(_parameter(one, named) for one in each.parameters),
        body=each.body and replace(each.body, shape=_cut(each.body.shape, named)),
    )


def _parameter(one: Parameter, named: re.Pattern[str]) -> Parameter:
    # That of a path is no part of a call; the others were looked at before.
    return replace(
        one,
        wire=_cut(one.wire, named) if one.place is Place.PATH else one.wire,
        shape=_cut(one.shape, named),
        summary=_cut(one.summary, named),
    )


def _cut(text: str, named: re.Pattern[str]) -> str:
    # Again, because what follows one may be one only once that is gone.
    while named.search(text):
        text = named.sub(_CUT, text)
    return text
