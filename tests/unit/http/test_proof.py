"""Under a key nobody looked up, only what follows from the request's own bytes is marked."""

import pytest

from app.http.ids import Scope
from app.http.proof import as_proven, has_key, key_is_open, key_looked_up, may_have_key
from plimsoll.contract.refusals import Code, Reason, Refusal

PROVEN = {Reason.REQUEST, Reason.PROTOCOL, Reason.UNSUPPORTED, Reason.ISOLATION}
"""A floor is judged after the lookup only."""


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("code", Code)
def test_every_refusal_keeps_its_mark_without_a_key_and_with_one_only_if_it_is_the_requests_own(
    code: Code, reason: Reason
) -> None:
    refusal = Refusal(code, "It is so.", reason, retry_after_s=3)
    assert as_proven(refusal, keyed=False) is refusal
    changing = {Code.REQUEST_TIMEOUT, Code.HOST_NOT_ALLOWED, Code.BODY_TOO_LARGE}
    kept = reason if reason in PROVEN and code not in changing else None
    assert as_proven(refusal, keyed=True) == Refusal(code, "It is so.", kept, retry_after_s=3)


def test_a_key_is_open_until_it_was_looked_up() -> None:
    scope: Scope = {"headers": [(b"host", b"a"), (b"idempotency-key", b"k")], "state": {}}
    assert key_is_open(scope)
    key_looked_up(scope)
    assert not key_is_open(scope)
    assert not key_is_open({"headers": [(b"host", b"a")]})
    assert not has_key([])


@pytest.mark.parametrize(
    ("head", "end", "expected"),
    [
        (b"GET / HTTP/1.1\r\nIDEMPOTENCY-Key: k\r\n\r\n", 41, True),
        (b"GET / HTTP/1.1\r\n\r\nidempotency-key: k\r\n\r\n", 18, False),
        (b"GET / HTTP/1.1\r\nHo", None, True),
        (b"", None, True),
    ],
)
def test_a_header_that_has_not_come_whole_may_still_bring_a_key(
    head: bytes,
    end: int | None,
    expected: bool,  # noqa: FBT001  # a column of the table
) -> None:
    assert may_have_key(head, end) is expected
