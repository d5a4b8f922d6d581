"""A service over the effect provider to try things on: its database, its restarts, and what really happened.

Ground truth is the side-effect file: a run's id is appended to it when its "code" has its effect.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.support.service import Running, environment, started

Json = dict[str, Any]
Event = tuple[str, Json]
Headers = Mapping[str, str]
NONE: Headers = {}
ASYNC = {"prefer": "respond-async"}
EVENTS = {"accept": "text/event-stream"}
TERMINAL = {"finished", "not_dispatched", "may_have_run"}


def keyed(key: str) -> dict[str, str]:
    return {"idempotency-key": key}


@dataclass(slots=True)
class Served:
    """One running service and a client that threads may share; no request is ever sent twice by it."""

    running: Running
    http: httpx2.Client

    def post(
        self, code: str, headers: Headers = NONE, *, token: str = "", timeout_ms: int = 0
    ) -> httpx2.Response:
        """`POST /v1/runs`, once."""
        return self.http.post(
            "/v1/runs", json=run_body(code, timeout_ms), headers={**headers, **bearer(token)}
        )

    def get(self, run_id: str, *, wait: int = 0, token: str = "") -> Json:
        return json_of(self.http.get(f"/v1/runs/{run_id}?wait={wait}", headers=bearer(token)))

    def cancel(self, run_id: str, *, token: str = "") -> httpx2.Response:
        return self.http.post(f"/v1/runs/{run_id}/cancel", headers=bearer(token))

    def events(self, code: str, headers: Headers = NONE, *, token: str = "") -> list[Event]:
        """A whole stream."""
        answer = self.post(code, {**headers, **EVENTS}, token=token)
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
        return events_in(answer.content)

    def rows(self) -> dict[str, Json]:
        """Every run there is, by its id."""
        found: dict[str, Json] = {}
        cursor = None
        while True:
            query: dict[str, Any] = {"limit": 100} | ({"cursor": cursor} if cursor else {})
            page = json_of(self.http.get("/v1/runs", params=query))
            found |= {run["id"]: run for run in page["runs"]}
            if not (cursor := page["next_cursor"]):
                return found


def run_body(code: str, timeout_ms: int = 0) -> Json:
    body: Json = {"payload": {"kind": "javascript", "code": code}}
    return body | ({"timeout_ms": timeout_ms} if timeout_ms else {})


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def json_of(answer: httpx2.Response) -> Json:
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


def events_in(data: bytes) -> list[Event]:
    """The complete events of a stream, read as a client would: fields by lines, comments dropped, a cut end ignored."""
    found = []
    for block in data.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            assert set(fields) == {"event", "data"}, fields
            found.append((fields["event"], json.loads(fields["data"])))
    return found


@dataclass(slots=True)
class Stand:
    """Where one test's services live. `database_url` empty: SQLite in the folder."""

    folder: Path
    database_url: str = ""
    settings: dict[str, str] = field(default_factory=lambda: {"PLIMSOLL_INSECURE": "1"})

    @property
    def file(self) -> Path:
        """The database of a SQLite stand."""
        (found,) = (self.folder / "data").glob("*.db")
        return found

    def environ(self, **more: str) -> dict[str, str]:
        """The settings of its services, and the shortened times of `kill_service`."""
        database = {"PLIMSOLL_DATABASE_URL": self.database_url} if self.database_url else {}
        wide = {"SANDBOX_RATE_PER_MIN": "0", "PLIMSOLL_TRUSTED_PROXIES": "127.0.0.1"}
        return environment(self.folder / "data", **database, **wide, **self.settings) | more

    @contextmanager
    def service(
        self, point: str = "", nth: int = 1, *, name: str = "", more: Mapping[str, str] | None = None
    ) -> Iterator[Served]:
        """A service, killed at the nth pass of `point` if one is given; `name` tells replicas' logs apart."""
        command = [sys.executable, "-m", "tests.support.kill_service", str(self.folder / "effects")]
        command += [point, str(nth)] if point else []
        log = self.folder / f"log{name}"
        with started(self.environ(**(more or {})), log, *command) as running, http(running.url) as client:
            yield Served(running, client)

    def effects(self) -> Counter[str]:
        """How often each run had its effect."""
        file = self.folder / "effects"
        return Counter(file.read_text().split() if file.exists() else [])

    def labels(self) -> Counter[str]:
        """How often code with each label had its effect, whatever the runs were called."""
        file = self.folder / "effects.labels"
        return Counter(file.read_text().split() if file.exists() else [])

    def await_label(self, label: str, seconds: float = 10) -> None:
        """Until code with this label is under way."""
        end = time.monotonic() + seconds
        while not self.labels()[label]:
            assert time.monotonic() < end, f"{label} did not happen"
            time.sleep(0.01)

    def switch(self, name: str, *, on: bool) -> None:
        """A file beside the effects that code can ask for."""
        file = self.folder / f"effects.{name}"
        if on:
            file.touch()
        else:
            file.unlink()

    def check(self, rows: Mapping[str, Json], *, settled: bool = True) -> None:
        """What is said of every run agrees with what happened."""
        happened = self.effects()
        assert all(count == 1 for count in happened.values()), "a run happened twice"
        assert not set(happened) - set(rows), "a run happened that nobody knows"
        for run_id, row in rows.items():
            if settled:
                assert row["state"] in TERMINAL, row
                assert row["settled"], row
            if row["state"] == "not_dispatched":
                assert run_id not in happened, "a run marked as not dispatched happened"
            if row["state"] == "finished":
                assert row["record"]["record_sha256"]


def http(url: str, seconds: float = 40) -> httpx2.Client:
    """A client without proxies, redirects, retries or TLS, and with room for many threads."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    return httpx2.Client(base_url=url, trust_env=False, verify=False, timeout=seconds, limits=limits)
