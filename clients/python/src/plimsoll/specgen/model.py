"""What a document says of an API, as far as a grant can express it: the one value that every output is written from.

Whatever stands in generated code is of a closed alphabet: names are `[a-z][a-z0-9_]*` and of our making, segments, query
keys and header names match the grammar of routes. Any other text of the document is in `title`, `version`, `summary`,
`shape` and `answer`, and in the `wire` of a parameter of the path.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from plimsoll.contract.grants import Origin, Route

NAME_LENGTH: Final = 64
HEADERS: Final = ("if-match", "if-none-match", "idempotency-key")
"""Headers that a call may set by an argument; the broker's allow list without those of the body and the answer."""


class Place(StrEnum):
    """Where an argument goes."""

    PATH = "path"
    QUERY = "query"
    HEADER = "header"


class Kind(StrEnum):
    """What an argument may be. `SCALAR` is any of the others."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    SCALAR = "scalar"


class Form(StrEnum):
    """What a body is: a JSON value or a text."""

    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument. `name` is ours and what is written in a program, `wire` is what the API calls it."""

    name: str
    wire: str
    place: Place
    kind: Kind
    many: bool
    required: bool
    shape: str
    summary: str


@dataclass(frozen=True, slots=True)
class Body:
    """The argument `body`."""

    content_type: str
    form: Form
    required: bool
    shape: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One function of the client. `segments` are literals, and numbers of parameters where the route has `*`."""

    name: str
    route: Route
    segments: tuple[str | int, ...]
    parameters: tuple[Parameter, ...]
    body: Body | None
    answer: str
    summary: str
    deprecated: bool


@dataclass(frozen=True, slots=True)
class Api:
    """The intermediate value. `allow` is derived from the operations, so no function is without its route."""

    title: str
    version: str
    origin: Origin | None
    operations: tuple[Operation, ...]

    @property
    def allow(self) -> tuple[str, ...]:
        """The routes, each once, in the operations' order."""
        return tuple(dict.fromkeys(str(each.route) for each in self.operations))


Effect = Literal["left out", "partial", "wider", "note"]
"""`left out`: not in the outputs. `partial`: in them, without something. `wider`: the allow list approves more than was
asked for. `note`: all of it is there, but not as a reader of the document would expect."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not expressed, and why. `pointer` leads into the document, `rule` is stable, `detail` a sentence."""

    effect: Effect
    pointer: str
    rule: str
    detail: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of a document."""

    api: Api
    findings: tuple[Finding, ...]

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for is in the outputs, and nothing else."""
        return all(each.effect == "note" for each in self.findings)
