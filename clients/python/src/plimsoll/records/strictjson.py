"""JSON with one possible reading: what two parsers could read in two ways is refused.

Refused: invalid UTF-8, duplicate keys at any depth, NaN and Infinity (also by overflow), lone surrogates, nesting deeper
than `bounds.NESTING`. Messages name rule and position, never a value.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from plimsoll.contract import bounds


class JsonFault(ValueError):
    """The bytes are not JSON with one possible reading."""


def loads(data: bytes, *, nesting: int = bounds.NESTING) -> Any:
    """The value of a JSON text in UTF-8. Raises JsonFault."""
    try:
        text = data.decode()
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)
    except JsonFault:
        raise
    except UnicodeDecodeError:
        raise JsonFault("must be UTF-8") from None
    except json.JSONDecodeError as error:
        raise JsonFault(f"must be JSON: line {error.lineno} column {error.colno}") from None
    except (RecursionError, ValueError):
        raise JsonFault("must be JSON without extreme nesting or numbers") from None
    for depth, leaf in _walk(value):
        _check(depth, leaf, nesting)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise JsonFault("must hold no duplicate key")
    return result


def _constant(_: str) -> float:
    raise JsonFault("must hold no NaN and no Infinity")


def _integer(digits: str) -> int | float:
    # As an integer it would lose its sign, which a digest over the number's bits keeps.
    return -0.0 if digits == "-0" else int(digits)


def _walk(value: object) -> Iterator[tuple[int, object]]:
    """Every key and value with the number of containers around it; a loop, so that depth costs no stack."""
    pending: list[tuple[int, object]] = [(0, value)]
    while pending:
        depth, item = pending.pop()
        yield depth, item
        if isinstance(item, dict):
            pending.extend((depth + 1, part) for pair in item.items() for part in pair)
        elif isinstance(item, list):
            pending.extend((depth + 1, part) for part in item)


def _check(depth: int, item: object, nesting: int) -> None:
    if isinstance(item, dict | list) and depth >= nesting:
        raise JsonFault(f"must not be nested deeper than {nesting}")
    if isinstance(item, float) and not math.isfinite(item):
        raise JsonFault("must hold no number beyond binary64")
    if isinstance(item, str) and not item.isascii() and any("\ud800" <= char <= "\udfff" for char in item):
        raise JsonFault("must hold no lone surrogate")
