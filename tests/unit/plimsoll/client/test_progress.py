"""The proof that no byte left: only an event seen proves anything."""

import pytest

from plimsoll.client.progress import Progress
from plimsoll.contract.refusals import Reason


def test_before_the_transport_has_it_nothing_left() -> None:
    assert Progress().mark(Reason.REQUEST) is Reason.REQUEST


def test_silence_of_the_transport_proves_nothing() -> None:
    progress = Progress()
    progress.handed_over()
    assert progress.mark(Reason.ENVIRONMENT) is None


@pytest.mark.parametrize(
    ("events", "mark"),
    [
        (["connection.connect_tcp.started"], Reason.ENVIRONMENT),
        (["connection.connect_tcp.failed"], Reason.ENVIRONMENT),
        (["connection.connect_tcp.complete", "connection.start_tls.failed"], Reason.ENVIRONMENT),
        (["connection.connect_tcp.complete", "http11.send_request_headers.started"], None),
        (["http11.send_request_headers.started"], None),
        (["something.new"], None),
    ],
)
def test_only_the_making_of_a_connection_is_before_sending(events: list[str], mark: Reason | None) -> None:
    progress = Progress()
    progress.handed_over()
    for event in events:
        progress.event(event)
    assert progress.mark(Reason.ENVIRONMENT) is mark
