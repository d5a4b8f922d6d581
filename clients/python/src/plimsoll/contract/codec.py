"""Worker messages as JSON bytes and back, checked on both sides. Bytes fields travel as base64 inside the JSON."""

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def dumps(value: object) -> bytes:
    """One message of the contract (a dataclass of `worker`) as JSON bytes."""
    return _adapter(type(value)).dump_json(value)


def loads(shape: type[T], data: bytes) -> T:
    """A message of type `shape` from JSON bytes. Raises ValueError when it does not fit."""
    result: T = _adapter(shape).validate_json(data)
    return result
