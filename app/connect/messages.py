"""Request messages in proto3 JSON, with every name in one spelling and every absent field left out.

A message may spell a field in lowerCamelCase or snake_case, never both; `null` and a missing field mean the same, except for
a floor, where `null` is kept so that it is refused. Fields that a message does not have are refused here, before anything
that knows other names could take them for its own. Values are not judged here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic.alias_generators import to_camel

from app.http.faults import FAULTS, faults_in
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Refusal, invalid

Path = tuple[int | str, ...]
Fault = dict[str, Any]
"""A broken rule as pydantic would say it, which `faults_in` turns into words without any value."""

LONGEST = bounds.MODULE_ROWS
"""No list of messages may be longer; a longer one is not looked into."""
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class Shape:
    """A message: its scalar fields, those of 64 bits, its messages and lists of messages, all in snake_case."""

    scalars: frozenset[str] = frozenset()
    int64: frozenset[str] = frozenset()
    messages: Mapping[str, "Shape"] = field(default_factory=dict)
    lists: Mapping[str, "Shape"] = field(default_factory=dict)
    keeps_null: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(init=False)
    """Every spelling, and the field it means."""

    def __post_init__(self) -> None:
        own = {*self.scalars, *self.int64, *self.messages, *self.lists}
        names = {name: name for name in own} | {to_camel(name): name for name in own}
        object.__setattr__(self, "names", names)


def _scalars(*names: str) -> frozenset[str]:
    return frozenset(names)


FILE = Shape(_scalars("path", "content"))
KINDS: Mapping[str, Shape] = {
    "javascript": Shape(_scalars("code", "grant_profile")),
    "project": Shape(_scalars("steps", "artifacts", "grant_profile"), lists={"files": FILE}),
    "module": Shape(_scalars("model", "end_time", "step"), lists={"rows": Shape(_scalars("values"))}),
    "cell": Shape(_scalars("language", "code"), lists={"files": FILE}),
}
"""The payloads, one of which a run has."""
RUN = Shape(
    scalars=_scalars("protocol", "minimum_isolation", "trace_id"),
    int64=_scalars("timeout_ms"),
    messages={"software_rule": Shape(_scalars("mode", "identities")), **KINDS},
    keeps_null=_scalars("minimum_isolation"),
)
DESCRIBE = Shape(_scalars("protocol"))


def read_message(value: Any, shape: Shape) -> dict[str, Any] | Refusal:
    """`value` as a message of `shape` in snake_case, or every name that is wrong with it."""
    faults: list[Fault] = []
    message = _message(value, shape, (), faults)
    return invalid(*faults_in(faults)) if faults else message


def _message(value: Any, shape: Shape, at: Path, faults: list[Fault]) -> Any:
    if not isinstance(value, dict):
        _note(faults, at, "model_type")
        return value
    read: dict[str, Any] = {}
    for key, item in value.items():
        name = shape.names.get(key)
        if name is None:
            _note(faults, (*at, key), "extra_forbidden")
        elif key != name and name in value:
            _note(faults, (*at, name), "rule", rule="must not be spelled in two ways")
        elif item is not None or name in shape.keeps_null:
            read[name] = _field(item, name, shape, (*at, name), faults)
    return read


def _field(item: Any, name: str, shape: Shape, at: Path, faults: list[Fault]) -> Any:
    if name in shape.messages:
        return _message(item, shape.messages[name], at, faults)
    if name in shape.lists:
        return list(_list(item, shape.lists[name], at, faults))
    if name in shape.int64 and isinstance(item, str) and _DECIMAL.fullmatch(item):
        return int(item)
    return item


def _list(items: Any, shape: Shape, at: Path, faults: list[Fault]) -> Iterator[Any]:
    if not isinstance(items, list):
        _note(faults, at, "list_type")
    elif len(items) > LONGEST:
        _note(faults, at, "too_long", max_length=LONGEST)
    else:
        yield from _items(items, shape, at, faults)


def _items(items: list[Any], shape: Shape, at: Path, faults: list[Fault]) -> Iterator[Any]:
    for number, item in enumerate(items):
        if len(faults) >= FAULTS:
            return  # no more are reported, and a body may hold a great many
        yield _message(item, shape, (*at, number), faults)


def _note(faults: list[Fault], at: Path, kind: str, **context: str | int) -> None:
    faults.append({"loc": at, "type": kind, "ctx": context})
