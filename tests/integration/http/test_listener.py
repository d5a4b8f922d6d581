"""What the listener lets a stranger do: every limit, over real sockets, each with the answer that a caller reads."""

import contextlib
import json
import socket
import threading
import time
from dataclasses import replace

import httpx2
import pytest

from app.http.ids import new_request_id
from app.http.limits import DEFAULTS
from tests.integration.http.wire import RUN, SHORT, TOKEN, Service, Wire, head, running, until, with_body


def test_a_run_request_reaches_its_route(service: Service) -> None:
    wire = service.connect()
    request_id = new_request_id()
    for _ in range(3):
        answer = wire.send(with_body(RUN, f"Plimsoll-Request-Id: {request_id}")).answer()
        assert (answer.status, json.loads(answer.body)) == (200, {"caller": "tester"})
        assert answer.header("plimsoll-request-id") == request_id
        assert answer.header("cache-control") == "no-store"
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("server") is answer.header("date") is answer.header("connection") is None


def test_pipelined_requests_are_answered_in_order(service: Service) -> None:
    ids = [new_request_id() for _ in range(5)]
    wire = service.connect()
    wire.send(b"".join(with_body(RUN, f"Plimsoll-Request-Id: {request_id}") for request_id in ids))
    assert [wire.answer().header("plimsoll-request-id") for _ in ids] == ids


def test_a_chunked_body_is_read(service: Service) -> None:
    start = head("POST", "/v1/runs", "Content-Type: application/json", "Transfer-Encoding: chunked")
    answer = service.ask(start, b"%x\r\n%s\r\n" % (len(RUN), RUN), b"0\r\n\r\n")
    assert answer.status == 200


def test_a_caller_that_waits_for_100_is_told_to_go_on(service: Service) -> None:
    start = with_body(RUN, "Expect: 100-continue")[: -len(RUN)]
    wire = service.connect().send(start)
    assert wire.answer().status == 100
    assert wire.send(RUN).answer().status == 200


def test_a_caller_that_waits_for_100_gets_the_refusal_instead(service: Service) -> None:
    start = with_body(RUN, "Expect: 100-continue").replace(TOKEN.encode(), b"nonsense")[: -len(RUN)]
    answer = service.ask(start)
    assert answer.status == 401
    assert answer.header("connection") == "close"


# Headers


@pytest.mark.parametrize("first", [b"", b"POST /v1/ru", b"POST /v1/runs HTTP/1.1\r\nHost: local"])
def test_a_header_that_does_not_come_is_cut(service: Service, first: bytes) -> None:
    started = time.monotonic()
    answer = service.connect().send(first).answer()
    assert (answer.status, answer.problem["code"]) == (408, "request_timeout")
    assert "not_dispatched" not in answer.problem, "it may have been about to bring a key"
    assert 0.5 < time.monotonic() - started < PATIENCE_S


def test_dribbled_bytes_do_not_extend_the_time_of_a_header(service: Service) -> None:
    wire, started = service.connect(), time.monotonic()
    with contextlib.suppress(OSError):
        for byte in head("GET", "/healthz"):
            wire.send(bytes([byte]))
            time.sleep(0.05)
    assert time.monotonic() - started < PATIENCE_S or wire.answer().status == 408


def test_an_idle_connection_is_closed_without_a_word(service: Service) -> None:
    wire = service.connect()
    assert wire.send(head("GET", "/healthz")).answer().status == 200
    started = time.monotonic()
    assert wire.ended()
    assert 0.3 < time.monotonic() - started < PATIENCE_S


def test_64_fields_are_served_and_65_are_not(service: Service) -> None:
    def with_fields(count: int) -> bytes:
        return head("GET", "/healthz", *[f"X-{n}: 1" for n in range(count - 1)], token=None)

    assert service.ask(with_fields(64)).status == 200
    answer = service.ask(with_fields(65))
    assert (answer.status, answer.problem["code"]) == (431, "headers_too_large")


def test_a_long_header_is_refused_before_its_end(service: Service) -> None:
    wire = service.connect().send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 17 * 1024)
    answer = wire.answer()
    assert (answer.status, answer.problem["code"]) == (431, "headers_too_large")


def test_a_refused_header_is_answered_under_the_id_it_carries(service: Service) -> None:
    request_id = new_request_id()
    mine = f"Plimsoll-Request-Id: {request_id}"
    answer = service.ask(head("GET", "/healthz", mine, *[f"X-{n}: 1" for n in range(70)]))
    assert answer.problem["request_id"] == request_id


