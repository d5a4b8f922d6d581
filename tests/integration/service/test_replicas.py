"""Two services on one Postgres: each does for the other what only the survivor can, and none does anything twice."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2

from app.dispatch.killpoints import KillPoint
from tests.integration.service.stand import ASYNC, Json, Served, Stand, keyed

LEASE_MS, FINAL_MS = 2000, 2500
LONG = 600_000


def short(final_ms: int = FINAL_MS, **more: str) -> dict[str, str]:
    return {"TEST_LEASE_MS": str(LEASE_MS), "TEST_FINAL_MS": str(final_ms), **more}


@contextmanager
def two(stand: Stand, final_ms: int = FINAL_MS) -> Iterator[tuple[Served, Served]]:
    more = short(final_ms)
    with stand.service(name="-a", more=more) as one, stand.service(name="-b", more=more) as other:
        yield one, other


def until(look: Callable[[], Json], wanted: Callable[[Json], bool], seconds: float = 40) -> Json:
    end = time.monotonic() + seconds
    while not wanted(row := look()):
        assert time.monotonic() < end, row
        time.sleep(0.05)
    return row


def test_the_runs_of_a_killed_replica_are_settled_by_the_other(postgres_stand: Stand) -> None:
    stand = postgres_stand
    with two(stand) as (dying, living):
        code, key = "effect begin deaf:20000", keyed("orphan")
        run_id = dying.post(code, key | ASYNC).json()["id"]
        done = dying.post("effect out:done", keyed("done"))
        assert living.get(run_id)["state"] == "starting"
        dying.running.process.kill()
        first = until(lambda: living.get(run_id), lambda row: row["state"] != "starting")
        assert (first["state"], first["settled"]) == ("may_have_run", False)
        assert living.post(code, key).status_code == 202, "the key's run may still end"
        assert living.cancel(run_id).json()["outcome"] in {"requested", "may_have_run"}
        last = until(lambda: living.get(run_id), lambda row: bool(row["settled"]))
        assert last["state"] == "may_have_run"
        retried = living.post(code, key)
        assert (retried.status_code, retried.headers["location"]) == (502, f"/v1/runs/{run_id}")
        assert "plimsoll-not-dispatched" not in retried.headers
        assert living.post("effect out:done", keyed("done")).content == done.content
        stand.check(living.rows())
    assert stand.effects() == {run_id: 1, done.json()["id"]: 1}


def test_what_a_living_replica_runs_is_left_alone(postgres_stand: Stand) -> None:
    with two(postgres_stand) as (one, other):
        run_id = one.post("begin sleep:3000 effect out:whole", ASYNC).json()["id"]
        seen = set()
        while not (row := other.get(run_id))["settled"]:
            seen.add(row["state"])
            time.sleep(0.2)
        assert (seen, row["state"], row["result"]["stdout"]) == ({"starting"}, "finished", "whole")


def test_a_cancel_reaches_a_run_through_the_other_replica(postgres_stand: Stand) -> None:
    with two(postgres_stand) as (one, other):
        run_id = one.post("begin out:begun effect:there sleep:20000 effect:late", ASYNC).json()["id"]
        postgres_stand.await_label("there")
        answer = other.cancel(run_id)
        assert answer.json() == {"id": run_id, "state": "finished", "outcome": "cancelled"}
        row = one.get(run_id)
        assert (row["cancelled"], row["exit_code"], row["result"]["stdout"]) == (True, 130, "begun")
        assert other.cancel(run_id).json()["outcome"] == "cancelled"
    assert postgres_stand.labels() == {"there": 1}


def test_duplicates_sent_to_both_replicas_run_once(postgres_stand: Stand) -> None:
    with two(postgres_stand) as replicas:

        def ask(number: int) -> httpx2.Response:
            key = f"both-{number % 10}"
            answer = replicas[number // 10 % 2].post(f"effect:{key} sleep:40 out:{key}", keyed(key))
            assert answer.status_code in {200, 202, 429}, answer.text
            return ask(number) if answer.status_code == 429 else answer

        with ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(ask, range(200)))
        finals = [ask(number) for number in range(20)]
        assert {answer.json()["id"] for answer in (*answers, *finals)} == set(postgres_stand.effects())
        assert len({answer.content for answer in finals}) == 10
        assert {each.content for each in finals} >= {
            each.content for each in answers if each.status_code == 200
        }
        postgres_stand.check(replicas[0].rows())
    assert set(postgres_stand.labels().values()) == {1}


def test_a_replica_that_stood_still_past_its_lease_brings_the_result_after_all(postgres_stand: Stand) -> None:
    with two(postgres_stand, LONG) as (frozen, other):
        run_id = frozen.post("begin sleep:600 effect out:late", keyed("late") | ASYNC).json()["id"]
        os.kill(frozen.running.process.pid, signal.SIGSTOP)
        row = until(lambda: other.get(run_id), lambda row: row["state"] != "starting")
        assert (row["state"], row["settled"]) == ("may_have_run", False)
        os.kill(frozen.running.process.pid, signal.SIGCONT)
        row = other.get(run_id, wait=10)
        assert (row["state"], row["settled"], row["result"]["stdout"]) == ("finished", True, "late")
        assert other.post("begin sleep:600 effect out:late", keyed("late")).json()["id"] == run_id
        assert frozen.post("effect").status_code == 200, "and it goes on serving"
    assert postgres_stand.effects()[run_id] == 1


def test_a_replica_that_stood_still_for_too_long_tells_its_caller_and_changes_no_final_word(
    postgres_stand: Stand,
) -> None:
    with two(postgres_stand, 200) as (frozen, other), ThreadPoolExecutor(1) as pool:
        code, key = "begin sleep:600 effect out:late", keyed("late")
        waiting = pool.submit(frozen.post, code, key)
        (run_id,) = until(other.rows, lambda rows: len(rows) == 1)
        os.kill(frozen.running.process.pid, signal.SIGSTOP)
        row = until(lambda: other.get(run_id), lambda row: bool(row["settled"]))
        assert row["state"] == "may_have_run"
        os.kill(frozen.running.process.pid, signal.SIGCONT)
        answer = waiting.result(20)
        assert (answer.status_code, answer.json()["recorded"], answer.json()["id"]) == (200, False, run_id)
        assert other.get(run_id)["state"] == "may_have_run"
        assert [each.post(code, key).status_code for each in (frozen, other)] == [502, 502]
        postgres_stand.check(other.rows())
    assert postgres_stand.effects() == {run_id: 1}


def test_a_replica_that_stood_still_before_the_start_makes_no_second_execution(postgres_stand: Stand) -> None:
    more = short(200, TEST_SIGNAL="SIGSTOP")
    stand = postgres_stand
    with (
        stand.service(KillPoint.BEFORE_SEND, name="-a", more=more) as frozen,
        stand.service(name="-b", more=short(200)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(frozen.post, "effect:late", keyed("late"))
        (run_id,) = until(other.rows, lambda rows: len(rows) == 1)
        until(lambda: other.get(run_id), lambda row: bool(row["settled"]))
        assert other.post("effect:late", keyed("late")).status_code == 502
        os.kill(frozen.running.process.pid, signal.SIGCONT)
        waiting.result(20)
        assert other.post("effect:late", keyed("late")).status_code == 502
        assert (other.get(run_id)["state"], other.get(run_id)["settled"]) == ("may_have_run", True)
    assert stand.labels()["late"] <= 1
