"""Advice on a run's calls, from the real broker to whoever is told, and to nobody else."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from plimsoll import Client
from plimsoll.records import single
from plimsoll.records.wireresults import RunResponseMessage
from tests.integration.connect.published import judge
from tests.integration.grants.conftest import PROFILE, Api, Granted
from tests.integration.grants.test_ends import pause
from tests.integration.service.stand import ASYNC, EVENTS, Json, Served, bearer, events_in, json_of, keyed
from tests.support.service import make_caller

ONE, LIST = "GET /v1/employees/*", "GET /v1/employees"
FAN_OUT = " ".join(f"call:GET=/v1/employees/{number}" for number in range(12))
FEW = " ".join(f"call:GET=/v1/employees/{number}" for number in range(9))
SAME = " ".join(["call:GET=/v1/employees/1"] * 5)
WRITES = " ".join(["call:GET=/v1/employees/1 call:POST=/v1/notes"] * 5)
LONG = " ".join(["call:GET=/v1/employees"] * 1_001)
MODES = ("off", "operator", "caller")
FOUND = [("fan_out", ONE, 12, LIST)]


@dataclass
class House:
    """A service with a profile, a caller of it, and an operator."""

    granted: Granted
    served: Served
    api: Api

    @property
    def caller(self) -> str:
        return self.granted.caller("reporting")

    def advise(self, mode: str) -> None:
        """From now on the profile has this mode."""
        text = PROFILE.format(name="hr-read", origin=self.api.origin, max_calls=2_000)
        self.granted.apply(text.replace("max_calls", f'advice = "{mode}"\nmax_calls', 1))

    def run(self, code: str, **how: Any) -> httpx2.Response:
        return self.granted.run(self.served, code, **how)

    def view(self, run_id: str, token: str = "") -> Json:
        return self.served.get(run_id, token=token or self.caller, wait=30)

    def line(self, run_id: str) -> Json:
        """What the log says of a run."""
        lines = self.served.running.lines()
        (line,) = [each for each in lines if each.get("event") == "run" and each["run_id"] == run_id]
        return line

    def compatible(self, **payload: object) -> httpx2.Response:
        headers = {"connect-protocol-version": "1", **bearer(self.caller)}
        url = "/plimsoll.v1.SandboxService/Run"
        return self.served.http.post(url, json={"protocol": 4, **payload}, headers=headers)


@pytest.fixture
def house(on_sqlite: Granted, hr: Api) -> Iterator[House]:
    with on_sqlite.stand.service() as served:
        yield House(on_sqlite, served, hr)


def found(advice: list[Json]) -> list[tuple[str, str, int, str]]:
    return [(each["code"], each["route"], each["count"], each["suggested_route"]) for each in advice]


def test_who_is_told_in_every_mode(house: House) -> None:
    operator = make_caller(
        house.granted.stand.environ(), "operator", "--scope", "admin", "--scope", "records:read"
    )
    told, digests = {}, set()
    for mode in MODES:
        house.advise(mode)
        answer = json_of(house.run(FAN_OUT))
        view, operators = house.view(answer["id"]), house.view(answer["id"], operator)
        listed = json_of(house.served.http.get("/v1/runs", headers=bearer(house.caller)))["runs"]
        line = house.line(answer["id"])
        assert not any("advice" in each for each in listed)
        assert view["calls"] == operators["calls"]
        said = [each["advice"] for each in (answer, view, operators) if "advice" in each]
        assert [found(each) for each in said] == [FOUND] * len(said)
        told[mode] = ["advice" in each for each in (answer, view, operators)], line.get("advice_fan_out")
        digests.add((answer["record"]["request_sha256"], answer["record"]["result_sha256"]))
        _holds_with_and_without(answer)
    assert told == {
        "off": ([False, False, False], None),
        "operator": ([False, False, True], 12),
        "caller": ([True, True, True], 12),
    }
    # The same program under the same name, and the same bytes came back.
    assert len(digests) == 1


def _holds_with_and_without(answer: Json) -> None:
    """The record holds for the answer as it came, and if its advice were another."""
    payload = {"kind": "javascript", "code": FAN_OUT, "grant_profile": "hr-read"}
    request = json.dumps({"payload": payload, "timeout_ms": 20_000}).encode()
    others: tuple[object, ...] = (answer.get("advice"), None, [])
    for advice in others:
        said = json.dumps(answer | {"advice": advice}).encode()
        assert not [each for each in single.check(single.read(request, said)) if each.problem]


def test_what_the_program_does_is_what_is_found(house: House) -> None:
    house.advise("caller")
    said = {code: json_of(house.run(code))["advice"] for code in (FEW, SAME, WRITES)}
    assert [found(said[code]) for code in said] == [[], [("repeated_read", ONE, 4, "")], []]
    assert "employees" not in said[SAME][0]["sentence"]


@pytest.mark.slow
def test_of_a_long_run_it_says_that_there_is_more(house: House) -> None:
    house.advise("caller")
    (only,) = json_of(house.run(LONG, timeout_ms=120_000))["advice"]
    assert (only["code"], only["route"], only["count"], only["at_least"]) == (
        "repeated_read",
        LIST,
        999,
        True,
    )


def test_an_answer_that_is_kept_has_its_advice_byte_for_byte_in_every_form(house: House) -> None:
    house.advise("caller")
    first = house.run(FAN_OUT, headers=keyed("a-key"))
    assert found(json_of(first)["advice"]) == FOUND
    house.advise("off")
    assert house.run(FAN_OUT, headers=keyed("a-key")).content == first.content
    events = events_in(house.run(FAN_OUT, headers=keyed("a-key") | EVENTS).content)
    assert dict(events)["result"] == json_of(first)
    view = house.view(json_of(first)["id"])
    assert (view["advice"], view["result"]) == (json_of(first)["advice"], json_of(first)["result"])
    assert len(house.api.seen) == 12


def test_a_later_answer_and_a_stream_have_it_too(house: House) -> None:
    house.advise("caller")
    later = house.run(FAN_OUT, headers=ASYNC)
    assert (later.status_code, "advice" in later.json()) == (202, False)
    assert found(house.view(later.json()["id"])["advice"]) == FOUND
    events = events_in(house.run(FAN_OUT, headers=EVENTS).content)
    assert found(events[-1][1]["advice"]) == FOUND
    assert [name for name, said in events if "advice" in said] == ["result"]


@pytest.mark.parametrize(("mode", "told"), [("off", False), ("operator", False), ("caller", True)])
def test_the_compatible_api_has_it_on_snippets_and_projects(house: House, mode: str, *, told: bool) -> None:
    house.advise(mode)
    bodies = {
        "javascript": {"code": FAN_OUT, "grantProfile": "hr-read"},
        "project": {"steps": [FAN_OUT], "grantProfile": "hr-read"},
    }
    for kind, payload in bodies.items():
        result = json_of(house.compatible(**{kind: payload}))[kind]
        RunResponseMessage.model_validate({kind: result})
        said = [
            (each["pattern"], each["method"], each["route"], each["extraCalls"]) for each in result["advice"]
        ]
        assert said == ([("fan_out", "GET", "/v1/employees/*", 11)] if told else [])


@pytest.mark.component("published-client")
def test_the_published_client_reads_it(house: House) -> None:
    house.advise("caller")
    call = ("run_javascript", {"code": SAME, "grant_profile": "hr-read"})
    (judged,) = judge(house.served.running.url, house.caller, call)
    (only,) = judged.result["advice"]
    assert (only["pattern"], only["method"], only["route"]) == ("repeated_read", "GET", "/v1/employees/*")
    assert (only["extra_calls"], only["remedy"]) == (4, "keep_answer")
    assert b'"status":200' in base64.b64decode(judged.result["stdout"])


def test_a_run_that_broke_is_advised_in_its_view(house: House) -> None:
    house.advise("caller")
    answer = house.run(f"{FAN_OUT} break")
    assert answer.status_code == 502
    assert found(house.view(answer.json()["run_id"])["advice"]) == FOUND


def test_our_client_reads_what_is_kept(house: House) -> None:
    house.advise("caller")
    run_id = json_of(house.run(FAN_OUT, headers=keyed("k")))["id"]
    with Client(house.served.running.url, house.caller) as client:
        view = client.get_run(run_id)
    assert view.advice is not None
    assert [(each.code, each.count) for each in view.advice] == [("fan_out", 12)]


def test_runs_at_once_that_read_the_same_are_not_taken_for_one(house: House) -> None:
    house.advise("caller")
    assert house.caller
    hold = house.api.holds["/v1/employees/0"] = threading.Event()
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(house.run, FAN_OUT) for _ in range(4)]
        end = time.monotonic() + 60
        while len(house.api.seen) < 4:
            pause(end)
        hold.set()
        said = [json_of(each.result(60))["advice"] for each in runs]
    assert [found(each) for each in said] == [FOUND] * 4
