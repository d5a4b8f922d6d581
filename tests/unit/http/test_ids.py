"""Where request ids come from."""

import pytest

from app.http import ids
from app.identity import ANONYMOUS
from plimsoll.contract import bounds

ID = "0123456789abcdef" * 2


def test_ours_are_well_formed_and_differ() -> None:
    made = {ids.new_request_id() for _ in range(100)}
    assert len(made) == 100
    assert all(bounds.REQUEST_ID.fullmatch(request_id) for request_id in made)


@pytest.mark.parametrize(
    "lines",
    [
        f"Plimsoll-Request-Id: {ID}",
        f"plimsoll-request-id:{ID}",
        f"PLIMSOLL-REQUEST-ID:\t{ID} \t",
        f"X: 1\r\nPlimsoll-Request-Id: {ID}\r\nY: 2",
    ],
)
def test_one_well_formed_id_is_found_in_a_raw_header(lines: str) -> None:
    assert ids.read_raw_request_id(f"GET / HTTP/1.1\r\n{lines}\r\n\r\n".encode()) == ID


@pytest.mark.parametrize(
    "lines",
    [
        "",
        f"X-Plimsoll-Request-Id: {ID}",
        f"X: Plimsoll-Request-Id: {ID}",
        f"Plimsoll-Request-Id: {ID}0",
        f"Plimsoll-Request-Id: {ID.upper()}",
        f"Plimsoll-Request-Id: {ID}\r\nPlimsoll-Request-Id: {ID}",
        f"Plimsoll-Request-Id: {ID}\r\nPlimsoll-Request-Id: {'0' * 32}",
    ],
)
def test_nothing_else_is(lines: str) -> None:
    assert ids.read_raw_request_id(f"GET / HTTP/1.1\r\n{lines}\r\n\r\n".encode()) is None


def test_a_scope_keeps_id_and_caller() -> None:
    scope: dict[str, object] = {}
    ids.set_request_id(scope, ID)
    ids.set_caller(scope, ANONYMOUS)
    assert (ids.request_id_of(scope), ids.caller_of(scope)) == (ID, ANONYMOUS)
