"""The Connect form of every refusal: the table is complete, the mark is provable, and the path alone decides the form."""

import base64
import json
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.types import Message, Scope

from app.http import connect, problems
from app.http.answers import exception_handlers
from app.http.head import path_of
from app.http.middleware import Access, rim
from app.identity import Caller
from plimsoll.contract.refusals import Code, Reason, Refusal

REQUEST_ID = "0123456789abcdef" * 2
RUN = f"{connect.SERVICE_PATH}/Run"
UNMARKED = {Code.INTERNAL, Code.MAY_HAVE_RUN}


def answer(refusal: Refusal, path: str = RUN) -> tuple[int, dict[str, str], dict[str, Any]]:
    status, headers, body = connect.answer_bytes(refusal, REQUEST_ID, path)
    found = {name.decode(): value.decode() for name, value in headers}
    assert len(found) == len(headers), "a header twice"
    assert found["content-length"] == str(len(body))
    return status, found, json.loads(body)


def test_every_code_has_a_row() -> None:
    assert set(connect.TABLE) == set(Code)
    assert {row.code for row in connect.TABLE.values()} <= connect.STATUS_OF.keys()


@pytest.mark.parametrize("code", Code)
def test_the_status_is_that_of_the_connect_code_unless_http_demands_its_own(code: Code) -> None:
    status, _, body = answer(Refusal(code, "It is so."))
    assert body == {"code": connect.TABLE[code].code, "message": "It is so."}
    http = {Code.METHOD_NOT_ALLOWED: 405, Code.UNSUPPORTED_MEDIA_TYPE: 415}
    assert status == http.get(code, connect.STATUS_OF[body["code"]])


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("code", Code)
def test_a_mark_is_a_detail_and_a_header_and_some_codes_never_carry_one(code: Code, reason: Reason) -> None:
    _, headers, body = answer(Refusal(code, "It is so.", reason))
    if code in UNMARKED:
        assert "details" not in body
        assert "plimsoll-not-dispatched" not in headers
        return
    (detail,) = body["details"]
    assert detail["type"] == "plimsoll.v1.NotDispatched"
    assert base64.b64decode(detail["value"], validate=True) == bytes((8, reason.number))
    assert headers["plimsoll-not-dispatched"] == reason.value


def test_reasons_have_their_published_numbers() -> None:
    numbers = {reason.value: connect.not_dispatched_message(reason)[1] for reason in Reason}
    assert numbers == {
        "request": 1,
        "permission": 2,
        "protocol": 3,
        "unsupported": 4,
        "isolation": 5,
        "capacity": 6,
        "environment": 7,
    }


@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize(
    "path", ["", "/v1/runs", "/", connect.SERVICE_PATH, "/x" + RUN, RUN.lower(), "/plimsoll.v1.Other/Run"]
)
def test_every_other_path_keeps_its_problem(code: Code, path: str) -> None:
    refusal = Refusal(code, "It is so.", Reason.REQUEST)
    assert connect.answer_bytes(refusal, REQUEST_ID, path) == problems.problem_bytes(refusal, REQUEST_ID)


@pytest.mark.parametrize("code", Code)
def test_both_forms_have_the_same_headers_but_for_type_and_length(code: Code) -> None:
    refusal = Refusal(code, "It is so.", Reason.CAPACITY, run_id="a" * 32)
    _, ours, _ = answer(refusal)
    _, theirs, _ = answer(refusal, "/v1/runs")
    for name in ("content-type", "content-length"):
        del ours[name], theirs[name]
    assert ours == theirs


@pytest.mark.parametrize(
    ("head", "path"),
    [
        (b"POST /v1/runs HTTP/1.1\r\n", "/v1/runs"),
        (b"POST /v1/runs?a=/b HTTP/1.1\r\n", "/v1/runs"),
        (b"POST /a%2Fb", "/a%2Fb"),
        (b"POST  /a HTTP/1.1", ""),
        (b"post /a HTTP/1.1", ""),
        (b"\x16\x03\x01", ""),
        (b"", ""),
    ],
)
def test_the_path_is_read_from_a_header_that_nobody_parsed(head: bytes, path: str) -> None:
    assert path_of(head) == path


async def test_an_unhandled_exception_is_an_unmarked_connect_error_that_tells_nothing() -> None:
    api = FastAPI(exception_handlers=exception_handlers())

    @api.post(RUN)
    async def run(request: Request) -> None:
        raise RuntimeError("canary")

    async def anybody(digest: str) -> Caller:
        return Caller("c" * 32, "tester")

    access = Access(anybody, frozenset({"localhost"}), "", digest=lambda token: token)
    status, headers, body = await ask(rim(api, access))
    assert (status, body["code"]) == (500, "internal")
    assert "plimsoll-not-dispatched" not in headers
    assert "canary" not in str((headers, body))


async def ask(app: Any) -> tuple[int, dict[str, str], dict[str, Any]]:
    sent: list[Message] = []
    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer x")]
    scope: Scope = {"type": "http", "method": "POST", "path": RUN, "query_string": b"", "headers": headers}

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, json.loads(sent[1]["body"])
