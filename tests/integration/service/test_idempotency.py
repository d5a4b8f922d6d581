"""A key is executed at most once, whatever is duplicated, retried, killed or refused in between."""

import random
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.integration.service.conftest import House
from tests.integration.service.stand import ASYNC, EVENTS, NONE, Served, Stand, bearer, events_in, keyed

LIVES, KEYS, DUPLICATES = 4, 10, 15
SEED = 0x5EED


class Caller:
    """What the duplicates of all keys were told so far."""

    def __init__(self) -> None:
        self.bodies: dict[str, set[bytes]] = {}
        self.lost: set[str] = set()

    def ask(self, served: Served, key: str) -> bool:
        """One request with this key; whether it got the last word on it. Raises TransportError once the service is dead."""
        answer = served.post(f"effect:{key} sleep:15 out:{key}", keyed(key))
        if answer.status_code == 200:
            self.bodies.setdefault(key, set()).add(answer.content)
            return True
        if answer.status_code == 502:
            self.lost.add(key)
            return bool(served.get(answer.json()["run_id"])["settled"])
        if answer.status_code == 202:
            assert answer.headers["location"] == f"/v1/runs/{answer.json()['id']}"
        else:
            assert answer.status_code == 429, answer.text
        return False

    def storm(self, served: Served, requests: list[str]) -> list[str]:
        """Ask them all at once, again and again; what is left when the service died."""

        def persist(key: str) -> bool:
            try:
                while not self.ask(served, key):
                    pass
            except httpx2.TransportError:
                return False
            return True

        with ThreadPoolExecutor(24) as pool:
            done = list(pool.map(persist, requests))
        return [key for key, finished in zip(requests, done, strict=True) if not finished]


def test_duplicates_retries_and_kills_never_run_a_key_twice(stand: Stand) -> None:
    chance = random.Random(SEED)
    caller, requests, asked = Caller(), list[str](), set[str]()
    short = {"TEST_LEASE_MS": "1000", "TEST_FINAL_MS": "500"}
    for life in range(LIVES):
        # Ten new keys pass more than a hundred points, so each life ends.
        keys = {f"key-{life}-{number}" for number in range(KEYS)}
        asked |= keys
        requests += sorted(keys) * DUPLICATES
        chance.shuffle(requests)
        with stand.service("any", chance.randint(5, 100), more=short) as served:
            requests = caller.storm(served, requests)
            assert served.running.process.wait(10) == -9
    with stand.service(more=short) as served:
        assert not caller.storm(served, requests)
        rows = served.rows()
    stand.check(rows)
    happened = stand.labels()
    assert max(happened.values()) == 1, "a key ran twice"
    assert all(len(bodies) == 1 for bodies in caller.bodies.values()), "a key had two answers"
    assert not caller.lost & set(caller.bodies), "a key was answered both ways"
    assert set(caller.bodies) <= set(happened)
    assert caller.lost | set(caller.bodies) == asked


def test_hundreds_of_duplicates_at_once_get_one_run_and_one_body(house: House) -> None:
    def ask(number: int) -> httpx2.Response:
        key = f"crowd-{number % 10}"
        return house.served.post(f"effect:{key} sleep:100 out:{key}", keyed(key), token=house.alice)

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, range(300)))
    assert {answer.status_code for answer in answers} <= {200, 202}
    ran = {answer.json()["id"] for answer in answers}
    assert len(ran) == 10
    assert {ask(number).content for number in range(10)} == {
        answer.content for answer in answers if answer.status_code == 200
    }
    happened = house.stand.labels()
    assert all(happened[f"crowd-{number}"] == 1 for number in range(10))


def test_the_answer_of_a_key_comes_back_byte_for_byte_in_every_form(house: House) -> None:
    served, key = house.served, keyed("forms")
    code = "effect:forms out:hello hex:ff00 err:oops exit:3"
    first = served.post(code, key, token=house.alice)
    assert (first.status_code, first.json()["result"]["exit_code"]) == (200, 3)
    again = served.post(code, key, token=house.alice)
    later = served.post(code, key | ASYNC, token=house.alice)
    assert (again.status_code, later.status_code) == (200, 200)
    assert first.content == again.content == later.content
    stream = served.post(code, key | EVENTS, token=house.alice)
    (accepted, result) = events_in(stream.content)
    assert accepted[1].items() <= first.json().items()
    assert (accepted[0], result) == ("accepted", ("result", first.json()))
    assert first.content in stream.content
    assert house.stand.labels()["forms"] == 1


def test_another_request_under_a_key_is_a_conflict_and_nothing_of_it_runs(house: House) -> None:
    served, key = house.served, keyed("conflict")
    assert served.post("effect:conflict", key, token=house.alice).status_code == 200
    for code, timeout_ms in (("effect:other", 0), ("effect:conflict", 1000)):
        answer = served.post(code, key, token=house.alice, timeout_ms=timeout_ms)
        assert (answer.status_code, answer.json()["code"]) == (409, "key_conflict")
        assert answer.json()["not_dispatched"] == {"reason": "request"}
        assert answer.headers["plimsoll-not-dispatched"] == "request"
    assert (house.stand.labels()["conflict"], house.stand.labels()["other"]) == (1, 0)


