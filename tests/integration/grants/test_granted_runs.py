"""The whole path of a grant without guests: service, real broker, real API, and a worker that calls for its code."""

import json

from tests.integration.grants.conftest import CANARY, PROFILE, SECRET_NAME, Api, Granted
from tests.integration.service.stand import Json, Served, bearer, json_of


def test_a_permitted_call_reaches_the_api_with_the_credential(granted: Granted, hr: Api) -> None:
    with granted.stand.service() as served:
        granted.profile(hr)
        answer = json_of(granted.run(served, "call:GET=/v1/employees/7 call:GET=/v1/salaries"))
        assert answer["recorded"]
        allowed, refused = answer["result"]["stdout"].splitlines()
        assert json.loads(allowed)["body"] == '{"path": "/v1/employees/7"}'
        assert json.loads(refused)["error"]["code"] == "denied"
        ((method, path, headers),) = hr.seen
        assert (method, path) == ("GET", "/v1/employees/7")
        assert headers["authorization"] == f"Bearer {CANARY}"
        run = served.get(answer["id"], token=granted.caller("reporting"))
        calls = run["calls"]
        assert run["grant_profile"] == "hr-read"
        assert (calls["sent"], calls["delivered"], calls["failed"]) == (1, 1, {"denied": 1})
        (entry,) = calls["entries"]
        assert entry | {"ms": 0} == {
            "route": "GET /v1/employees/*",
            "status": 200,
            "delivered": True,
            "bytes_back": 27,
            "ms": 0,
        }
        (line,) = [each for each in served.running.lines() if each.get("event") == "run"]
        assert (line["grant_profile"], line["calls_sent"], line["calls_denied"]) == ("hr-read", 1, 1)


def shown_to(granted: Granted, served: Served, name: str) -> list[Json]:
    shown: list[Json] = json_of(served.http.get("/v1/grants", headers=bearer(granted.caller(name))))["grants"]
    return shown


def test_a_caller_sees_its_own_profiles_and_no_origin(granted: Granted, hr: Api) -> None:
    with granted.stand.service() as served:
        granted.profile(hr)
        (shown,) = shown_to(granted, served, "reporting")
        assert shown == {
            "name": "hr-read",
            "description": "Reads employees.",
            "routes": ["GET /v1/employees", "GET /v1/employees/*", "POST /v1/notes"],
            "max_calls": 50,
            "catalog": "",
            "preamble": {},
        }
        assert shown_to(granted, served, "another") == []
        described = json_of(served.http.get("/v1/describe", headers=bearer(granted.caller("another"))))
        assert described["grants"] == {"served": True, "broker": "same_user"}


def test_a_caller_that_is_not_there_yet_is_told_when_a_profile_is_applied(
    on_sqlite: Granted, hr: Api
) -> None:
    with on_sqlite.stand.service():
        text = PROFILE.format(name="hr-read", origin=hr.origin, max_calls=5)
        told = "there is no caller reporting yet"
        assert told in on_sqlite.admin("grants", "apply", "-", stdin=text, **{SECRET_NAME: CANARY}).stderr
        on_sqlite.caller("reporting")
        again = on_sqlite.admin("grants", "apply", "-", stdin=text, **{SECRET_NAME: CANARY})
        assert (again.returncode, told in again.stderr) == (0, False)
