"""Worker messages as JSON bytes and back, checked on both sides. Bytes fields travel as base64 inside the JSON."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(
    TypeAdapter
)  # any type is hashable, whatever its annotation says


def dumps(value: object) -> bytes:
    """One message of the contract (a dataclass of `worker`) as JSON bytes."""
    return _adapter(type(value)).dump_json(value)


def loads(shape: type[T], data: bytes) -> T:
    """A message of type `shape` from JSON bytes. Raises ValueError when it does not fit."""
    result: T = _adapter(shape).validate_json(data)
    return result