PATIENCE_S = 10.0
"""Within which what is cut is cut on a busy machine; what is not stays until the wire's own deadline."""
HEADS = {
    "two equal lengths": ("Content-Length: 5", "Content-Length: 5"),
    "two lengths": ("Content-Length: 5", "Content-Length: 6"),
    "length list": ("Content-Length: 5, 5",),
    "signed length": ("Content-Length: +5",),
    "hex length": ("Content-Length: 0x5",),
    "length and chunked": ("Content-Length: 5", "Transfer-Encoding: chunked"),
    "two codings": ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "other coding": ("Transfer-Encoding: gzip, chunked",),
    "identity coding": ("Transfer-Encoding: identity",),
    "folded": ("X-A: 1", " Content-Length: 5"),
    "space before colon": ("Content-Length : 5",),
    "no name": (": 5",),
    "no colon": ("Content-Length",),
    "NUL": ("X-A: a\x00b",),
    "bare LF": ("X-A: 1\nContent-Length: 5",),
    "bare CR": ("X-A: 1\rContent-Length: 5",),
}


@pytest.mark.parametrize("lines", HEADS.values(), ids=HEADS)
def test_ambiguous_framing_is_refused(service: Service, lines: tuple[str, ...]) -> None:
    answer = service.ask(head("POST", "/v1/runs", "Content-Type: application/json", *lines), b"1\r\n\r\n\r\n")
    assert (answer.status, answer.problem["code"]) == (400, "invalid_header")
    assert answer.problem["not_dispatched"]["reason"] == "request"
    assert answer.header("connection") == "close"


LINES = {
    "absolute": b"GET http://localhost/healthz HTTP/1.1",
    "old": b"GET /healthz",
    "version 2": b"GET /healthz HTTP/2.0",
    "two spaces": b"GET  /healthz HTTP/1.1",
    "connect": b"CONNECT localhost:443 HTTP/1.1",
    "garbage": b"\x16\x03\x01\x02\x00\x01",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_other_request_lines_are_refused(service: Service, line: bytes) -> None:
    answer = service.ask(line + b"\r\nHost: localhost\r\n\r\n")
    assert (answer.status, answer.problem["code"]) == (400, "invalid_header")


def test_an_upgrade_is_ignored(service: Service) -> None:
    upgrade = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: eA==",
    )
    assert service.ask(head("GET", "/healthz", *upgrade)).status == 200


def test_an_encoded_body_is_refused(service: Service) -> None:
    answer = service.ask(with_body(b"\x1f\x8b", "Content-Encoding: gzip"))
    assert (answer.status, answer.problem["code"]) == (415, "unsupported_media_type")


# Bodies


def test_a_body_over_the_limit_is_refused_by_its_length_before_a_byte_of_it(service: Service) -> None:
    answer = service.ask(with_body(b"", f"X: {'a' * 10}").replace(b"Length: 0", b"Length: 65537"))
    assert (answer.status, answer.problem["code"]) == (413, "body_too_large")
    assert answer.problem["not_dispatched"]["reason"] == "request"


def test_a_body_over_the_limit_is_refused_by_its_count(service: Service) -> None:
    wire = service.connect().send(
        head("POST", "/v1/runs", "Content-Type: application/json", "Transfer-Encoding: chunked")
    )
    for _ in range(9):
        wire.send(b"2000\r\n" + b" " * 0x2000 + b"\r\n")
    answer = wire.answer()
    assert (answer.status, answer.problem["code"]) == (413, "body_too_large")


def test_a_body_in_too_many_chunks_is_refused(service: Service) -> None:
    start = head("POST", "/v1/runs", "Content-Type: application/json", "Transfer-Encoding: chunked")
    answer = service.ask(start, b"1\r\n \r\n" * 65)
    assert (answer.status, answer.problem["code"]) == (413, "body_too_large")


def test_malformed_chunks_are_refused(service: Service) -> None:
    start = head("POST", "/v1/runs", "Content-Type: application/json", "Transfer-Encoding: chunked")
    answer = service.ask(start, b"zz\r\n")
    assert (answer.status, answer.problem["code"]) == (400, "invalid_header")


def test_a_body_that_stops_is_cut(service: Service) -> None:
    request_id = new_request_id()
    start = head("POST", "/v1/runs", "Content-Type: application/json", "Content-Length: 9000")
    mine = f"Plimsoll-Request-Id: {request_id}\r\n\r\n".encode()
    started = time.monotonic()
    answer = service.ask(start.removesuffix(b"\r\n") + mine, b"{")
    assert (answer.status, answer.problem["code"]) == (408, "request_timeout")
    assert answer.problem["request_id"] == request_id
    assert time.monotonic() - started < PATIENCE_S


