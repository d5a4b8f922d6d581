"""Random runs under random faults, again and again; what was said is compared with what happened.

For SOAK_SECONDS (each on SQLite and on Postgres; a few seconds in `make test`, ten minutes in `make soak`) services live short
lives: requests of every form, callers that hang up or cancel, and one fault a life. SOAK_SEED repeats a run's choices, which
processes and threads then answer in an order of their own. What must hold whatever happened:

1. no run had its effect twice, and no key
2. what was refused with a mark had no effect, and no run that says `not_dispatched`
3. a result that was delivered as recorded is stored, with the same record; under its key it comes back byte for byte
4. every run that was acknowledged is known, and every run gets a last word
5. a service that lives has all its slots again when nothing runs
6. the bytes that are counted for kept answers are those that they have (looked at on SQLite)
7. nothing failed in a way that nobody thought of
"""

import os
import random
import secrets
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from tests.integration.service.conftest import emptied, postgres_socket
from tests.integration.service.proxy import Proxy, proxied
from tests.integration.service.stand import ASYNC, EVENTS, Headers, Json, Served, Stand, events_in, keyed
from tests.integration.service.wire import Line
from tests.support.runs import children

__all__ = ["postgres_socket"]  # a fixture

SECONDS = float(os.environ.get("SOAK_SECONDS", "8"))
SEED = int(os.environ.get("SOAK_SEED", secrets.randbits(32)))
REQUESTS, THREADS = 40, 10
SHORT = {"TEST_LEASE_MS": "1000", "TEST_FINAL_MS": "500", "TEST_BUSY_MS": "300"}
CODES = [
    "effect:{0} out:{0}",
    "effect:{0} out:{0}",
    "sleep:30 effect:{0} out:{0} sleep:30 err:{0}",
    "begin sleep:60 effect:{0} exit:3",
    "refuse effect:{0}",
    "effect:{0} break",
    "begin effect:{0} raise",
    "out:{0} fill:30000 effect:{0}",
]
FAULTS = ["none", "kill service", "kill provider", "freeze provider", "freeze service", "database"]


@dataclass(slots=True)
class Ledger:
    """Everything callers were told."""

    asked: set[str] = field(default_factory=set)
    marked: set[str] = field(default_factory=set)
    not_run: set[str] = field(default_factory=set)
    results: dict[str, Json] = field(default_factory=dict)
    bodies: dict[str, set[bytes]] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)

    def note(self, label: str, key: str, answer: httpx2.Response) -> None:
        """One whole answer to a request whose effect has this label."""
        if answer.headers["content-type"].startswith("text/event-stream"):
            for name, data in events_in(answer.content):
                self._said(label, key, data if name in {"result", "error"} else {})
            return
        said: Json = answer.json()
        if "plimsoll-not-dispatched" in answer.headers:
            assert answer.status_code >= 400
        self._said(label, key, said)
        if key and answer.status_code == 200:
            self.bodies.setdefault(key, set()).add(
                answer.content.replace(b'"recorded":false', b'"recorded":true')
            )

    def _said(self, label: str, key: str, said: Json) -> None:
        if said.get("not_dispatched") and "status" in said:
            # With a key the mark is about this request: the key may have had a run before, or have one since.
            self.marked |= set() if key else {label}
            self.not_run |= {said["run_id"]} if "run_id" in said else set()
        elif "result" in said:
            self.results[said["id"]] = said
        elif run_id := said.get("id") or said.get("run_id"):
            self.acknowledged.add(run_id)


