"""A service with a broker of its own, callers, an API on this machine, and profiles applied with the real command."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typing_extensions import override

from tests.integration.service.conftest import emptied, postgres_socket
from tests.integration.service.stand import Served, Stand, bearer
from tests.support.service import ADMIN, make_caller

__all__ = ["postgres_socket"]

CANARY = "canary-3f9b1c77d2e84a60-of-a-credential"
SECRET_NAME = "HR_TOKEN"


Answer = Callable[[Mapping[str, str]], tuple[int, dict[str, str], bytes]]
"""From the headers that came: status, headers and body."""


class Answering(BaseHTTPRequestHandler):
    """Answers as the test says, or with the path, once nothing holds it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        assert isinstance(self.server, Api)
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        if event := self.server.holds.get(self.path):
            event.wait(30)
        status, headers, body = self.server.answers.get(self.path, self._plain)(dict(self.headers))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  # the library's names

    def _plain(self, _: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        return 200, {"content-type": "application/json"}, b'{"path": "%s"}' % self.path.encode()

    @override
    def log_message(self, *_: object) -> None:
        """Nothing."""


class Api(ThreadingHTTPServer):
    """An API on this machine that notes what came."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.holds: dict[str, threading.Event] = {}
        self.answers: dict[str, Answer] = {}

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away."""


@contextmanager
def api() -> Iterator[Api]:
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


PROFILE = """
[{name}]
origin = "{origin}"
allow = ["GET /v1/employees", "GET /v1/employees/*", "POST /v1/notes"]
allowed_callers = ["reporting"]
max_calls = {max_calls}
description = "Reads employees."
[{name}.credential]
type = "static"
env = "HR_TOKEN"
"""


@dataclass
class Granted:
    """A stand whose services start a broker."""

    stand: Stand
    tokens: dict[str, str] = field(default_factory=dict)

    def admin(self, *words: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        """The real command."""
        return subprocess.run(
            [str(ADMIN), *words],
            env=self.stand.environ() | environ,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def apply(self, text: str, secret: str = CANARY) -> None:
        done = self.admin("grants", "apply", "-", stdin=text, **{SECRET_NAME: secret})
        assert done.returncode == 0, done.stderr

    def profile(self, server: Api, name: str = "hr-read", max_calls: int = 50) -> None:
        self.apply(PROFILE.format(name=name, origin=server.origin, max_calls=max_calls))

    def caller(self, name: str) -> str:
        if name not in self.tokens:
            self.tokens[name] = make_caller(self.stand.environ(), name)
        return self.tokens[name]

    def run(
        self,
        served: Served,
        code: str,
        *,
        caller: str = "reporting",
        profile: str = "hr-read",
        kind: str = "javascript",
        headers: Mapping[str, str] | None = None,
        timeout_ms: int = 20_000,
    ) -> httpx2.Response:
        payload = {"kind": kind, "code": code, "grant_profile": profile}
        return served.http.post(
            "/v1/runs",
            json={"payload": payload, "timeout_ms": timeout_ms},
            headers={**bearer(self.caller(caller)), **(headers or {})},
        )


BROKER = {"PLIMSOLL_BROKER_SAME_USER": "1", "PLIMSOLL_BROKER_ALLOW_PRIVATE": "127.0.0.0/8"}


@pytest.fixture(params=("sqlite", "postgres"))
def granted(request: pytest.FixtureRequest, tmp_path: Path) -> Granted:
    return Granted(_stand(request, tmp_path))


def _stand(request: pytest.FixtureRequest, folder: Path) -> Stand:
    url = "" if request.param == "sqlite" else emptied(request.getfixturevalue("postgres_socket"))
    return Stand(folder, url, dict(BROKER))


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Granted:
    return Granted(Stand(tmp_path, "", dict(BROKER)))


@pytest.fixture
def hr() -> Iterator[Api]:
    with api() as server:
        yield server


def processes_of(pid: int) -> dict[int, list[str]]:
    """The processes below `pid`, with their command lines."""
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except (OSError, ValueError):
            continue
        if parent == pid:
            found[int(entry.name)] = words
            found |= processes_of(int(entry.name))
    return found


def broker_pid(pid: int) -> int:
    """The broker of the service with this id."""
    (found,) = [each for each, words in processes_of(pid).items() if "broker.main" in words]
    return found
