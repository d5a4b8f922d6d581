"""The service is killed at every named point of a run; what it says after a restart is compared with what happened.

Ground truth is the side-effect file of the effect provider: a run's id is appended to it when its "code" runs.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.dispatch.killpoints import KillPoint
from tests.support.service import Running, environment, started

BEFORE_START = {
    KillPoint.BEFORE_RESERVE,
    KillPoint.AFTER_RESERVE,
    KillPoint.BEFORE_STARTING_COMMIT,
    KillPoint.AFTER_STARTING_COMMIT,
    KillPoint.BEFORE_SEND,
}
NO_ROW = {KillPoint.BEFORE_RESERVE, KillPoint.AFTER_RESERVE, KillPoint.BEFORE_STARTING_COMMIT}
ENDED = {KillPoint.AFTER_END_COMMIT, KillPoint.BEFORE_ANSWER}


@contextmanager
def service(folder: Path, point: str = "", nth: int = 1) -> Iterator[Running]:
    command = [sys.executable, "-m", "tests.support.kill_service", str(folder / "effects")]
    if point:
        command += [point, str(nth)]
    environ = environment(folder / "data", PLIMSOLL_INSECURE="1")
    with started(environ, folder / "log", *command) as running:
        yield running


def effects(folder: Path) -> Counter[str]:
    file = folder / "effects"
    return Counter(file.read_text().split() if file.exists() else [])


def stored(running: Running) -> dict[str, dict[str, Any]]:
    with running.client() as client:
        runs: list[dict[str, Any]] = client.get("/v1/runs", params={"limit": 100}).json()["runs"]
    return {run["id"]: run for run in runs}


def assert_truthful(rows: dict[str, dict[str, Any]], happened: Counter[str]) -> None:
    assert all(count == 1 for count in happened.values()), "a run happened twice"
    assert not set(happened) - set(rows), "a run happened that nobody knows"
    for run_id, row in rows.items():
        assert row["state"] in {"finished", "not_dispatched", "may_have_run"}, row
        assert row["settled"]
        if row["state"] == "not_dispatched":
            assert run_id not in happened, "a run marked as not dispatched happened"
        if row["state"] == "finished":
            assert run_id in happened
            assert row["record"]["record_sha256"]


@pytest.mark.parametrize("point", list(KillPoint))
def test_after_a_kill_every_run_is_told_as_it_was(tmp_path: Path, point: KillPoint) -> None:
    with service(tmp_path, point) as running:
        with pytest.raises(httpx2.TransportError):
            running.run("effect out:done")
        assert running.process.wait(10) == -9
    with service(tmp_path) as running:
        rows = stored(running)
        happened = effects(tmp_path)
        assert_truthful(rows, happened)
        assert len(rows) == (0 if point in NO_ROW else 1)
        if point in BEFORE_START:
            assert not happened
        states = {row["state"] for row in rows.values()}
        if point in ENDED:
            assert states == {"finished"}
        elif rows:
            assert states == {"may_have_run"}
        assert running.run("effect").status_code == 200


@pytest.mark.parametrize(
    "point", [KillPoint.AFTER_STARTING_COMMIT, KillPoint.AFTER_ACCEPTED, KillPoint.AFTER_END_COMMIT]
)
def test_a_kill_among_many_runs_leaves_every_one_of_them_truthful(tmp_path: Path, point: KillPoint) -> None:
    def one(running: Running, number: int) -> httpx2.Response | None:
        try:
            return running.run("effect out:done" if number % 3 else "sleep:20 effect")
        except httpx2.TransportError:
            return None

    with service(tmp_path, point, 12) as running, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: one(running, number), range(40)))
        assert running.process.wait(10) == -9
    with service(tmp_path) as running:
        rows = stored(running)
    assert_truthful(rows, effects(tmp_path))
    for answer in filter(None, answers):
        if answer.status_code == 200:
            assert rows[answer.json()["id"]]["state"] == "finished", "an acknowledged run was lost"


WORDS = [
    ("refuse", {"not_dispatched"}, 503),
    ("die", {"may_have_run"}, 502),
    ("effect die", {"may_have_run"}, 502),
    ("begin effect die", {"may_have_run"}, 502),
    ("effect break", {"may_have_run"}, 502),
    ("effect raise", {"may_have_run"}, 502),
    ("effect exit:3", {"finished"}, 200),
]


@pytest.mark.parametrize(("code", "states", "status"), WORDS)
def test_a_worker_that_dies_or_refuses_is_told_truthfully(
    tmp_path: Path, code: str, states: set[str], status: int
) -> None:
    with service(tmp_path) as running:
        answer = running.run(code)
        assert answer.status_code == status, answer.text
        rows = stored(running)
        assert {row["state"] for row in rows.values()} == states
        assert_truthful(rows, effects(tmp_path))
        marked = "not_dispatched" in answer.json()
        assert marked == (states == {"not_dispatched"}) == ("plimsoll-not-dispatched" in answer.headers)
        if status == 502:
            assert answer.headers["location"] == f"/v1/runs/{answer.json()['run_id']}"


def test_a_run_on_a_worker_that_falls_silent_may_have_run(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        answer = running.run("effect freeze", timeout_ms=300)
        assert (answer.status_code, answer.json()["code"]) == (502, "may_have_run")
        assert "plimsoll-not-dispatched" not in answer.headers
