"""A path has one spelling: what a gateway forbids by its path is not reached by another one."""

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from app.http.connect import SERVICE_PATH
from tests.integration.http.wire import Answer, connect, with_body
from tests.support.service import environment, make_caller, started

REST = json.dumps({"payload": {"kind": "javascript", "code": "1"}}).encode()
CONNECT = json.dumps({"protocol": 4, "javascript": {"code": "1"}}).encode()
PATHS = {
    "/v1/runs": REST,
    f"{SERVICE_PATH}/Run": CONNECT,
}
SPELLINGS = [
    "{}%0a", "{}%0A%0a", "{}%00", "{}%20", "{}%", "{}%2f", "{}/%2e", "/%2e{}", "/a/%2e%2e{}", "/%0a{}", "%2f{}",
]  # fmt: skip
ENCODED = [
    "/%76%31/runs", "/v1%2fruns", "/v1%2Fruns",
    f"{SERVICE_PATH}%2fRun", f"{SERVICE_PATH}/%52un", "/plimsoll%2ev1.SandboxService/Run",
]  # fmt: skip
OTHERS = ["{}/", "/{}", "{}//", "/.{}", "/a/..{}", "{};x", "{}/.", "{}#x"]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[str, int], str]]:
    folder = tmp_path_factory.mktemp("paths")
    environ = environment(folder / "data", SANDBOX_PROVIDER="wasm", SANDBOX_RATE_PER_MIN="0")
    token = make_caller(environ, "caller")
    with started(environ, folder / "log") as running:
        at = urlsplit(running.url)
        yield (str(at.hostname), int(at.port or 0)), token


def ask(door: tuple[tuple[str, int], str], path: str, body: bytes) -> Answer:
    wire = connect(door[0])
    try:
        return wire.send(with_body(body, "Connect-Protocol-Version: 1", path=path, token=door[1])).answer()
    finally:
        wire.close()


@pytest.mark.component("wasm")
def test_no_other_spelling_of_a_path_runs_code(door: tuple[tuple[str, int], str]) -> None:
    for path, body in PATHS.items():
        assert ask(door, path, body).status == 200
        for spelling in SPELLINGS:
            answer = ask(door, spelling.format(path), body)
            assert (answer.status, answer.header("plimsoll-not-dispatched")) == (400, "request"), spelling
        for other in OTHERS:
            assert ask(door, other.format(path), body).status in {400, 404, 405, 501}, other
        for spelling in ENCODED:
            assert ask(door, spelling, body).status == 400, spelling
        assert ask(door, f"{path}?a=%0a", body).status == 200, "a query is free to have one"