class Soak:
    """One database, its lives, and the ledger over all of them."""

    def __init__(self, stand: Stand, proxy: Proxy | None, seed: int) -> None:
        self.stand, self.proxy = stand, proxy
        self.chance = random.Random(seed)
        self.ledger = Ledger()
        self.lives = 0
        self.lock = threading.Lock()

    def live(self) -> None:
        """One service, many requests, one fault."""
        self.lives += 1
        fault = self.chance.choice(FAULTS)
        point = ("any", self.chance.randint(5, 200)) if fault == "kill service" else ("", 1)
        with self.stand.service(*point, more=SHORT) as served, ThreadPoolExecutor(THREADS) as pool:
            asked = [self._choose() for _ in range(REQUESTS)]
            over = [pool.submit(self._ask, served, *each) for each in asked]
            with suppress(ProcessLookupError, ValueError):
                self._strike(fault, served)
            for each in over:
                each.result(60)
            if fault != "kill service":
                await_free(served)

    def _choose(self) -> tuple[str, str, str, Headers, str]:
        """Label, key, code, headers, and how the caller behaves."""
        number = len(self.ledger.asked)
        key = f"key-{self.chance.randint(max(0, number // 4 - 10), number // 4)}"
        form = self.chance.choice(["plain", "keyed", "keyed", "async", "stream", "keyed stream"])
        headers: dict[str, str] = keyed(key) if "keyed" in form else {}
        headers |= ASYNC if form == "async" else EVENTS if "stream" in form else {}
        label = key if "keyed" in form else f"run-{number}"
        self.ledger.asked.add(f"{label} {number}")
        code = CODES[hash_of(label) % len(CODES)].format(label)
        how = self.chance.choice(["wait", "wait", "wait", "hang up", "cancel"])
        return label, key if "keyed" in form else "", code, headers, how

    def _ask(self, served: Served, label: str, key: str, code: str, headers: Headers, how: str) -> None:
        try:
            if how == "hang up":
                with Line(served.running.url, code, headers):
                    time.sleep(hash_of(code) % 50 / 1000)
                return
            answer = served.post(code, headers)
            with self.lock:
                self.ledger.note(label, key, answer)
            if how == "cancel" and answer.status_code == 202:
                said = served.cancel(answer.json()["id"])
                if said.status_code == 200 and said.json()["outcome"] == "not_dispatched":
                    with self.lock:
                        self.ledger.not_run.add(answer.json()["id"])
        except (httpx2.TransportError, OSError):
            pass  # nothing was said, so nothing is promised

    def _strike(self, fault: str, served: Served) -> None:
        time.sleep(self.chance.random() * 0.15)
        process = served.running.process.pid
        if fault == "kill provider":
            for pid in children(process):
                os.kill(pid, signal.SIGKILL)
        elif fault.startswith("freeze"):
            pids = children(process) if fault == "freeze provider" else [process]
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in pids:
                    os.kill(pid, number)
                time.sleep(self.chance.random() * 1.3)
        elif fault == "database":
            with self._away():
                time.sleep(self.chance.random() * 0.8)

    @contextmanager
    def _away(self) -> Iterator[None]:
        """The database, gone for a moment; on Postgres perhaps around a commit."""
        if self.proxy is None:
            with closing(sqlite3.connect(self.stand.file, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                yield
                other.execute("ROLLBACK")
            return
        if self.chance.random() < 0.5:
            self.proxy.cut()
        else:
            self.proxy.at_commit(self.chance.choice(["keep", "drop", "delay"]), nth=self.chance.randint(1, 8))
        yield
        self.proxy.disarm()
        self.proxy.mend()

    def check(self) -> str:
        """The last life: nothing goes wrong, and everything is told. Returns what there was."""
        with self.stand.service(more=SHORT) as served:
            rows = settled(served)
            self.stand.check(rows)
            labels, effects, ledger = self.stand.labels(), self.stand.effects(), self.ledger
            assert max(labels.values(), default=0) <= 1, "a key or a request had its effect twice"
            assert not ledger.marked & set(labels), "a marked request had an effect"
            assert not ledger.not_run & set(effects), "a marked run had an effect"
            assert ledger.acknowledged | set(ledger.results) <= set(rows), "an acknowledged run is unknown"
            for run_id, said in ledger.results.items():
                if said["recorded"]:
                    assert rows[run_id]["state"] == "finished", "a recorded result was lost"
                    assert rows[run_id]["record"] == said["record"]
            for key, bodies in ledger.bodies.items():
                assert len(bodies) == 1, "a key had two answers"
                again = served.post(CODES[hash_of(key) % len(CODES)].format(key), keyed(key))
                assert (
                    again.status_code == 502
                    or {again.content} == bodies
                    or b'"recorded":false' in again.content
                )
            await_free(served)
            self._books()
            assert not [line for line in served.running.lines() if line["event"] == "unhandled"]
        states = [row["state"] for row in rows.values()]
        told = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        return f"{self.lives} lives, {len(ledger.asked)} requests, {len(rows)} runs ({told}), {len(effects)} effects"

    def _books(self) -> None:
        if self.proxy is None:
            with closing(sqlite3.connect(self.stand.file)) as database:
                (held,) = database.execute("SELECT coalesce(sum(held_bytes), 0) FROM answers").fetchone()
                (counted,) = database.execute("SELECT sum(bytes) FROM kept_bytes WHERE scope = ''").fetchone()
            assert held == counted, "bytes of kept answers were lost or counted twice"


def hash_of(text: str) -> int:
    """A number that is the same in every process."""
    return sum(ord(letter) * (at + 7) for at, letter in enumerate(text))


def settled(served: Served) -> dict[str, Json]:
    end = time.monotonic() + 30
    rows = served.rows()
    while not all(row["settled"] for row in rows.values()):
        assert time.monotonic() < end, "a run got no last word"
        time.sleep(0.2)
        rows = served.rows()
    return rows


def await_free(served: Served) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        (provider,) = served.http.get("/v1/providers").json()["providers"]
        if provider["slots"] and provider["free"] == provider["slots"]:
            return
        time.sleep(0.1)
    pytest.fail("slots did not come back")


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 2 + 240)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_whatever_happens_what_is_said_is_what_was(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    with ExitStack() as held:
        proxy = None
        if database == "postgres":
            server: Path = request.getfixturevalue("postgres_socket")
            emptied(server)
            proxy = held.enter_context(proxied(server))
        soak = Soak(Stand(tmp_path, proxy.url() if proxy else ""), proxy, SEED)
        print(f"\nSOAK_SEED={SEED}")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            soak.live()
        print(f"{database}: {soak.check()}")
