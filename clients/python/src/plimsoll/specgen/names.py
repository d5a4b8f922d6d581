"""Names of our making from texts of strangers, and prose that is one line and nothing else.

A name is `[a-z][a-z0-9_]*`, a keyword of neither language and nothing that objects have already. The words are written out
here and not taken from the interpreter, so that every version makes the same names.
"""

import re
import unicodedata
from typing import Final

from plimsoll.specgen.model import NAME_LENGTH

PROSE: Final = 240

_RESERVED: Final = frozenset(
    # Python, then JavaScript, then what an object that is awaited, printed or serialised is asked for, then our own
    "and as assert async await break case class continue def del elif else except exec false finally for from global if"  # noqa: SIM905 - words read better than a list of quotes
    " import in is lambda match none nonlocal not or pass print raise return self true try type while with yield"
    " abstract arguments boolean byte catch char const constructor debugger default delete do double enum eval export"
    " extends final float function goto implements infinity instanceof int interface let long nan native new null"
    " package private protected prototype public short static super switch synchronized this throw throws transient"
    " typeof undefined var void volatile"
    " then catch finally inspect api host json body".split()
)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_UNSHOWN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def identifier(text: str, prefix: str) -> str:
    """A name that looks like `text`; `prefix` stands before what would start with a digit or be empty."""
    # Not lower() of the whole: it maps letters beyond ASCII, the Kelvin sign among them, to ones inside.
    plain = "".join(char if char.isascii() else "_" for char in text[: 4 * NAME_LENGTH])
    words = _OTHER.sub("_", _HUMP.sub("_", plain).lower()).strip("_")
    if not words or words[0].isdigit():
        words = f"{prefix}_{words}".strip("_")
    name = words[:NAME_LENGTH].rstrip("_")
    return f"{name}_" if name in _RESERVED else name


def differs(name: str, text: str) -> bool:
    """Whether a reader of `text` would not look for `name`: more than humps and separators became different."""
    return name.replace("_", "") != "".join(char for char in text.lower() if char.isalnum())


class Names:
    """Names that are given once each."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def give(self, name: str) -> str:
        """`name`, or with a number behind it where it is taken."""
        number = self._given.get(name, 1)
        given = name
        while given in self._given:
            number += 1
            given = f"{name.rstrip('_')}_{number}"
        self._given[name] = number
        self._given[given] = self._given.get(given, 1)
        return given


def prose(text: str, limit: int = PROSE) -> str:
    """The text as one line: no control or format characters, no runs of blanks, no backquotes, cut."""
    kept = (
        " " if char.isspace() else "'" if char == "`" else char
        for char in text[: 8 * limit]
        if char.isspace() or unicodedata.category(char) not in _UNSHOWN
    )
    line = " ".join("".join(kept).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
