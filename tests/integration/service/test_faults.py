"""What the caller is told when things die: one test for each row of the table in docs/run-results.md, with real processes.

What is wanted each time: no mark on what may have run, no second execution, and a last word that does not contradict the first.
"""

import os
import resource
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from app.dispatch.killpoints import KillPoint
from tests.integration.service.conftest import emptied
from tests.integration.service.proxy import How, Proxy, proxied
from tests.integration.service.stand import ASYNC, EVENTS, Json, Served, Stand, keyed
from tests.integration.store import servers
from tests.support.runs import alive, children
from tests.support.service import make_caller

BUSY_MS = 300
LOOP = "for (;;) {}"
ENVIRONMENT = {"reason": "environment"}


def until(look: Callable[[], Json], wanted: Callable[[Json], bool], seconds: float = 60) -> Json:
    end = time.monotonic() + seconds
    while not wanted(row := look()):
        assert time.monotonic() < end, row
        time.sleep(0.05)
    return row


def seen(served: Served, run_id: str) -> Json:
    """The run, or the problem that the database is still away."""
    answer = served.http.get(f"/v1/runs/{run_id}")
    assert answer.status_code in {200, 503}, answer.text
    found: Json = answer.json()
    return found


def await_dead(pids: Sequence[int]) -> None:
    """Until they are gone, with everything they had open."""
    until(lambda: {"alive": [pid for pid in pids if alive(pid)]}, lambda seen: not seen["alive"])


def assert_may_have_run(answer: httpx2.Response) -> str:
    """The run's id, from an answer that proves nothing."""
    assert (answer.status_code, answer.json()["code"]) == (502, "may_have_run"), answer.text
    assert "plimsoll-not-dispatched" not in answer.headers
    assert "not_dispatched" not in answer.json()
    run_id: str = answer.json()["run_id"]
    assert answer.headers["location"] == f"/v1/runs/{run_id}"
    return run_id


def assert_nothing_ran(answer: httpx2.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), answer.text
    assert answer.json()["not_dispatched"] == ENVIRONMENT
    assert answer.headers["plimsoll-not-dispatched"] == "environment"


def all_slots_free(served: Served) -> bool:
    (provider,) = served.http.get("/v1/providers").json()["providers"]
    return bool(provider["free"] == provider["slots"])


# --- the runner ----------------------------------------------------------------------------------------------------------


@contextmanager
def wasm(folder: Path) -> Iterator[tuple[Served, int]]:
    """A service over the wasm provider, and the provider's process."""
    with Stand(folder).service(more={"TEST_PROVIDER": "wasm"}) as served:
        (provider,) = children(served.running.process.pid)
        yield served, provider


def runners(provider: int) -> list[int]:
    """The processes at the leaves: the fork server's children."""
    (fork_server,) = children(provider)
    return children(fork_server)


