"""Broken rules in our own words: from pydantic's errors to `FieldFault`s, without any value a caller sent.

The name of an unknown field does come from the caller, so a path is limited, and escaped to visible ASCII.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from plimsoll.contract.refusals import FieldFault

FAULTS = 20
"""At most this many faults are reported."""
READ = 1000
"""Beyond this many errors none is read: reading one costs a kilobyte."""
SEGMENT = 64
PATH = 200

_Context = Mapping[str, Any]

_PHRASES: dict[str, Callable[[_Context], str]] = {
    "missing": lambda _: "is required",
    "extra_forbidden": lambda _: "is not a known field",
    "string_type": lambda _: "must be a string",
    "string_unicode": lambda _: "must be valid Unicode without lone surrogates",
    "string_too_long": lambda ctx: f"must be at most {ctx['max_length']} characters",
    "string_too_short": lambda ctx: f"must be at least {ctx['min_length']} characters",
    "string_pattern_mismatch": lambda ctx: f"must match {ctx['pattern']}",
    "literal_error": lambda ctx: f"must be {ctx['expected']}",
    "int_type": lambda _: "must be an integer",
    "int_parsing": lambda _: "must be an integer",
    "int_parsing_size": lambda _: "must be an integer of 64 bits",
    "int_from_float": lambda _: "must be an integer",
    "float_type": lambda _: "must be a number",
    "float_parsing": lambda _: "must be a number",
    "finite_number": lambda _: "must be a finite number",
    "bool_type": lambda _: "must be true or false",
    "bool_parsing": lambda _: "must be true or false",
    "greater_than_equal": lambda ctx: f"must be at least {ctx['ge']}",
    "greater_than": lambda ctx: f"must be greater than {ctx['gt']}",
    "less_than_equal": lambda ctx: f"must be at most {ctx['le']}",
    "less_than": lambda ctx: f"must be less than {ctx['lt']}",
    "list_type": lambda _: "must be a list",
    "too_short": lambda ctx: f"must hold at least {ctx['min_length']}",
    "too_long": lambda ctx: f"must hold at most {ctx['max_length']}",
    "dict_type": lambda _: "must be an object",
    "model_type": lambda _: "must be an object",
    "model_attributes_type": lambda _: "must be an object",
    "union_tag_not_found": lambda _: "is required",
    "union_tag_invalid": lambda ctx: f"must be one of {ctx['expected_tags']}",
    "rule": lambda ctx: str(ctx["rule"]),
}
FALLBACK = "is not valid"


def faults_of(model: type[BaseModel], error: ValidationError) -> list[FieldFault]:
    """The faults in a body that `model` refused."""
    if error.error_count() > READ:
        return [FieldFault("body", f"breaks more than {READ} rules")]
    tagged = {name for name, info in model.model_fields.items() if info.discriminator}
    errors = error.errors(include_url=False, include_input=False)
    return [_fault(_without_tag(entry["loc"], tagged), entry) for entry in errors[:FAULTS]]


def faults_in(errors: Iterable[Any], *, drop: int = 0) -> list[FieldFault]:
    """The faults in pydantic errors that came as dictionaries (a framework's), without `drop` leading path parts."""
    return [_fault(entry["loc"][drop:], entry) for entry, _ in zip(errors, range(FAULTS), strict=False)]


def _without_tag(loc: tuple[int | str, ...], tagged: set[str]) -> tuple[int | str, ...]:
    """Pydantic puts the chosen kind behind a field that is a tagged union; a caller sent no such level."""
    return (loc[0], *loc[2:]) if len(loc) > 1 and loc[0] in tagged else loc


def _fault(loc: Sequence[int | str], entry: Mapping[str, Any]) -> FieldFault:
    context: _Context = entry.get("ctx", {})
    kind = str(entry["type"])
    if kind.startswith("union_tag"):
        loc = (*loc, str(context.get("discriminator", "kind")).strip("'"))
    if kind == "rule" and "at" in context:
        loc = (*loc, str(context["at"]))
    phrase = _PHRASES.get(kind)
    return FieldFault(_path(loc), phrase(context) if phrase else FALLBACK)


def _path(loc: Sequence[int | str]) -> str:
    parts = [str(part) if isinstance(part, int) else _visible(part) for part in loc]
    path = ".".join(parts) or "body"
    return path if len(path) <= PATH else path[: PATH - 3] + "..."


def _visible(name: str) -> str:
    escaped = name[: SEGMENT + 1].encode("ascii", "backslashreplace").decode()
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in escaped)
    return shown if len(shown) <= SEGMENT else shown[: SEGMENT - 3] + "..."
