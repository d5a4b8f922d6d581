"""What a runner takes from its host: runs whole and in order, and a cancel only for the run that is going on."""

import socket
import threading
from collections.abc import Iterator

import pytest

from providers.wasm.protocol import HEADER, MOST_REPLY, MOST_TO_RUNNER, Kind, ProtocolError, frame
from providers.wasm.runner import Orders

RUN = frame(Kind.RUN, 7, b"code")


def cancel(number: int) -> bytes:
    return frame(Kind.CANCEL, number, b"")


@pytest.fixture(name="host")
def _host() -> Iterator[tuple[socket.socket, Orders]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, Orders(theirs)


Host = tuple[socket.socket, Orders]


def test_a_run_and_its_cancel_are_told_apart_though_they_came_together(host: Host) -> None:
    sock, orders = host
    sock.sendall(RUN + cancel(7))
    assert orders.next() == (Kind.RUN, 7, b"code")
    assert orders.cancels(7)
    assert not orders.cancels(7)


@pytest.mark.parametrize("cut", range(1, HEADER.size))
def test_a_cancel_in_pieces_is_one_cancel(host: Host, cut: int) -> None:
    sock, orders = host
    sock.sendall(cancel(7)[:cut])
    assert not orders.cancels(7)
    assert not orders.cancels(7)
    sock.sendall(cancel(7)[cut:])
    assert orders.cancels(7)


@pytest.mark.parametrize("cut", [0, 5, HEADER.size, HEADER.size + 2, 2 * HEADER.size + 2])
def test_a_cancel_that_comes_too_late_is_passed_over(host: Host, cut: int) -> None:
    sock, orders = host
    stream = cancel(6) + RUN + cancel(7)
    sock.sendall(stream[:cut])
    later = threading.Timer(0.05, sock.sendall, (stream[cut:],))
    later.start()
    assert orders.next() == (Kind.RUN, 7, b"code")
    later.join()
    assert orders.cancels(7)


def test_a_large_run_is_whole_and_takes_nothing_of_what_follows(host: Host) -> None:
    sock, orders = host
    source = b"x" * MOST_TO_RUNNER
    sender = threading.Thread(target=sock.sendall, args=(frame(Kind.WATCH, 8, source) + cancel(8) + RUN,))
    sender.start()
    assert orders.next() == (Kind.WATCH, 8, source)
    sender.join()
    assert orders.cancels(8)
    assert orders.next() == (Kind.RUN, 7, b"code")


@pytest.mark.parametrize("wrong", [cancel(6), frame(Kind.CANCEL, 7, b"x"), RUN])
def test_anything_but_the_cancel_of_the_run_is_an_error_while_it_goes_on(host: Host, wrong: bytes) -> None:
    sock, orders = host
    sock.sendall(wrong)
    with pytest.raises(ProtocolError):
        orders.cancels(7)


@pytest.mark.parametrize(
    "wrong",
    [frame(Kind.CANCEL, 7, b"x"), frame(Kind.OUT, 7, b""), HEADER.pack(MOST_TO_RUNNER + 1, Kind.RUN, 7)],
)
def test_anything_but_a_run_is_an_error_between_runs(host: Host, wrong: bytes) -> None:
    sock, orders = host
    sock.sendall(wrong)
    with pytest.raises(ProtocolError):
        orders.next()


def test_the_end_of_the_socket_is_the_end_of_the_orders_and_no_cancel(host: Host) -> None:
    sock, orders = host
    sock.shutdown(socket.SHUT_WR)
    assert not orders.cancels(7)
    assert orders.next() is None


# --- calls ----------------------------------------------------------------------------------------------------------------


def reply(number: int, answer: bytes = b"answer") -> bytes:
    return frame(Kind.REPLY, number, answer)


def test_a_call_is_answered_and_what_follows_is_kept(host: Host) -> None:
    sock, orders = host
    sock.sendall(reply(7) + cancel(7))
    assert orders.call(7, b"message") == b"answer"
    assert sock.recv(100) == frame(Kind.CALL, 7, b"message")
    assert orders.cancels(7)


def test_a_large_answer_is_whole(host: Host) -> None:
    sock, orders = host
    sender = threading.Thread(target=sock.sendall, args=(reply(7, b"x" * (5 << 20)),))
    sender.start()
    assert orders.call(7, b"message") == b"x" * (5 << 20)
    sender.join()


def test_a_cancel_ends_the_call(host: Host) -> None:
    sock, orders = host
    sock.sendall(cancel(7))
    assert orders.call(7, b"message") is None


def test_after_a_cancel_nothing_is_asked(host: Host) -> None:
    sock, orders = host
    sock.sendall(cancel(7))
    assert orders.cancels(7)
    assert orders.call(7, b"message") is None
    sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        sock.recv(1)


def test_while_a_call_is_under_way_its_answer_is_not_taken_for_a_cancel(host: Host) -> None:
    sock, orders = host
    answers: list[bytes | None] = []
    calling = threading.Thread(target=lambda: answers.append(orders.call(7, b"message")))
    calling.start()
    sock.recv(100)
    assert not any(orders.cancels(7) for _ in range(100))
    sock.sendall(reply(7))
    calling.join()
    assert answers == [b"answer"]


@pytest.mark.parametrize(
    "wrong",
    [cancel(6), reply(6), RUN, HEADER.pack(MOST_REPLY + 1, Kind.REPLY, 7), frame(Kind.CANCEL, 7, b"x")],
)
def test_anything_but_its_answer_or_a_cancel_is_an_error_while_a_call_is_under_way(
    host: Host, wrong: bytes
) -> None:
    sock, orders = host
    sock.sendall(wrong)
    with pytest.raises(ProtocolError):
        orders.call(7, b"message")


def test_the_end_of_the_socket_ends_a_call(host: Host) -> None:
    sock, orders = host
    sock.shutdown(socket.SHUT_WR)
    assert orders.call(7, b"message") is None
