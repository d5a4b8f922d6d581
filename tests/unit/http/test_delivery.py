"""How an answer is wanted: understood or refused, never ignored."""

import hashlib

import pytest

from app.http.delivery import Delivery, accepts_events, read_delivery
from plimsoll.contract.refusals import Code, Reason, Refusal


def read(**headers: str) -> Delivery | Refusal:
    return read_delivery(
        [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    )


def test_without_the_headers_the_answer_is_waited_for_and_not_kept() -> None:
    assert read() == Delivery(None, later=False, stream=False)
    assert read(accept="application/json", prefer="return=minimal") == Delivery()


def test_a_key_is_known_by_its_digest_alone() -> None:
    wanted = read(idempotency_key="order-66")
    assert isinstance(wanted, Delivery)
    assert wanted.key_sha256 == hashlib.sha256(b"order-66").hexdigest()
    assert wanted.kept


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "é", "a\x7f"])
def test_an_ill_formed_key_is_refused_and_marked(key: str) -> None:
    refusal = read(idempotency_key=key)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.reason) == (Code.INVALID_HEADER, Reason.REQUEST)
    assert not key.strip() or key not in refusal.detail


@pytest.mark.parametrize("prefer", ["respond-async", "wait=10, Respond-Async", "respond-async; x=1"])
def test_respond_async_is_found_among_preferences(prefer: str) -> None:
    wanted = read(prefer=prefer)
    assert isinstance(wanted, Delivery)
    assert wanted.later


@pytest.mark.parametrize(
    ("accept", "stream"),
    [
        ("text/event-stream", True),
        ("application/json, text/event-stream;q=0.5", True),
        ("TEXT/EVENT-STREAM; charset=utf-8", True),
        ("text/event-stream;q=0", False),
        ("text/event-stream;q=0.0", False),
        ("text/event-streams", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_a_stream_is_asked_for_by_name(accept: str, stream: bool) -> None:  # noqa: FBT001  # a table
    assert accepts_events(accept) is stream


def test_later_and_a_stream_exclude_each_other() -> None:
    refusal = read(prefer="respond-async", accept="text/event-stream")
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.REQUEST
