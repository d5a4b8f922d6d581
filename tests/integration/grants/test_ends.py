"""A lease ends with its run, for everybody, however the run ends (S27); and the broker may be killed at any moment."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.grants.conftest import Api, Granted, broker_pid
from tests.integration.service.stand import Served, json_of
from tests.support.broker_client import Client, request
from tests.support.runs import alive

ASK = json.dumps({"method": "GET", "path": "/v1/employees"}).encode()


def shown(path: Path, seconds: float = 60) -> Client:
    """What a run wrote of its lease."""
    end = time.monotonic() + seconds
    while not path.exists() or not path.read_text().endswith("\n"):
        assert time.monotonic() < end
        time.sleep(0.02)
    return Client(**json.loads(path.read_text()))


def pause(end: float) -> None:
    assert time.monotonic() < end
    time.sleep(0.02)


def restarted(served: Served, old: int, seconds: float = 60) -> int:
    """The new broker's id once it serves."""
    end = time.monotonic() + seconds
    while True:
        lines = [each for each in served.running.lines() if each.get("event") == "broker.serving"]
        if lines[-1]["pid"] != old:
            return int(lines[-1]["pid"])
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_lease_opens_nothing_for_another_worker_run_or_secret_nor_after_the_end(
    on_sqlite: Granted, hr: Api
) -> None:
    with on_sqlite.stand.service() as served, ThreadPoolExecutor() as pool:
        on_sqlite.profile(hr)
        file = on_sqlite.stand.folder / "lease"
        hold = hr.holds["/v1/employees/held"] = threading.Event()
        running = pool.submit(on_sqlite.run, served, f"call:show>{file} call:GET=/v1/employees/held")
        lease = shown(file)
        good = lease.send(ASK)
        assert (good[0], json.loads(good[1])["status"]) == (200, 200)
        foreign = [
            Client(lease.url, lease.secret, lease.run_id, lease.worker + "x"),
            Client(lease.url, lease.secret, "0" * 32, lease.worker),
            Client(lease.url, "0" * 64, lease.run_id, lease.worker),
            Client(lease.url, lease.secret[:-2], lease.run_id, lease.worker),
            Client(lease.url, "not-hex", lease.run_id, lease.worker),
        ]
        assert [each.send(ASK) for each in foreign] == [(403, b"")] * len(foreign)
        control = {"authorization": f"Bearer {lease.secret}"}
        for path in ("/v1/leases", f"/v1/leases/{lease.run_id}/close"):
            assert request(lease.url, "POST", path, b"{}", control) == (403, b"")
        hold.set()
        answer = json_of(running.result(60))
        assert lease.send(ASK) == (403, b"")
        calls = served.get(answer["id"], token=on_sqlite.caller("reporting"))["calls"]
        assert (calls["sent"], calls["delivered"]) == (2, 2)
        assert len(hr.seen) == 2


@pytest.mark.parametrize("code", ["die", "hang", "break", "exit:3", "begin raise"])
def test_whatever_the_end_the_lease_is_closed_before_the_answer(
    on_sqlite: Granted, hr: Api, code: str
) -> None:
    with on_sqlite.stand.service() as served:
        on_sqlite.profile(hr)
        file = on_sqlite.stand.folder / "lease"
        answer = on_sqlite.run(
            served,
            f"call:show>{file} call:GET=/v1/employees/1 {code}",
            timeout_ms=1000 if code == "hang" else 20_000,
        )
        lease = shown(file)
        assert lease.send(ASK) == (403, b""), answer.text
        (run,) = served.http.get(
            "/v1/runs", headers={"authorization": f"Bearer {on_sqlite.caller('reporting')}"}
        ).json()["runs"]
        found = served.get(run["id"], token=on_sqlite.caller("reporting"))
        assert (found["calls"]["sent"], found["calls"]["delivered"]) == (1, 1), answer.text


def test_a_killed_broker_costs_calls_and_no_run_and_knows_no_lease_of_before(
    on_sqlite: Granted, hr: Api
) -> None:
    with on_sqlite.stand.service() as served, ThreadPoolExecutor() as pool:
        on_sqlite.profile(hr)
        file = on_sqlite.stand.folder / "lease"
        hr.holds["/v1/employees/held"] = threading.Event()
        code = f"call:show>{file} call:GET=/v1/employees/held sleep:3000 call:GET=/v1/employees/1 out:done"
        running = pool.submit(on_sqlite.run, served, code)
        lease = shown(file)
        old = broker_pid(served.running.process.pid)
        end = time.monotonic() + 60
        while not hr.seen:
            pause(end)
        os.kill(old, signal.SIGKILL)
        answer = json_of(running.result(90))
        assert answer["result"]["stdout"].endswith("done")
        assert '"status":200' not in answer["result"]["stdout"]
        new = restarted(served, old)
        assert new == broker_pid(served.running.process.pid)
        assert lease.send(ASK) == (403, b"")
        assert len(hr.seen) == 1
        run = served.get(answer["id"], token=on_sqlite.caller("reporting"))
        assert run["state"] == "finished"
        assert "calls" not in run
        again = json_of(on_sqlite.run(served, "call:GET=/v1/employees/2"))
        assert '"status":200' in again["result"]["stdout"]


def test_a_broker_that_stands_still_is_killed_and_until_then_nothing_starts(
    on_sqlite: Granted, hr: Api
) -> None:
    with on_sqlite.stand.service() as served:
        on_sqlite.profile(hr)
        assert '"status":200' in json_of(on_sqlite.run(served, "call:GET=/v1/employees"))["result"]["stdout"]
        old = broker_pid(served.running.process.pid)
        os.kill(old, signal.SIGSTOP)
        refused = on_sqlite.run(served, "effect")
        assert (refused.status_code, refused.json()["not_dispatched"]["reason"]) == (503, "environment")
        assert not on_sqlite.stand.effects()
        restarted(served, old)
        assert '"status":200' in json_of(on_sqlite.run(served, "call:GET=/v1/employees"))["result"]["stdout"]


def test_the_end_of_the_service_is_the_end_of_its_broker(on_sqlite: Granted) -> None:
    with on_sqlite.stand.service() as served:
        broker = broker_pid(served.running.process.pid)
        os.kill(served.running.process.pid, signal.SIGKILL)
        end = time.monotonic() + 30
        while alive(broker):
            pause(end)
