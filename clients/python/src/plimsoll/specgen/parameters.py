"""The parameters of an operation: those that a call of a grant can carry, and a finding for each that it cannot."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.contract.grants import QUERY_KEY, QUERY_KEYS
from plimsoll.specgen.document import PARAMETERS, Inexpressible, Node, shown
from plimsoll.specgen.model import HEADERS, Finding, Kind, Parameter, Place
from plimsoll.specgen.names import Names, differs, identifier, prose
from plimsoll.specgen.paths import Variable
from plimsoll.specgen.shapes import shape

Note = Callable[[Finding], None]

_KNOWN: Final = frozenset(
    "name in description required deprecated allowEmptyValue style explode allowReserved schema example examples"  # noqa: SIM905 - words read better than a list of quotes
    " content".split()
)
_STYLES: Final = {"path": "simple", "query": "form", "header": "simple"}
_SCALARS: Final = {"string", "integer", "number", "boolean"}
_OURS: Final = frozenset({"accept", "content-type", "authorization"})
"""Header parameters that OpenAPI itself says to ignore."""


@dataclass(frozen=True, slots=True)
class _Declared:
    node: Node
    wire: str
    place: str
    required: bool


def read(path_item: Node, operation: Node, segments: tuple[str, ...], note: Note) -> tuple[Parameter, ...]:
    """The expressible parameters, those of the path first. Raises Inexpressible for one that no call can do without."""
    declared = _declared(path_item, operation)
    found: list[Parameter] = []
    for variable in (each for each in segments if isinstance(each, Variable)):
        given = declared.pop(("path", str(variable)), None)
        if given is None:
            note(
                Finding(
                    "note", operation.pointer, "parameter", f"{shown(variable)} is not declared: a string"
                )
            )
            found.append(_undeclared(variable))
        else:
            found.append(_parameter(given, note))
    beside = (_beside_the_path(each, note) for each in declared.values())
    found.extend(each for each in beside if each is not None)
    if sum(each.place is Place.QUERY for each in found) > QUERY_KEYS:
        raise Inexpressible(operation.pointer, "query", f"a route lists at most {QUERY_KEYS} query keys")
    return _named(found, operation, note)


def _declared(path_item: Node, operation: Node) -> dict[tuple[str, str], _Declared]:
    """By place and name; the operation's own take the place of the path's."""
    both: dict[tuple[str, str], _Declared] = {}
    for owner in (path_item, operation):
        listed = owner.get("parameters")
        own: set[tuple[str, str]] = set()
        for node in listed.items(PARAMETERS) if listed else ():
            each = _read(node.resolved())
            key = (each.place, each.wire.lower() if each.place == "header" else each.wire)
            if key in own:
                node.fault("must not declare a parameter twice")
            own.add(key)
            both[key] = each
    return both


def _read(node: Node) -> _Declared:
    place = node.text("in")
    if place not in {"path", "query", "header", "cookie"}:
        node.child("in").fault("must be path, query, header or cookie")
    return _Declared(node, node.text("name"), place, node.flag("required", default=place == "path"))


def _undeclared(variable: str) -> Parameter:
    return Parameter(
        "", variable, Place.PATH, Kind.STRING, many=False, required=True, shape="string", summary=""
    )


def _beside_the_path(declared: _Declared, note: Note) -> Parameter | None:
    """Not expressed and required: the operation cannot be called. Not required: it is called without."""
    if declared.place == "path":
        note(Finding("note", declared.node.pointer, "parameter", "the path has no such parameter"))
        return None
    if declared.place == "header" and declared.wire.lower() in _OURS:
        note(Finding("note", declared.node.pointer, "header", "OpenAPI says to ignore this header parameter"))
        return None
    try:
        return _parameter(declared, note)
    except Inexpressible as reason:
        if declared.required:
            raise
        note(Finding("partial", reason.pointer, reason.rule, f"{reason.detail}; the parameter is left out"))
        return None


def _parameter(declared: _Declared, note: Note) -> Parameter:
    node, wire = declared.node, declared.wire
    for unknown in _unknown(node):
        note(unknown)
    if rule := next(_broken(declared), ""):
        raise Inexpressible(node.pointer, declared.place, f"parameter {shown(wire)} {rule}")
    kind, many = _kind(declared)
    return Parameter(
        name="",
        wire=wire.lower() if declared.place == "header" else wire,
        place=Place(declared.place),
        kind=kind,
        many=many,
        required=declared.required,
        shape=_shape(node, kind),
        summary=prose(node.text("description", "")),
    )


def _unknown(node: Node) -> Iterator[Finding]:
    return unknown_members(node, _KNOWN)


def unknown_members(node: Node, known: frozenset[str]) -> Iterator[Finding]:
    """A finding for each member that OpenAPI 3.0 and 3.1 do not have; extensions (`x-`) mean nothing here."""
    for name in node.members():
        if name not in known and not name.startswith("x-"):
            yield Finding(
                "partial", node.pointer, "unknown", f"member {shown(name)} is not known, and not expressed"
            )


def _broken(declared: _Declared) -> Iterator[str]:
    """Why a call cannot carry it."""
    node, place = declared.node, declared.place
    if place == "cookie":
        yield "is a cookie, and calls have none"
    if place == "header" and declared.wire.lower() not in HEADERS:
        yield f"is a header that calls may not set; they may set {', '.join(HEADERS)}"
    if place == "query" and not QUERY_KEY.fullmatch(declared.wire):
        yield "has a name that a route cannot list: 1 to 64 of [A-Za-z0-9._~$[]-]"
    if "content" in node.members():
        yield "is of a media type inside of the URL"
    if node.text("style", _STYLES.get(place, "")) != _STYLES.get(place):
        yield f"has a style other than {_STYLES.get(place)}"
    if node.flag("allowReserved"):
        yield "wants reserved characters as they are, and everything is encoded"


def _kind(declared: _Declared) -> tuple[Kind, bool]:
    """What a value is, and whether there may be several. Raises Inexpressible."""
    schema = _schema(declared.node)
    types = _types(schema)
    if "array" not in types and "object" not in types:
        return _scalar(types), False
    node = declared.node
    if types != {"array"} or declared.place != "query":
        raise Inexpressible(
            node.pointer, declared.place, f"parameter {shown(declared.wire)} is no single value"
        )
    if not node.flag("explode", default=True):
        raise Inexpressible(
            node.pointer,
            declared.place,
            f"parameter {shown(declared.wire)} is a list with commas, which are encoded",
        )
    inner = _types(_inside(schema))
    if inner & {"array", "object"}:
        raise Inexpressible(
            node.pointer, declared.place, f"parameter {shown(declared.wire)} is a list of no values"
        )
    return _scalar(inner), True


def _schema(node: Node | None) -> Node | None:
    """The schema itself; None where nothing is known of it."""
    found = node.get("schema") if node else None
    return _followed(found)


def _inside(schema: Node | None) -> Node | None:
    return _followed(schema.get("items") if schema else None)


def _followed(node: Node | None) -> Node | None:
    if node is None:
        return None
    try:
        target = node.resolved()
    except Inexpressible:
        return None
    return target if isinstance(target.value, dict) else None


def _types(schema: Node | None) -> set[str]:
    """The types that the schema names; empty where it names none."""
    if schema is None:
        return set()
    named: Any = schema.value.get("type")
    types = (
        {named}
        if isinstance(named, str)
        else set(filter(_is_text, named))
        if isinstance(named, list)
        else set()
    )
    return types - {"null"}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _scalar(types: set[str]) -> Kind:
    if len(types) == 1 and types <= _SCALARS:
        return Kind(next(iter(types)))
    return Kind.SCALAR


def _shape(node: Node, kind: Kind) -> str:
    text = shape(node.get("schema"))
    return kind.value if text == "any" and kind is not Kind.SCALAR else text


def _named(parameters: list[Parameter], operation: Node, note: Note) -> tuple[Parameter, ...]:
    names = Names()
    named = []
    for each in parameters:
        name = names.give(identifier(each.wire, "p"))
        if differs(name, each.wire):
            note(
                Finding(
                    "note", operation.pointer, "name", f"parameter {shown(each.wire)} is the argument {name}"
                )
            )
        named.append(_with_name(each, name))
    return tuple(named)


def _with_name(each: Parameter, name: str) -> Parameter:
    return Parameter(
        name, each.wire, each.place, each.kind, each.many, each.required, each.shape, each.summary
    )