def test_a_body_that_is_long_in_coming_is_cut_though_it_keeps_the_rate(service: Service) -> None:
    start = head("POST", "/v1/runs", "Content-Type: application/json", "Content-Length: 60000")
    wire, started = service.connect().send(start), time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - started < 4:
            wire.send(b" " * 200)
            time.sleep(0.05)
    assert wire.answer().status == 408


def test_after_a_cut_body_the_server_goes_on(service: Service) -> None:
    test_a_body_that_stops_is_cut(service)
    assert service.ask(with_body(RUN)).status == 200


# Early answers


BIG = replace(
    SHORT, body_bytes=DEFAULTS.body_bytes, drain_s=DEFAULTS.drain_s, drain_bytes=DEFAULTS.drain_bytes
)


def test_a_caller_still_sending_10_mib_reads_its_401_and_the_mark() -> None:
    size = 10 * 2**20
    start = with_body(b"").replace(b"Length: 0", b"Length: %d" % size).replace(TOKEN.encode(), b"no")
    with running(BIG) as service:
        wire = service.connect().send(start)
        sender = threading.Thread(target=_send_what_goes, args=(wire, size))
        sender.start()
        answer = wire.answer()
        sender.join()
    assert (answer.status, answer.problem["code"]) == (401, "unauthenticated")
    assert answer.problem["not_dispatched"]["reason"] == "permission"
    assert answer.header("www-authenticate") == "Bearer"
    assert answer.header("connection") == "close"


@pytest.mark.parametrize("chunked", [False, True])
def test_an_ordinary_client_sending_10_mib_reads_its_401(chunked: bool) -> None:  # noqa: FBT001
    with running(BIG) as service, httpx2.Client(timeout=10) as client:
        for _ in range(5):
            answer = client.post(
                f"http://localhost:{service.address[1]}/v1/runs",
                content=iter([b" " * 2**16] * 160) if chunked else b" " * 10 * 2**20,
                headers={"Authorization": "Bearer no", "Content-Type": "application/json"},
            )
            assert answer.status_code == 401
            assert answer.headers["plimsoll-not-dispatched"] == "permission"


def _send_what_goes(wire: Wire, size: int) -> None:
    with contextlib.suppress(OSError):
        wire.socket.sendall(b" " * size)


def test_a_caller_that_reads_after_sending_still_finds_the_answer(service: Service) -> None:
    """The answer is in the caller's buffer before the reset that its unread bytes cause."""
    start = (
        with_body(b"", path="/v1/runs").replace(b"Length: 0", b"Length: 60000").replace(TOKEN.encode(), b"no")
    )
    wire = service.connect().send(start)
    _send_what_goes(wire, 200 * 1024)
    time.sleep(0.1)
    assert wire.answer().status == 401


def test_an_early_answer_to_a_silent_caller_ends_within_the_drain_time(service: Service) -> None:
    start = with_body(b"").replace(b"Length: 0", b"Length: 60000").replace(TOKEN.encode(), b"no")
    wire, started = service.connect().send(start), time.monotonic()
    assert wire.answer().status == 401
    assert wire.ended()  # at once: our side of the connection is shut
    until(lambda: not service.server.server_state.connections)
    assert time.monotonic() - started < PATIENCE_S


def test_a_late_body_under_a_key_is_refused_without_a_mark(service: Service) -> None:
    answer = service.ask(with_body(RUN, "Idempotency-Key: k")[:-1])
    assert (answer.status, answer.problem["code"]) == (408, "request_timeout")
    assert "not_dispatched" not in answer.problem


# Connections and readers


def test_connections_of_one_address_are_capped_and_the_others_served(service: Service) -> None:
    holders = [service.connect() for _ in range(SHORT.per_address)]
    request_id = new_request_id()
    answer = service.ask(with_body(RUN, f"Plimsoll-Request-Id: {request_id}"))
    assert (answer.status, answer.problem["code"]) == (429, "capacity")
    assert answer.problem["not_dispatched"]["reason"] == "capacity"
    assert answer.problem["request_id"] == request_id
    assert answer.header("retry-after") == "1"
    again = service.ask(with_body(RUN, "Idempotency-Key: k"))
    assert (again.status, "not_dispatched" in again.problem) == (429, False)
    assert service.connect("127.0.0.2").send(with_body(RUN)).answer().status == 200
    holders[0].close()
    until(lambda: service.ask(with_body(RUN)).status == 200)


