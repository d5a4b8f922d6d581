"""A path template as the segments of a route: literals of the route grammar, and whole segments that are parameters."""

import re
from typing import Final

from plimsoll.contract.grants import SEGMENT
from plimsoll.specgen.document import Inexpressible, shown

_PARAMETER: Final = re.compile(r"\{([^{}/]{1,128})\}")


class Variable(str):
    """The name of a path parameter, where a literal would stand."""

    __slots__ = ()


def parse_template(path: str, pointer: str) -> tuple[tuple[str, ...], bool]:
    """The segments of `path`, and whether it ends with a slash. Raises Inexpressible."""
    if not path.startswith("/"):
        raise Inexpressible(pointer, "path", f"path {shown(path)} does not start with /")
    closing = len(path) > 1 and path.endswith("/")
    inner = path[1:-1] if closing else path[1:]
    segments = tuple(_segment(each, path, pointer) for each in inner.split("/")) if inner or closing else ()
    variables = [each for each in segments if isinstance(each, Variable)]
    if len(set(variables)) != len(variables):
        raise Inexpressible(pointer, "path", f"path {shown(path)} has a parameter twice")
    return segments, closing


def _segment(text: str, path: str, pointer: str) -> str:
    if found := _PARAMETER.fullmatch(text):
        return Variable(found[1])
    if "{" in text or "}" in text:
        raise Inexpressible(
            pointer,
            "path",
            f"path {shown(path)} has a parameter inside a segment; a route's * is a whole one",
        )
    if not SEGMENT.fullmatch(text):
        raise Inexpressible(
            pointer,
            "path",
            f"path {shown(path)} has a segment that is not 1 to 128 of [A-Za-z0-9._~-], or is of dots",
        )
    return text
