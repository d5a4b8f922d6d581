"""The stack as an ASGI application, with a fake server that counts what is asked of it."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from starlette.types import Message, Receive, Scope, Send

from app.http.answers import exception_handlers, problem_response, read_body
from app.http.ids import caller_of, request_id_of
from app.http.middleware import Access, rim
from app.identity import ANONYMOUS, Caller, mint_token, token_sha256
from plimsoll.contract.refusals import Code, FieldFault, Reason, Refusal, Refused, invalid

TOKEN = mint_token(lambda size: b"t" * size)
CALLER = Caller(id="c" * 32, name="tester")
OURS = "f" * 32
THEIRS = "0123456789abcdef" * 2
CANARY = "canary-7f3a"


@dataclass
class Answered:
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    asked: int = 0
    """How often the body was asked for."""

    def header(self, name: str) -> str | None:
        found = [value.decode() for key, value in self.headers if key == name.encode()]
        assert len(found) <= 1, f"{name} twice"
        return found[0] if found else None

    @property
    def problem(self) -> dict[str, Any]:
        assert self.header("content-type") == "application/problem+json"
        document: dict[str, Any] = json.loads(self.body)
        assert document["request_id"] == self.header("plimsoll-request-id")
        assert document.get("not_dispatched", {}).get("reason") == self.header("plimsoll-not-dispatched")
        return document


def routes() -> FastAPI:
    app = FastAPI(exception_handlers=exception_handlers(), redirect_slashes=False)

    @app.api_route("/v1/runs", methods=["GET", "POST"])
    async def runs(request: Request) -> Response:
        body = await read_body(request.receive, 100)
        if isinstance(body, Refusal):
            return problem_response(request.scope, body)
        return Response(f"{caller_of(request.scope).name} {request_id_of(request.scope)}")

    @app.get("/healthz")
    async def healthz() -> str:
        return "ok"

    @app.get("/v1/numbers/{number}")
    async def numbers(number: int, wait: int = 0) -> int:
        return number + wait

    @app.get("/v1/refused")
    async def refused() -> None:
        raise Refused(invalid(FieldFault("a", "is so")))

    @app.get("/v1/broken")
    async def broken() -> None:
        raise RuntimeError(CANARY)

    return app


class Rim:
    """The whole stack, and what reached the authenticator."""

    def __init__(self, app: Any = None, *, insecure: bool = False, requests: int = 1000) -> None:
        self.lookups: list[str] = []
        self.left = {CALLER.id: requests, ANONYMOUS.id: requests}
        access = Access(
            self.authenticate, frozenset({"localhost"}), "Make a caller first.", insecure, spend=self.spend
        )
        self.app = rim(app or routes(), access, new_id=lambda: OURS)

    def spend(self, caller_id: str) -> int:
        self.left[caller_id] -= 1
        return 0 if self.left[caller_id] >= 0 else 7

    async def authenticate(self, digest: str) -> Caller | None:
        self.lookups.append(digest)
        if digest == token_sha256(mint_token(lambda size: b"d" * size)):
            raise Refused(Refusal(Code.UNAVAILABLE, "The database is down.", Reason.ENVIRONMENT))
        return CALLER if digest == token_sha256(TOKEN) else None

    async def ask(
        self, path: str = "/v1/runs", *, method: str = "GET", body: bytes = b"", **sent: str
    ) -> Answered:
        given = {"host": "localhost", "authorization": f"Bearer {TOKEN}"} | sent
        headers = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in given.items() if value
        ]
        return await self.raw(path, headers, method, body)

    async def raw(
        self, path: str, headers: list[tuple[bytes, bytes]], method: str = "GET", body: bytes = b""
    ) -> Answered:
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
        }
        answered = Answered()

        async def receive() -> Message:
            answered.asked += 1
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered.status, answered.headers = message["status"], message["headers"]
            else:
                answered.body += message.get("body", b"")

        await self.app(scope, receive, send)
        assert answered.header("cache-control") == "no-store"
        assert answered.header("x-content-type-options") == "nosniff"
        assert answered.header("plimsoll-request-id") is not None
        return answered


async def test_the_callers_request_id_is_used_and_ours_when_it_sent_none() -> None:
    rim_ = Rim()
    assert (await rim_.ask(plimsoll_request_id=THEIRS)).body == f"tester {THEIRS}".encode()
    assert (await rim_.ask()).body == f"tester {OURS}".encode()


@pytest.mark.parametrize("sent", ["x", THEIRS.upper(), THEIRS + "0", THEIRS[1:], THEIRS + ", " + THEIRS, " "])
async def test_an_ill_formed_request_id_is_refused_under_a_fresh_one(sent: str) -> None:
    answer = await Rim().ask(plimsoll_request_id=sent)
    assert (answer.status, answer.problem["code"]) == (400, "invalid_header")
    assert answer.problem["not_dispatched"]["reason"] == "request"
    assert answer.problem["request_id"] == OURS


async def test_a_request_id_sent_twice_is_refused() -> None:
    pair = (b"plimsoll-request-id", THEIRS.encode())
    answer = await Rim().raw("/healthz", [(b"host", b"localhost"), pair, pair])
    assert (answer.status, answer.problem["request_id"]) == (400, OURS)


@pytest.mark.parametrize(
    "token", ["", "x", "plim_" + "a" * 43 + "_aaaaaa", TOKEN[:-1] + "!", f"{TOKEN} {TOKEN}"]
)
async def test_garbage_costs_no_lookup_and_no_byte_of_the_body(token: str) -> None:
    rim_ = Rim()
    answer = await rim_.ask(method="POST", content_length="5", authorization=f"Bearer {token}")
    assert (answer.status, answer.problem["code"]) == (401, "unauthenticated")
    assert answer.problem["detail"].endswith("Make a caller first.")
    assert answer.header("www-authenticate") == "Bearer"
    assert answer.problem["not_dispatched"]["reason"] == "permission"
    assert (rim_.lookups, answer.asked) == ([], 0)


async def test_an_unknown_token_is_looked_up_and_refused_before_the_body() -> None:
    rim_ = Rim()
    unknown = mint_token(lambda size: b"u" * size)
    answer = await rim_.ask(method="POST", content_length="5", authorization=f"Bearer {unknown}")
    assert (answer.status, len(rim_.lookups), answer.asked) == (401, 1, 0)


async def test_a_lookup_that_cannot_be_made_is_a_refusal_of_its_own() -> None:
    down = mint_token(lambda size: b"d" * size)
    answer = await Rim().ask(authorization=f"Bearer {down}")
    assert (answer.status, answer.problem["not_dispatched"]["reason"]) == (503, "environment")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"authorization": f"Bearer {mint_token(lambda size: b'd' * size)}"}, 503),
        ({"authorization": f"Bearer {mint_token(lambda size: b'u' * size)}"}, 401),
        ({"authorization": ""}, 401),
        ({"host": "evil.example"}, 400),
        ({"origin": "http://evil.example"}, 403),
    ],
)
async def test_under_a_key_nothing_that_may_have_changed_is_marked(sent: dict[str, Any], status: int) -> None:
    marked = await Rim().ask(**sent)
    answer = await Rim().ask(**sent, idempotency_key="k")
    assert (marked.status, answer.status) == (status, status)
    assert "not_dispatched" in marked.problem
    assert "not_dispatched" not in answer.problem


async def test_a_raised_refusal_of_a_route_under_a_key_is_unmarked_too() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise Refused(Refusal(Code.UNAVAILABLE, "Not started.", Reason.ENVIRONMENT))

    assert "not_dispatched" in (await Rim(app).ask()).problem
    assert "not_dispatched" not in (await Rim(app).ask(idempotency_key="k")).problem


async def test_every_request_of_a_caller_costs_it_and_no_other_one() -> None:
    rim_ = Rim(insecure=True, requests=3)
    assert (await rim_.ask()).status == 200
    assert (await rim_.ask("/nowhere")).status == 404
    assert (await rim_.ask(method="POST", content_length="3", content_type="text/plain")).status == 415
    for path in ("/v1/runs", "/nowhere"):
        answer = await rim_.ask(path, method="POST", content_length="5")
        assert (answer.status, answer.problem["code"], answer.asked) == (429, "rate_limited", 0)
        assert (answer.header("retry-after"), answer.problem["not_dispatched"]) == (
            "7",
            {"reason": "capacity"},
        )
    assert "not_dispatched" not in (await rim_.ask(idempotency_key="k")).problem
    assert (await rim_.ask(authorization="")).status == 200
    assert (await rim_.ask("/healthz")).status == 200
    assert (await rim_.ask(authorization="Bearer x")).status == 401


async def test_probes_need_neither_token_nor_host() -> None:
    assert (await Rim().raw("/healthz", [(b"host", b"10.0.0.7:8746")])).status == 200
    assert (await Rim().raw("/readyz", [(b"host", b"10.0.0.7:8746")])).status == 404


@pytest.mark.parametrize("path", ["/healthz/", "/healthz/../v1/runs", "//healthz", "/Healthz", "/v1/runs"])
async def test_nothing_else_is_public(path: str) -> None:
    assert (await Rim().ask(path, authorization="")).status == 401


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({"host": "evil.example"}, 400, "host_not_allowed"),
        ({"origin": "http://evil.example"}, 403, "cross_origin"),
        ({"sec_fetch_site": "cross-site"}, 403, "cross_origin"),
        ({"content_length": "3", "content_type": "text/plain"}, 415, "unsupported_media_type"),
    ],
)
async def test_each_rule_is_asked(sent: dict[str, str], status: int, code: str) -> None:
    answer = await Rim().ask("/v1/runs", method="POST", body=b"", **sent)
    assert (answer.status, answer.problem["code"], answer.asked) == (status, code, 0)
    assert answer.problem["not_dispatched"]["reason"] == ("permission" if status == 403 else "request")


async def test_a_host_sent_twice_is_refused() -> None:
    answer = await Rim().raw("/v1/runs", [(b"host", b"localhost"), (b"host", b"localhost")])
    assert (answer.status, answer.problem["code"]) == (400, "invalid_header")


async def test_insecure_mode_serves_anonymous_but_nothing_that_was_forwarded() -> None:
    rim_ = Rim(insecure=True)
    assert (await rim_.ask(authorization="")).body == f"{ANONYMOUS.name} {OURS}".encode()
    assert (await rim_.ask()).body == f"tester {OURS}".encode()
    assert (await rim_.ask(authorization="Bearer x")).status == 401
    answer = await rim_.ask(authorization="", x_forwarded_for="10.0.0.1")
    assert (answer.status, answer.problem["not_dispatched"]["reason"]) == (403, "permission")
    assert (await Rim().ask(x_forwarded_for="10.0.0.1")).status == 200


async def test_the_frameworks_own_errors_are_problems() -> None:
    missing = await Rim().ask("/nowhere")
    assert (missing.status, missing.problem["code"]) == (404, "not_found")
    assert missing.problem["not_dispatched"]["reason"] == "request"
    wrong = await Rim().ask("/v1/runs", method="DELETE")
    assert (wrong.status, wrong.problem["code"]) == (405, "method_not_allowed")
    assert wrong.header("allow") in {"GET, POST", "POST, GET", "GET", "POST"}
    assert wrong.problem["not_dispatched"]["reason"] == "request"
    invalid_ = await Rim().ask(f"/v1/numbers/{CANARY}?wait={CANARY}")
    assert invalid_.status == 422
    assert [tuple(fault.values()) for fault in invalid_.problem["errors"]] == [
        ("number", "must be an integer"),
        ("wait", "must be an integer"),
    ]
    assert CANARY.encode() not in invalid_.body


async def test_a_raised_refusal_is_answered() -> None:
    answer = await Rim().ask("/v1/refused")
    assert (answer.status, answer.problem["errors"]) == (422, [{"field": "a", "rule": "is so"}])


async def test_an_exception_is_500_without_a_mark_and_without_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = await Rim().ask("/v1/broken")
    assert (answer.status, answer.problem["code"]) == (500, "internal")
    assert "not_dispatched" not in answer.problem
    assert CANARY not in answer.body.decode() + caplog.text
    fields = [record.__dict__.get("plimsoll_fields", {}) for record in caplog.records]
    assert any(
        found.get("error") == "RuntimeError" and "test_middleware.py:" in found["place"] for found in fields
    )


async def test_an_application_that_raises_outside_the_framework_is_answered_too() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError(CANARY)

    answer = await Rim(app).ask()
    assert (answer.status, answer.problem["code"]) == (500, "internal")


async def test_an_answer_that_began_is_not_followed_by_another() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError(CANARY)

    answer = await Rim(app).ask()
    assert (answer.status, answer.body) == (200, b"half")


async def test_a_route_cannot_answer_under_another_request_id() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"plimsoll-request-id", b"0"), (b"cache-control", b"public"), (b"x-a", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    answer = await Rim(app).ask()
    assert answer.header("plimsoll-request-id") == OURS
    assert answer.header("x-a") == "1"


async def test_a_cancelled_request_stays_cancelled() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Rim(app).ask()


async def test_lifespan_passes_through() -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    await Rim(app).app({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen == ["lifespan"]


async def test_a_failed_start_is_logged_by_type_and_place(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError(CANARY)

    with pytest.raises(ValueError, match=CANARY):
        await Rim(app).app({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    (record,) = caplog.records
    assert (record.msg, record.__dict__["plimsoll_fields"]["error"]) == ("lifespan_failed", "ValueError")


def messages(*found: dict[str, Any]) -> Receive:
    waiting = list(found)

    async def receive() -> Message:
        return waiting.pop(0)

    return receive


async def test_a_body_is_read_to_its_end_or_refused() -> None:
    part = {"type": "http.request", "body": b"abc", "more_body": True}
    end = {"type": "http.request", "body": b"d"}
    assert await read_body(messages(part, end), 4) == b"abcd"
    too_long = await read_body(messages(part, end), 3)
    assert isinstance(too_long, Refusal)
    assert (too_long.code, too_long.reason) == (Code.BODY_TOO_LARGE, Reason.REQUEST)
    ended = await read_body(messages(part, {"type": "http.disconnect"}), 4)
    assert isinstance(ended, Refusal)


async def test_the_stack_costs_less_than_150_us_a_request() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    rim_ = Rim(app)
    own = [(f"x-header-{number}".encode(), b"value") for number in range(6)]
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode()), *own]

    async def send(message: Message) -> None:
        pass

    def scope() -> Scope:
        return {"type": "http", "method": "GET", "path": "/v1/runs", "headers": headers}

    best = 1.0
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(100):
            await rim_.app(scope(), messages(), send)
        best = min(best, (time.perf_counter() - started) / 100)
    print(f"the stack costs {best * 1e6:.0f} us a request")
    assert best < 150e-6