def busy(provider: int) -> int:
    """The runner that uses the processor."""

    def used(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    end = time.monotonic() + 15
    while time.monotonic() < end:
        before = {pid: used(pid) for pid in runners(provider)}
        time.sleep(0.2)
        for pid in set(runners(provider)) & set(before):
            if used(pid) - before[pid] > 5:
                return pid
    pytest.fail("no runner is running")


@pytest.mark.component("wasm")
def test_a_runner_that_dies_before_it_has_the_code_is_replaced_or_nothing_ran(tmp_path: Path) -> None:
    with wasm(tmp_path) as (served, provider):
        statuses = []
        for number in range(12):
            killed = runners(provider)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            # One that still takes the code on its way out may have run it, for all that anybody can tell.
            await_dead(killed)
            answer = served.post(f"console.log({number})")
            statuses.append(answer.status_code)
            if answer.status_code == 200:
                assert answer.json()["result"]["stdout"] == f"{number}\n"
            else:
                assert_nothing_ran(answer)
        assert 200 in statuses
        rows = served.rows()
        assert {row["state"] for row in rows.values()} <= {"finished", "not_dispatched"}


@pytest.mark.component("wasm")
@pytest.mark.parametrize("how", ["plain", "keyed", "async"])
def test_a_runner_that_dies_with_the_code_may_have_run_it(tmp_path: Path, how: str) -> None:
    headers = {"plain": {}, "keyed": keyed("k"), "async": ASYNC}[how]
    with wasm(tmp_path) as (served, provider), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(served.post, LOOP, headers)
        os.kill(busy(provider), signal.SIGKILL)
        answer = waiting.result(20)
        if how == "async":
            run_id = answer.json()["id"]
            served.get(run_id, wait=10)
        else:
            run_id = assert_may_have_run(answer)
        row = served.get(run_id)
        assert (row["state"], row["settled"]) == ("may_have_run", True)
        if how == "keyed":
            assert assert_may_have_run(served.post(LOOP, headers)) == run_id
        assert served.post("console.log(1)").status_code == 200


@pytest.mark.component("wasm")
def test_a_runner_that_dies_after_the_end_costs_nothing(tmp_path: Path) -> None:
    with wasm(tmp_path) as (served, provider):
        run_id = served.post("console.log(1)", ASYNC).json()["id"]
        row = served.get(run_id, wait=10)
        killed = runners(provider)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        await_dead(killed)
        assert served.get(run_id) == row
        assert (row["state"], row["result"]["stdout"]) == ("finished", "1\n")
        assert served.post("console.log(2)").status_code == 200


# --- the provider process ------------------------------------------------------------------------------------------------


def provider_of(served: Served) -> int:
    (pid,) = children(served.running.process.pid)
    return pid


def test_a_provider_that_dies_before_the_start_runs_nothing(sqlite_stand: Stand) -> None:
    with sqlite_stand.service() as served:
        pid = provider_of(served)
        os.kill(pid, signal.SIGKILL)
        await_dead([pid])
        answer = served.post("effect:first")
        if answer.status_code != 200:  # it may be back already
            assert_nothing_ran(answer)
            assert not sqlite_stand.effects()
        until(lambda: {"status": served.post("effect").status_code}, lambda seen: seen["status"] == 200)
        sqlite_stand.check(served.rows())


@pytest.mark.parametrize("code", ["die", "effect die", "begin effect die", "effect out:x die"])
def test_a_provider_that_dies_after_the_start_may_have_run_it(sqlite_stand: Stand, code: str) -> None:
    with sqlite_stand.service() as served:
        run_id = assert_may_have_run(served.post(code, keyed("k")))
        assert sqlite_stand.effects()[run_id] == ("effect" in code)
        row = served.get(run_id)
        assert (row["state"], row["settled"]) == ("may_have_run", True)
        assert assert_may_have_run(served.post(code, keyed("k"))) == run_id
        until(lambda: {"status": served.post("out:x").status_code}, lambda seen: seen["status"] == 200)
        sqlite_stand.check(served.rows())


def test_a_provider_that_stands_still_before_the_reservation_runs_nothing(sqlite_stand: Stand) -> None:
    with sqlite_stand.service() as served:
        pid = provider_of(served)
        os.kill(pid, signal.SIGSTOP)
        try:
            assert_nothing_ran(served.post("effect"))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert served.post("effect").status_code == 200
        until(lambda: {"free": all_slots_free(served)}, lambda seen: bool(seen["free"]), 10)
        sqlite_stand.check(served.rows())


def test_a_provider_that_stands_still_for_long_is_ended_and_may_have_run_it(sqlite_stand: Stand) -> None:
    with sqlite_stand.service() as served, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(served.post, "effect:frozen sleep:300 out:late", keyed("k"))
        sqlite_stand.await_label("frozen")
        until(sqlite_stand.effects, bool)  # the effect comes right after its label
        os.kill(provider_of(served), signal.SIGSTOP)
        run_id = assert_may_have_run(waiting.result(90))
        assert (served.get(run_id)["state"], served.get(run_id)["settled"]) == ("may_have_run", True)
        until(lambda: {"status": served.post("out:x").status_code}, lambda seen: seen["status"] == 200, 90)
    assert sqlite_stand.effects() == {run_id: 1}


@pytest.mark.parametrize("code", ["begin effect:frozen sleep:100", "effect:frozen deaf:100 refuse"])
def test_a_provider_that_moves_again_after_the_caller_was_told_settles_the_run(
    sqlite_stand: Stand, code: str
) -> None:
    with sqlite_stand.service(more={"TEST_PATIENCE": "1"}) as served, ThreadPoolExecutor(2) as pool:
        key = keyed("k")
        waiting = pool.submit(served.post, code, key, timeout_ms=400)
        sqlite_stand.await_label("frozen")
        os.kill(provider_of(served), signal.SIGSTOP)
        run_id = assert_may_have_run(waiting.result(20))
        assert served.get(run_id)["settled"] is False
        assert served.post(code, key, timeout_ms=400).status_code == 202
        os.kill(provider_of(served), signal.SIGCONT)
        row = served.get(run_id, wait=10)
        assert row["settled"]
        if "refuse" in code:  # the worker's table proves it, late
            assert (row["state"], row["not_dispatched"]) == ("not_dispatched", ENVIRONMENT)
        else:  # the worker's own deadline for it is over too
            assert row["state"] in {"finished", "may_have_run"}
            replay = served.post(code, key, timeout_ms=400)
            assert replay.status_code == (200 if row["state"] == "finished" else 502)
            assert sqlite_stand.effects() == {run_id: 1}


# --- the service ---------------------------------------------------------------------------------------------------------


NO_ROW = {KillPoint.BEFORE_RESERVE, KillPoint.AFTER_RESERVE, KillPoint.BEFORE_STARTING_COMMIT}
RECORDED = {KillPoint.AFTER_END_COMMIT, KillPoint.BEFORE_ANSWER}


def test_a_service_that_dies_in_any_state_leaves_an_answer_for_the_retry(postgres_stand: Stand) -> None:
    """Another replica answers, once the lease is over; test_kill_points.py has the same on SQLite, without keys."""
    stand = postgres_stand
    more = {"TEST_LEASE_MS": "500", "TEST_FINAL_MS": "200"}
    for point in KillPoint:
        with stand.service(point, more=more) as served:
            with pytest.raises(httpx2.TransportError):
                served.post(f"effect:{point} out:done", keyed(point))
            assert served.running.process.wait(10) == -signal.SIGKILL
    with stand.service(more=more) as served:
        until(served.rows, lambda rows: all(row["settled"] for row in rows.values()))
        for point in KillPoint:
            retried = served.post(f"effect:{point} out:done", keyed(point))
            if point in NO_ROW | RECORDED:
                assert retried.json()["result"]["stdout"] == "done"
            else:
                assert_may_have_run(retried)
        stand.check(served.rows())
    happened = stand.labels()
    assert all(happened[point] == 1 for point in NO_ROW | RECORDED)
    assert max(happened.values()) == 1


# --- the database --------------------------------------------------------------------------------------------------------


@contextmanager
def locked(stand: Stand) -> Iterator[None]:
    """Another process's transaction that does not end."""
    with closing(sqlite3.connect(stand.file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def full(stand: Stand, served: Served) -> Iterator[None]:
    """A disk that takes no more of SQLite's log: its file may not grow. It is found out at the COMMIT."""
    pid, log = served.running.process.pid, stand.file.with_name(stand.file.name + "-wal")
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (log.stat().st_size, resource.RLIM_INFINITY))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def sqlite_service(stand: Stand) -> Iterator[Served]:
    with stand.service(more={"TEST_BUSY_MS": str(BUSY_MS)}) as served:
        assert served.post("out:warm").status_code == 200
        yield served


@contextmanager
def behind_proxy(socket: Path, folder: Path) -> Iterator[tuple[Stand, Served, Proxy]]:
    emptied(socket)
    with proxied(socket) as proxy:
        stand = Stand(folder, proxy.url())
        # A lease so long that the COMMIT of its renewal is not the one that gets lost.
        with stand.service(more={"TEST_LEASE_MS": "600000"}) as served:
            assert served.post("out:warm").status_code == 200
            yield stand, served, proxy


def test_sqlite_away_before_the_start_runs_nothing(sqlite_stand: Stand) -> None:
    with sqlite_service(sqlite_stand) as served:
        with locked(sqlite_stand):
            assert_nothing_ran(served.post("effect"))
            assert_nothing_ran(served.post("effect", keyed("k")))
            assert_nothing_ran(served.post("effect", ASYNC))
            assert_nothing_ran(served.post("effect", EVENTS))
            assert len(served.rows()) == 1, "who only reads does not notice"
        assert all_slots_free(served)
        assert not sqlite_stand.effects()
        assert served.post("effect", keyed("k")).status_code == 200


def test_sqlite_losing_the_first_commit_runs_nothing(sqlite_stand: Stand) -> None:
    with sqlite_service(sqlite_stand) as served:
        with full(sqlite_stand, served):
            assert_nothing_ran(served.post("effect:unkeyed"))
            assert_nothing_ran(served.post("effect:keyed", keyed("k")))
        rows = until(
            served.rows, lambda rows: len(rows) == 3 and all(row["settled"] for row in rows.values())
        )
        assert sorted(row["state"] for row in rows.values()) == [
            "finished",
            "not_dispatched",
            "not_dispatched",
        ]
        assert served.post("effect:keyed", keyed("k")).status_code == 200
        assert all_slots_free(served)
    assert sqlite_stand.labels() == {"keyed": 1}


@pytest.mark.parametrize("how", ["locked", "full"])
def test_sqlite_away_after_the_start_still_delivers_and_records_later(sqlite_stand: Stand, how: str) -> None:
    with sqlite_service(sqlite_stand) as served, ThreadPoolExecutor(4) as pool:
        code = "begin effect:{0} sleep:400 out:done"
        forms = {"plain": {}, "keyed": keyed("k"), "stream": EVENTS}
        waiting = {name: pool.submit(served.post, code.format(name), form) for name, form in forms.items()}
        later = served.post(code.format("async"), ASYNC).json()["id"]
        for name in (*forms, "async"):
            sqlite_stand.await_label(name)
        with locked(sqlite_stand) if how == "locked" else full(sqlite_stand, served):
            answers = {name: each.result(20) for name, each in waiting.items()}
            assert served.get(later)["state"] == "starting"
        assert (answers["plain"].status_code, answers["plain"].json()["recorded"]) == (200, False)
        assert b'"recorded":false' in answers["stream"].content
        rows = until(served.rows, lambda rows: all(row["settled"] for row in rows.values()))
        assert {row["state"] for row in rows.values()} == {"finished"}
        assert served.post(code.format("keyed"), keyed("k")).content == answers["keyed"].content
        assert served.get(later)["result"]["stdout"] == "done"
        sqlite_stand.check(rows)


def test_a_service_killed_before_it_recorded_an_end_knows_less_at_its_next_start(sqlite_stand: Stand) -> None:
    with sqlite_service(sqlite_stand) as served, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(served.post, "begin effect:told sleep:300 out:done", keyed("k"))
        sqlite_stand.await_label("told")
        with locked(sqlite_stand):
            answer = waiting.result(20)
            assert (answer.status_code, answer.json()["recorded"]) == (200, False)
            served.running.process.kill()
            served.running.process.wait()
    with sqlite_stand.service() as served:
        retried = served.post("begin effect:told sleep:300 out:done", keyed("k"))
        assert assert_may_have_run(retried) == answer.json()["id"]
    assert sqlite_stand.labels() == {"told": 1}


def test_postgres_away_before_the_start_runs_nothing(postgres_socket: Path, tmp_path: Path) -> None:
    with behind_proxy(postgres_socket, tmp_path) as (stand, served, proxy):
        run_id = served.post("effect:before", keyed("before")).json()["id"]
        proxy.cut()
        assert_nothing_ran(served.post("effect:away"))
        assert_nothing_ran(served.post("effect:away", ASYNC))
        for key in ("before", "new"):  # a key may have a run, and nobody can look
            answer = served.post(f"effect:{key}", keyed(key))
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert "plimsoll-not-dispatched" not in answer.headers
        for answer in (
            served.http.get(f"/v1/runs/{run_id}"),
            served.cancel(run_id),
            served.http.get("/v1/runs"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert "plimsoll-not-dispatched" not in answer.headers
        proxy.mend()
        assert served.post("effect:before", keyed("before")).json()["id"] == run_id
        assert served.post("effect:new", keyed("new")).status_code == 200
        assert all_slots_free(served)
        stand.check(served.rows())
    assert stand.labels() == {"before": 1, "new": 1}


def test_postgres_away_at_authentication_marks_only_what_has_no_key(
    postgres_socket: Path, tmp_path: Path
) -> None:
    emptied(postgres_socket)
    with proxied(postgres_socket) as proxy:
        stand = Stand(tmp_path, proxy.url(), {})
        with stand.service() as served:
            token = make_caller(stand.environ(), "alice")
            assert served.post("effect:once", keyed("k"), token=token).status_code == 200
            proxy.cut()
            assert_nothing_ran(served.post("effect:other", token=token))
            retried = served.post("effect:once", keyed("k"), token=token)
            assert (retried.status_code, retried.json()["code"]) == (503, "unavailable")
            assert "not_dispatched" not in retried.json()
            proxy.mend()
            assert served.post("effect:once", keyed("k"), token=token).status_code == 200
    assert stand.labels() == {"once": 1}


@pytest.mark.parametrize("how", ["keep", "drop", "delay"])
def test_postgres_losing_the_first_commit_runs_nothing(
    postgres_socket: Path, tmp_path: Path, how: How
) -> None:
    with behind_proxy(postgres_socket, tmp_path) as (stand, served, proxy):
        proxy.at_commit(how)
        assert_nothing_ran(served.post("effect:unkeyed"))
        proxy.mend()
        until(served.rows, lambda rows: len(rows) == 2 and all(row["settled"] for row in rows.values()))
        proxy.at_commit(how)
        answer = served.post("effect:keyed", keyed("k"))
        assert answer.status_code in {202, 503}, answer.text
        proxy.mend()
        rows = until(
            served.rows, lambda rows: len(rows) == 3 and all(row["settled"] for row in rows.values())
        )
        assert sorted(row["state"] for row in rows.values()) == [
            "finished",
            "not_dispatched",
            "not_dispatched",
        ]
        assert not stand.effects()
        assert served.post("effect:keyed", keyed("k")).status_code == 200
        assert all_slots_free(served)
        stand.check(served.rows())
    assert stand.labels() == {"keyed": 1}


@pytest.mark.parametrize("how", ["away", "keep", "drop"])
def test_postgres_away_after_the_start_still_delivers_and_records_later(
    postgres_socket: Path, tmp_path: Path, how: How | str
) -> None:
    with behind_proxy(postgres_socket, tmp_path) as (stand, served, proxy), ThreadPoolExecutor(1) as pool:
        code = "begin effect:during sleep:300 out:done"
        waiting: Future[httpx2.Response] = pool.submit(served.post, code, keyed("k"))
        stand.await_label("during")
        if how == "away":
            proxy.cut()
        else:
            proxy.at_commit("keep" if how == "keep" else "drop")
        answer = waiting.result(20)
        assert (answer.status_code, answer.json()["recorded"]) == (200, False)
        proxy.mend()
        run_id = answer.json()["id"]
        row = until(lambda: seen(served, run_id), lambda row: bool(row.get("settled")))
        assert (row["state"], row["result"]["stdout"]) == ("finished", "done")
        replay = served.post(code, keyed("k"))
        assert replay.json() | {"recorded": False} == answer.json()
        assert (replay.content == answer.content) or how == "keep"
        stand.check(served.rows())
    assert stand.labels() == {"during": 1}


@contextmanager
def stopped(socket: Path) -> Iterator[None]:
    """The server itself is away: ended at once, started again."""
    programs = servers.binaries()
    assert programs is not None
    owner = (socket / "data").stat()
    options = (socket / "data" / "postmaster.opts").read_text().split(" ", 1)[1].strip()
    user, group = (owner.st_uid, owner.st_gid) if os.geteuid() == 0 else (None, None)

    def control(*arguments: str) -> None:
        command = [str(programs / "pg_ctl"), "-D", str(socket / "data"), "-w", "-t", "30", *arguments]
        env = {"LC_ALL": "C"}
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
            cwd="/",
            env=env,
            user=user,
            group=group,
        )

    control("-m", "immediate", "stop")
    try:
        yield
    finally:
        control("-l", str(socket / "log"), "-o", options, "start")


def test_a_postgres_server_that_ends_and_starts_again_loses_nothing_that_was_answered(
    postgres_stand: Stand, postgres_socket: Path
) -> None:
    stand = postgres_stand
    with stand.service() as served, ThreadPoolExecutor(1) as pool:
        before = served.post("effect:before", keyed("before"))
        code = "begin effect:during sleep:500 out:done"
        waiting: Future[httpx2.Response] = pool.submit(served.post, code)
        stand.await_label("during")
        with stopped(postgres_socket):
            answer = waiting.result(20)
            assert (answer.status_code, answer.json()["recorded"]) == (200, False)
            assert_nothing_ran(served.post("effect:away"))
        rows = until(served.rows, lambda rows: all(row["settled"] for row in rows.values()))
        assert rows[answer.json()["id"]]["state"] == "finished"
        assert served.post("effect:before", keyed("before")).content == before.content
        stand.check(rows)
    assert stand.labels() == {"before": 1, "during": 1}
