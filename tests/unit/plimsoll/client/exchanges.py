"""Playing an exchange through the core: what was prepared, and an answer made for it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from plimsoll.client.answers import Head, Received
from plimsoll.client.core import Core, Prepared, check
from plimsoll.client.errors import PlimsollError
from plimsoll.client.options import options
from plimsoll.contract.requests import JavaScript
from tests.unit.plimsoll import honest

T = TypeVar("T")
E = TypeVar("E", bound=PlimsollError)

IDS = [f"{number:032x}" for number in range(1, 100)]
CODE = JavaScript("console.log(6 * 7)")


def core(**how: Any) -> Core:
    """A core for a loopback service whose request ids are IDS in order."""
    ids = iter(IDS)
    return Core(options("http://127.0.0.1:1", "secret-token", **how), new_id=lambda: next(ids))


def received(
    prepared: Prepared[Any],
    body: object,
    *,
    status: int = 200,
    headers: Iterable[tuple[str, str]] = (),
    content_type: str = "application/json",
    request_id: str | None = None,
    at: int = honest.NOW,
) -> Received:
    """An answer that carries the request's own id (or `request_id`; empty: none), sent and received at `at`."""
    own = prepared.request_id if request_id is None else request_id
    ids = [("plimsoll-request-id", own)] if own else []
    head = Head(status, (("content-type", content_type), *ids, *headers))
    return Received(head, body if isinstance(body, bytes) else honest.dumped(body), at, at + 5)


@contextmanager
def raises(prepared: Prepared[Any], kind: type[E]) -> Iterator[list[E]]:
    """The check raises exactly `kind`, never marked unless a test says otherwise, and names our request."""
    caught: list[E] = []
    with pytest.raises(kind) as info:
        yield caught
    assert type(info.value) is kind
    assert info.value.request_id == prepared.request_id
    caught.append(info.value)


def play(prepared: Prepared[T], body: object, **how: Any) -> T:
    return check(prepared, received(prepared, body, **how))