def test_while_a_keys_run_goes_on_a_duplicate_is_told_where_to_look(house: House) -> None:
    served, key = house.served, keyed("unfinished")
    code = "effect:unfinished sleep:600 out:end"
    first = served.post(code, key | ASYNC, token=house.alice)
    run_id = first.json()["id"]
    for more in (NONE, ASYNC, EVENTS):
        answer = served.post(code, {**key, **more}, token=house.alice)
        assert (answer.status_code, answer.json()["id"]) == (202, run_id)
        assert answer.headers["location"] == f"/v1/runs/{run_id}"
        assert (answer.json()["state"], answer.json()["settled"]) == ("starting", False)
        assert "plimsoll-not-dispatched" not in answer.headers
    assert served.get(run_id, wait=10, token=house.alice)["result"]["stdout"] == "end"
    replay = served.post(code, key, token=house.alice)
    assert (replay.status_code, replay.json()["id"]) == (200, run_id)
    assert house.stand.labels()["unfinished"] == 1


def test_a_key_whose_run_may_have_run_says_so_again_and_runs_nothing(house: House) -> None:
    served, key = house.served, keyed("broken")
    answers = [served.post("effect:broken break", key, token=house.alice) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {502}
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert not any("plimsoll-not-dispatched" in answer.headers for answer in answers)
    assert house.stand.labels()["broken"] == 1


def test_a_key_whose_run_was_not_dispatched_is_admitted_again_and_then_once(house: House) -> None:
    served, key = house.served, keyed("again")
    code = "refuse:closed effect:again sleep:50"

    def ask(_: int) -> httpx2.Response:
        return served.post(code, key, token=house.alice)

    house.stand.switch("closed", on=True)
    refused = [ask(0), ask(1)]
    house.stand.switch("closed", on=False)
    assert [answer.json()["not_dispatched"] for answer in refused] == [{"reason": "environment"}] * 2
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(ask, range(40)))
    assert {answer.status_code for answer in answers} <= {200, 202}
    (run_id,) = {answer.json()["id"] for answer in answers}
    old = {answer.json()["run_id"] for answer in refused}
    assert len({*old, run_id}) == 3
    assert {served.get(each, token=house.alice)["state"] for each in old} == {"not_dispatched"}
    assert ask(0).json()["id"] == run_id
    assert house.stand.labels()["again"] == 1


def test_one_key_of_two_callers_is_two_keys(house: House) -> None:
    answers = [
        house.served.post("effect:shared", keyed("shared"), token=token)
        for token in (house.alice, house.bob, house.alice, house.bob)
    ]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [answer.content for answer in answers[:2]] == [answer.content for answer in answers[2:]]
    assert house.stand.labels()["shared"] == 2
    run_id = answers[0].json()["id"]
    assert house.served.http.get(f"/v1/runs/{run_id}", headers=bearer(house.bob)).status_code == 404


def test_a_replay_authenticates_and_authorises_like_a_first_request(house: House) -> None:
    key = keyed("guarded")
    assert house.served.post("effect:guarded", key, token=house.alice).status_code == 200
    asked = [house.served.post("effect:guarded", key, token=token) for token in ("plim_no", house.reader, "")]
    assert [answer.status_code for answer in asked] == [401, 403, 401]
    assert not any("result" in answer.json() for answer in asked)
    assert not any("not_dispatched" in answer.json() for answer in asked), "it ran"
    assert house.stand.labels()["guarded"] == 1


def test_a_key_that_is_no_key_is_refused_and_nothing_runs(house: House) -> None:
    for key in ("", "a b", "x" * 256):
        answer = house.served.post("effect:ill-formed", keyed(key), token=house.alice)
        assert (answer.status_code, answer.json()["not_dispatched"]) == (400, {"reason": "request"})
    assert house.stand.labels()["ill-formed"] == 0


@pytest.mark.parametrize("how", ["keyed", "async"])
def test_without_room_for_its_answer_nothing_runs_and_room_comes_back(stand: Stand, how: str) -> None:
    number = 0

    def ask(served: Served, code: str) -> httpx2.Response:
        nonlocal number
        number += 1
        return served.post(code, keyed(str(number)) if how == "keyed" else ASYNC)

    def refused(answer: httpx2.Response) -> bool:
        if answer.status_code == 429:
            assert answer.json()["not_dispatched"] == {"reason": "capacity"}
            assert int(answer.headers["retry-after"]) > 0
        return answer.status_code == 429

    # One MiB holds one reservation, of the most that two full streams can take as JSON.
    with stand.service(more={"PLIMSOLL_KEPT_CALLER_MB": "1"}) as served:
        first = served.post("sleep:700", ASYNC).json()["id"]
        assert refused(ask(served, "effect:never"))
        assert served.post("effect:unkept").status_code == 200
        assert served.get(first, wait=10)["state"] == "finished"
        for code in ("effect:small out:x", "break", "refuse", "effect:small out:x"):
            answer = ask(served, code)
            assert not refused(answer), code
            run_id = answer.json().get("id") or answer.json()["run_id"]
            assert served.get(run_id, wait=10)["settled"]
        for _ in range(4):  # what is kept takes the bytes it has, until no reservation fits any more
            if refused(answer := ask(served, "fill:65536")):
                break
            if how == "async":
                assert served.get(answer.json()["id"], wait=10)["state"] == "finished"
        else:
            pytest.fail("four full answers were kept in one MiB")
        assert refused(ask(served, "effect:never"))
        stand.check(served.rows())
    assert stand.labels() == {"unkept": 1, "small": 2}
