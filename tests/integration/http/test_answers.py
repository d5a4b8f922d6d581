"""Every answer of every layer is a problem with the request's id, over a real socket, TCP or Unix."""

import asyncio
import os
import socket
import statistics
import threading
import time
from pathlib import Path

import pytest

from app.http import door
from app.http.ids import new_request_id
from app.http.limits import DEFAULTS
from app.http.listener import bind_unix, make_server
from tests.integration.http.wire import (
    RUN,
    SHORT,
    Answer,
    Service,
    Wire,
    head,
    make_app,
    until,
    with_body,
)

REQUESTS: dict[str, tuple[int, str, str | None, bytes]] = {
    "unknown path": (404, "not_found", "request", head("GET", "/nowhere")),
    "other method": (405, "method_not_allowed", "request", head("PUT", "/v1/runs")),
    "no redirect": (404, "not_found", "request", head("GET", "/v1/runs/")),
    "bad host": (400, "host_not_allowed", "request", head("GET", "/v1/runs").replace(b"localhost", b"evil")),
    "no host": (400, "invalid_header", "request", b"GET /healthz HTTP/1.1\r\n\r\n"),
    "no host, old": (400, "host_not_allowed", "request", b"GET /v1/runs HTTP/1.0\r\n\r\n"),
    "two hosts": (400, "invalid_header", "request", head("GET", "/v1/runs", "Host: localhost")),
    "foreign origin": (403, "cross_origin", "permission", head("GET", "/v1/runs", "Origin: http://evil")),
    "no token": (401, "unauthenticated", "permission", head("GET", "/v1/runs", token=None)),
    "no type": (
        415,
        "unsupported_media_type",
        "request",
        head("POST", "/v1/runs", "Content-Length: 1") + b"1",
    ),
    "exception": (500, "internal", None, with_body(b"1", path="/v1/broken")),
    "large body": (413, "body_too_large", "request", head("POST", "/v1/runs", "Content-Length: 99999")),
    "bad body": (400, "malformed_json", "request", with_body(b"{")),
}


@pytest.mark.parametrize(("status", "code", "mark", "request_"), REQUESTS.values(), ids=REQUESTS)
def test_a_refusal_is_a_problem_under_the_callers_id(
    service: Service, status: int, code: str, mark: str | None, request_: bytes
) -> None:
    request_id = new_request_id()
    first, _, others = request_.partition(b"\r\n")
    answer = service.ask(first + f"\r\nPlimsoll-Request-Id: {request_id}\r\n".encode() + others)
    assert (answer.status, answer.problem["code"]) == (status, code)
    assert answer.problem.get("not_dispatched", {}).get("reason") == mark
    assert answer.problem["request_id"] == request_id
    assert answer.header("cache-control") == "no-store"
    assert answer.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize(("status", "code", "mark", "request_"), REQUESTS.values(), ids=REQUESTS)
def test_under_a_key_only_what_its_own_bytes_prove_is_marked(
    service: Service, status: int, code: str, mark: str | None, request_: bytes
) -> None:
    """Its run may be there: the token, the Host that is served and the rest may have changed since."""
    first, _, others = request_.partition(b"\r\n")
    answer = service.ask(first + b"\r\nIdempotency-Key: k\r\n" + others)
    assert (answer.status, answer.problem["code"]) == (status, code)
    changing = mark == "permission" or code in {"host_not_allowed", "body_too_large"}
    assert answer.problem.get("not_dispatched", {}).get("reason") == (None if changing else mark)


@pytest.mark.parametrize("lines", [("Plimsoll-Request-Id: x",), (f"Plimsoll-Request-Id: {'a' * 32}",) * 2])
def test_an_ill_formed_request_id_is_replaced(service: Service, lines: tuple[str, ...]) -> None:
    answer = service.ask(head("GET", "/healthz", *lines))
    assert (answer.status, answer.problem["code"]) == (400, "invalid_header")
    assert answer.problem["request_id"] not in {"x", "a" * 32}


def test_a_head_request_gets_no_body(service: Service) -> None:
    wire = service.connect().send(head("HEAD", "/nowhere") + head("GET", "/healthz"))
    answer = wire.answer_without_body()
    assert answer.status == 404
    assert wire.answer().status == 200


def test_an_answer_waits_for_no_acknowledgement(service: Service) -> None:
    """Nagle's algorithm would hold the second packet of an answer for 40 ms."""
    wire, times = service.connect(), []
    for _ in range(21):
        started = time.perf_counter()
        assert wire.send(with_body(RUN)).answer().status == 200
        times.append(time.perf_counter() - started)
    assert statistics.median(times) < 0.03


def ask_unix(path: Path) -> Answer:
    """A served request over a Unix listener that exists for this one request."""
    ready = threading.Event()
    with bind_unix(path) as bound:
        server = make_server(make_app(SHORT), limits=DEFAULTS, on_ready=ready.set, grace_s=2)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])))
        thread.start()
        assert ready.wait(10)
        try:
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(path))
            wire = Wire(client)
            answer = wire.send(head("GET", "/healthz")).answer()
            wire.close()
            until(lambda: not server.server_state.connections)
            return answer
        finally:
            server.stop()
            thread.join(10)


def test_a_unix_listener_serves_our_own_uid(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert ask_unix(tmp_path / "s").status == 200


def test_a_unix_listener_refuses_another_uid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(door, "_peer_uid", lambda _: os.geteuid() + 1)
    answer = ask_unix(tmp_path / "s")
    assert (answer.status, answer.problem["not_dispatched"]["reason"]) == (403, "permission")
