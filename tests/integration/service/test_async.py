"""Answers for later, callers that go away, and a cancel that says truthfully what it came to."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.service.conftest import House
from tests.integration.service.stand import ASYNC, EVENTS, NONE, Headers, Json, keyed
from tests.integration.service.wire import Line


def begun(house: House, code: str) -> str:
    """An async run of Alice's, by its id."""
    answer = house.served.post(code, ASYNC, token=house.alice)
    assert answer.status_code == 202, answer.text
    run_id: str = answer.json()["id"]
    return run_id


def ended(house: House, run_id: str) -> Json:
    row = house.served.get(run_id, wait=20, token=house.alice)
    assert row["settled"], row
    return row


def newest(house: House, but: set[str]) -> str:
    """The one run of Alice's that is there now and was not before."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        runs = house.served.http.get("/v1/runs", headers={"authorization": f"Bearer {house.alice}"})
        if new := {run["id"] for run in runs.json()["runs"]} - but:
            (run_id,) = new
            return str(run_id)
        time.sleep(0.02)
    pytest.fail("no run was written")


def known(house: House) -> set[str]:
    runs = house.served.http.get("/v1/runs", headers={"authorization": f"Bearer {house.alice}"})
    return {run["id"] for run in runs.json()["runs"]}


def test_an_async_run_is_202_at_once_and_its_answer_is_kept(house: House) -> None:
    before = time.monotonic()
    answer = house.served.post("sleep:2000 effect out:done hex:ff", ASYNC, token=house.alice)
    assert time.monotonic() - before < 2
    assert (answer.status_code, answer.headers["preference-applied"]) == (202, "respond-async")
    view = answer.json()
    assert answer.headers["location"] == f"/v1/runs/{view['id']}"
    assert (view["state"], view["settled"], "result" in view) == ("starting", False, False)
    waited = house.served.get(view["id"], wait=20, token=house.alice)
    assert time.monotonic() - before > 1.9
    assert (waited["state"], waited["exit_code"], waited["settled"]) == ("finished", 0, True)
    assert (waited["result"]["stdout"], waited["result"]["stdout_encoding"]) == ("ZG9uZf8=", "base64")
    assert waited["record"]["record_sha256"]
    assert house.served.get(view["id"], token=house.alice) == waited


def test_a_wait_ends_with_its_time_and_says_the_state_as_it_is(house: House) -> None:
    run_id, before = begun(house, "sleep:20000"), time.monotonic()
    row = house.served.get(run_id, wait=1, token=house.alice)
    assert time.monotonic() - before > 0.9
    assert (row["state"], row["settled"], "result" in row) == ("starting", False, False)
    assert house.served.cancel(run_id, token=house.alice).json()["outcome"] == "cancelled"


def test_a_run_that_is_not_kept_has_no_result_later(house: House) -> None:
    run_id = house.served.post("out:gone", token=house.alice).json()["id"]
    assert "result" not in house.served.get(run_id, token=house.alice)


def test_async_together_with_a_stream_is_refused(house: House) -> None:
    answer = house.served.post("effect:both", ASYNC | EVENTS, token=house.alice)
    assert (answer.status_code, answer.json()["not_dispatched"]) == (400, {"reason": "request"})
    assert house.stand.labels()["both"] == 0


def test_a_refusal_before_the_start_is_a_plain_answer_and_no_run(house: House) -> None:
    before = known(house)
    body = {"payload": {"kind": "javascript", "code": "effect:low"}, "minimum_isolation": "vm"}
    headers = {"authorization": f"Bearer {house.alice}"} | ASYNC
    answer = house.served.http.post("/v1/runs", json=body, headers=headers)
    assert (answer.status_code, answer.json()["not_dispatched"]) == (412, {"reason": "isolation"})
    assert known(house) == before
    assert house.stand.labels()["low"] == 0


def test_a_cancel_while_it_runs_ends_it_and_says_so(house: House) -> None:
    run_id = begun(house, "begin out:begun effect:there sleep:20000 effect:late")
    house.stand.await_label("there")
    answer = house.served.cancel(run_id, token=house.alice)
    assert answer.json() == {"id": run_id, "state": "finished", "outcome": "cancelled"}
    row = ended(house, run_id)
    assert (row["state"], row["cancelled"], row["exit_code"]) == ("finished", True, 130)
    assert row["result"]["stdout"] == "begun"
    assert house.served.cancel(run_id, token=house.alice).json()["outcome"] == "cancelled"
    assert house.stand.labels()["late"] == 0


def test_a_cancel_after_the_end_says_that_it_was_over(house: House) -> None:
    run_id = begun(house, "effect out:whole")
    ended(house, run_id)
    answer = house.served.cancel(run_id, token=house.alice)
    assert answer.json() == {"id": run_id, "state": "finished", "outcome": "already_finished"}
    assert ended(house, run_id)["cancelled"] is False


def test_a_cancel_of_what_never_started_says_that_nothing_ran(house: House) -> None:
    # The worker goes on to refuse the start, deaf to the cancel that came before.
    run_id = begun(house, "deaf:500 refuse")
    answer = house.served.cancel(run_id, token=house.alice)
    assert answer.json() == {"id": run_id, "state": "not_dispatched", "outcome": "not_dispatched"}
    assert ended(house, run_id)["not_dispatched"] == {"reason": "request"}


def test_a_cancel_of_what_broke_says_that_it_may_have_run(house: House) -> None:
    run_id = begun(house, "effect:breaking deaf:300 break")
    house.stand.await_label("breaking", 30)
    answer = house.served.cancel(run_id, token=house.alice)
    assert answer.json() == {"id": run_id, "state": "may_have_run", "outcome": "may_have_run"}


def test_a_cancel_that_is_not_carried_out_yet_is_only_requested(house: House) -> None:
    run_id = begun(house, "effect:stubborn begin deaf:6000 out:stubborn")
    house.stand.await_label("stubborn", 30)
    answer = house.served.cancel(run_id, token=house.alice)
    assert answer.json() == {"id": run_id, "state": "starting", "outcome": "requested"}
    row = ended(house, run_id)
    assert (row["state"], row["cancelled"], row["result"]["stdout"]) == ("finished", False, "stubborn")


def test_nobody_cancels_what_is_not_its_own(house: House) -> None:
    run_id = begun(house, "sleep:800 out:mine")
    for token, status in ((house.bob, 404), (house.reader, 403), ("plim_no", 401)):
        assert house.served.cancel(run_id, token=token).status_code == status
    unknown = house.served.cancel("0" * 32, token=house.bob)
    foreign = house.served.cancel(run_id, token=house.bob)
    assert unknown.json() | {"request_id": ""} == foreign.json() | {"request_id": ""}
    assert ended(house, run_id)["result"]["stdout"] == "mine"


@pytest.mark.parametrize("headers", [ASYNC, keyed("gone-sync"), keyed("gone-stream") | EVENTS])
def test_a_run_whose_answer_is_kept_survives_its_caller(house: House, headers: Headers) -> None:
    before = known(house)
    with Line(house.served.running.url, "sleep:500 effect out:whole", headers, token=house.alice):
        run_id = newest(house, before)
    row = ended(house, run_id)
    assert (row["state"], row["cancelled"], row["result"]["stdout"]) == ("finished", False, "whole")
    assert house.stand.effects()[run_id] == 1


@pytest.mark.parametrize("headers", [NONE, EVENTS], ids=["waiting", "stream"])
def test_a_caller_that_hangs_up_at_any_moment_cancels_a_run_nobody_else_will_hear_of(
    house: House, headers: Headers
) -> None:
    before = known(house)
    for number in range(24):
        with Line(house.served.running.url, "sleep:20000 effect:hung-up", headers, token=house.alice):
            time.sleep(number / 1000)
    for run_id in known(house) - before:
        row = ended(house, run_id)
        if row["state"] == "finished":
            assert (row["cancelled"], row["exit_code"]) == (True, 130)
        else:
            assert (row["state"], row["not_dispatched"]) == ("not_dispatched", {"reason": "request"})
    assert house.stand.labels()["hung-up"] == 0


@pytest.mark.parametrize("headers", [NONE, EVENTS], ids=["waiting", "stream"])
def test_a_caller_that_hangs_up_while_its_run_goes_on_cancels_it(house: House, headers: Headers) -> None:
    before = known(house)
    label = f"here-{'stream' if headers else 'waiting'}"
    code = f"begin out:begun effect:{label} sleep:20000 effect:left"
    with Line(house.served.running.url, code, headers, token=house.alice) as line:
        run_id = newest(house, before)
        if headers:
            line.until(b"event: stdout")
        else:
            house.stand.await_label(label, 30)
    row = ended(house, run_id)
    assert (row["state"], row["cancelled"], row["exit_code"]) == ("finished", True, 130)
    assert house.stand.labels()["left"] == 0


def test_slots_all_return_from_runs_that_were_cancelled_anywhere(house: House) -> None:
    chance = random.Random(7)

    def one(number: int) -> str:
        run_id = begun(house, chance.choice(["begin sleep:9000", "sleep:9000", "out:x sleep:30", "effect"]))
        time.sleep(chance.random() * 0.05)
        outcome: str = house.served.cancel(run_id, token=house.alice).json()["outcome"]
        return outcome

    with ThreadPoolExecutor(10) as pool:
        outcomes = set(pool.map(one, range(40)))
    assert outcomes <= {"cancelled", "already_finished", "not_dispatched"}
    headers = {"authorization": f"Bearer {house.alice}"}
    (provider,) = house.served.http.get("/v1/providers", headers=headers).json()["providers"]
    assert provider["free"] == provider["slots"]