def test_a_trusted_proxy_has_no_cap_of_its_own() -> None:
    limits = replace(SHORT, head_s=5)
    with running(limits, trusted_proxies=["127.0.0.0/8"]) as service:
        for _ in range(SHORT.per_address + 1):
            service.connect()
        assert service.ask(with_body(RUN)).status == 200


def test_beyond_those_told_so_a_connection_is_closed_without_a_word() -> None:
    with running(replace(SHORT, head_s=5, drain_s=3)) as service:
        for _ in range(SHORT.per_address + SHORT.turned_away):
            service.connect()
        assert service.connect().ended()


SLOW_STRANGERS = replace(SHORT, strangers_per_s=10.0, per_address=4, keep_alive_s=5)
STRANGER = head("GET", "/v1/runs", token="garbage")


def test_strangers_wait_for_their_turn_and_a_caller_from_there_does_not() -> None:
    with running(SLOW_STRANGERS) as service:
        caller = service.connect()
        assert caller.send(with_body(RUN)).answer().status == 200
        stranger, started = service.connect(), time.monotonic()
        stranger.send(STRANGER * 12)
        times = []
        for _ in range(12):
            assert stranger.answer().status == 401
            times.append(time.monotonic() - started)
            at = time.monotonic()
            assert caller.send(with_body(RUN)).answer().status == 200
            assert time.monotonic() - at < 0.5
        assert times[3] < 0.4, "the first are answered at once"
        assert times[-1] > 0.7
        other = time.monotonic()
        assert service.connect("127.0.0.2").send(head("GET", "/healthz")).answer().status == 200
        assert time.monotonic() - other < 0.4


def test_a_new_connection_does_not_let_a_stranger_jump_the_queue() -> None:
    with running(SLOW_STRANGERS) as service:
        started = time.monotonic()
        for _ in range(12):
            wire = service.connect()
            assert wire.send(STRANGER).answer().status == 401
            wire.close()
        assert time.monotonic() - started > 0.7


def test_a_header_that_waits_for_its_turn_is_not_late_and_its_bytes_are_kept() -> None:
    with running(replace(SLOW_STRANGERS, strangers_per_s=1.0, head_s=0.3)) as service:
        wire = service.connect().send(STRANGER * 6)
        assert [wire.answer().status for _ in range(6)] == [401] * 6
        body = with_body(RUN)
        wire.send(body[:40])
        time.sleep(0.1)
        wire.send(body[40:])
        assert wire.answer().status == 200


def test_one_that_goes_while_it_waits_leaves_nothing() -> None:
    with running(replace(SLOW_STRANGERS, strangers_per_s=1.0)) as service:
        wires = [service.connect().send(STRANGER * 3) for _ in range(4)]
        until(lambda: len(service.server.server_state.connections) == 4)
        for wire in wires:
            wire.close()
        until(lambda: not service.server.server_state.connections, 15)


def test_a_crowded_listener_ends_connections_with_their_answer() -> None:
    with running(replace(SHORT, head_s=5)) as service:
        assert service.ask(head("GET", "/healthz")).header("connection") is None
        for number in range(9):
            service.connect(f"127.0.0.{2 + number // 5}")
        until(lambda: service.ask(head("GET", "/healthz")).header("connection") == "close")


def test_a_reader_that_takes_nothing_is_cut(service: Service) -> None:
    wire = service.connect()
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.send(head("GET", "/v1/big?size=20000000"))
    until(lambda: len(service.server.server_state.connections) == 1)
    started = time.monotonic()
    until(lambda: not service.server.server_state.connections)
    assert 0.3 < time.monotonic() - started < PATIENCE_S


def test_a_slow_reader_that_goes_on_reading_is_served(service: Service) -> None:
    wire = service.connect()
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    wire.send(head("GET", "/v1/big?size=16000000"))
    received = 0
    while received < 16_000_000:
        received += len(wire.socket.recv(400_000))
        time.sleep(0.02)
    assert received >= 16_000_000


def test_a_stop_ends_idle_connections_and_finishes_requests() -> None:
    with running(replace(SHORT, head_s=30, keep_alive_s=30, body_s=30, body_grace_s=30)) as service:
        idle = service.connect()
        assert idle.send(head("GET", "/healthz")).answer().status == 200
        half = service.connect().send(b"GET /hea")
        busy = service.connect().send(with_body(RUN)[:-1])
        until(lambda: len(service.server.server_state.connections) == 3)
        time.sleep(0.1)
        service.server.stop()
        assert idle.ended()
        assert half.ended()
        answer = busy.send(RUN[-1:]).answer()
        assert (answer.status, answer.header("connection")) == (200, "close")
