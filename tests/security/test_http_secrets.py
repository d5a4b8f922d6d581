"""What a caller sends comes back in no answer and no log line (S4, S14)."""

import json
import re
from collections.abc import Iterator

import pytest

from app.identity import mint_token
from tests.integration.http.wire import SHORT, TOKEN, Answer, Service, head, running, until, with_body

CANARY = "canary-7f3a"
HOSTILE = f"{CANARY}\x1b[31m\u202e".encode()
TYPE = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
UNKNOWN = mint_token(lambda size: (CANARY * 3).encode()[:size])


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One for all: what one request leaves in the log, the next would find."""
    with running(SHORT) as started:
        yield started


def code(text: str) -> bytes:
    return f'{{"payload": {{"kind": "javascript", "code": "{CANARY}"}}, {text}}}'.encode()


REQUESTS: dict[str, tuple[int, bytes]] = {
    "not JSON": (400, with_body(f'{{"a": {CANARY}'.encode())),
    "duplicate key": (400, with_body(f'{{"{CANARY}": 1, "{CANARY}": 2}}'.encode())),
    "lone surrogate": (400, with_body(f'["{CANARY}\\ud800"]'.encode())),
    "not UTF-8": (400, with_body(f'["{CANARY}\xff"]'.encode("latin-1"))),
    "unknown kind": (422, with_body(f'{{"payload": {{"kind": "{CANARY}"}}}}'.encode())),
    "wrong floor": (422, with_body(code(f'"minimum_isolation": "{CANARY}"'))),
    "wrong timeout": (422, with_body(code(f'"timeout_ms": "{CANARY}"'))),
    "wrong trace id": (422, with_body(code(f'"trace_id": ["{CANARY}"]'))),
    "trial": (501, with_body(f'{{"payload": {{"kind": "trial", "code": "{CANARY}"}}}}'.encode())),
    "request id": (400, with_body(b"{}", f"Plimsoll-Request-Id: {CANARY}")),
    "token": (401, head("GET", "/v1/runs", token=CANARY)),
    "unknown token": (401, head("GET", "/v1/runs", token=UNKNOWN)),
    "scheme": (401, head("GET", "/v1/runs", f"Authorization: Basic {CANARY}", token=None)),
    "host": (400, f"GET /v1/runs HTTP/1.1\r\nHost: {CANARY}\r\n\r\n".encode()),
    "origin": (403, head("GET", "/v1/runs", f"Origin: http://{CANARY}")),
    "fetch site": (403, head("GET", "/v1/runs", f"Sec-Fetch-Site: {CANARY}")),
    "type": (415, head("POST", "/v1/runs", f"Content-Type: text/{CANARY}", "Content-Length: 1") + b"1"),
    "encoding": (415, head("POST", "/v1/runs", TYPE, f"Content-Encoding: {CANARY}")),
    "path": (404, head("GET", f"/{CANARY}")),
    "query": (422, head("GET", f"/v1/big?size={CANARY}")),
    "method": (405, head("DELETE", f"/v1/runs?{CANARY}")),
    "other method": (400, head(CANARY, "/v1/runs")),
    "request line": (400, f"GET {CANARY} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()),
    "coding": (400, head("POST", "/v1/runs", TYPE, f"Transfer-Encoding: {CANARY}")),
    "length": (400, head("POST", "/v1/runs", TYPE, f"Content-Length: {CANARY}")),
    "chunk": (400, head("POST", "/v1/runs", TYPE, CHUNKED) + f"{CANARY}\r\n".encode()),
    "chunked body": (413, head("POST", "/v1/runs", TYPE, CHUNKED) + b"1\r\nc\r\n" * 65),
    "long body": (413, head("POST", "/v1/runs", TYPE, "Content-Length: 99999999") + CANARY.encode()),
    "long header": (431, head("GET", "/v1/runs", f"X: {CANARY * 2000}")),
    "slow header": (408, f"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nX: {CANARY}".encode()),
    "slow body": (408, head("POST", "/v1/runs", TYPE, "Content-Length: 999") + CANARY.encode()),
    "exception": (500, with_body(CANARY.encode(), path="/v1/broken")),
}


def check(answer: Answer, service: Service) -> None:
    assert CANARY not in answer.body.decode()
    assert CANARY not in repr(answer.headers)
    assert TOKEN not in service.log.getvalue()
    assert CANARY not in service.log.getvalue()


@pytest.mark.parametrize(("status", "request_"), REQUESTS.values(), ids=REQUESTS)
def test_no_answer_and_no_log_line_repeats_what_was_sent(
    service: Service, status: int, request_: bytes
) -> None:
    wire = service.connect().send(request_)
    answer = wire.answer()
    wire.close()
    assert (answer.status, answer.problem["status"]) == (status, status)
    check(answer, service)
    unfinished = b"\r\n\r\n" not in request_  # it may have been about to bring a key
    assert ("not_dispatched" in answer.problem) == (status != 500 and not (unfinished and status == 408))


HEADERS = [
    "Accept", "Authorization", "Connection", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key",
    "Origin", "Plimsoll-Request-Id", "Plimsoll-Session", "Prefer", "Sec-Fetch-Site", "Transfer-Encoding", "Upgrade",
    "User-Agent", "X-Forwarded-For", "X-Other",
]  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize(
    "value", [HOSTILE, b"a\n" + HOSTILE, b"a\r\n " + HOSTILE, b"a\r" + HOSTILE], ids=range(4)
)
def test_no_header_can_forge_a_log_line(service: Service, name: str, value: bytes) -> None:
    line = name.encode() + b": " + value + b"\r\n"
    wire = service.connect().send(b"GET /v1/nowhere HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n")
    answer = wire.answer()
    wire.close()
    assert answer.status in {400, 401, 403}
    check(answer, service)
    for written in service.log.getvalue().splitlines():
        json.loads(written)
        assert re.fullmatch("[ -~]*", written)


def test_the_secrets_of_a_request_that_is_served_are_not_logged(service: Service) -> None:
    request = with_body(code('"timeout_ms": 5'), f"User-Agent: {CANARY}")
    assert service.ask(request).status == 200
    assert CANARY not in service.log.getvalue()
    assert TOKEN not in service.log.getvalue()


def test_an_exception_is_logged_by_type_and_place() -> None:
    with running(SHORT) as service:
        service.ask(REQUESTS["exception"][1])
        until(lambda: '"unhandled"' in service.log.getvalue())
        lines = [json.loads(line) for line in service.log.getvalue().splitlines()]
    (unhandled,) = [line for line in lines if line["event"] == "unhandled"]
    assert unhandled["error"] == "RuntimeError"
    assert re.fullmatch(r"wire\.py:\d+", unhandled["place"])
