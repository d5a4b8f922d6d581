"""Grants by the compatible API: the published client runs a snippet that calls, through the real broker, a real API.

A profile is named; a grant itself is nothing that a message can hold.
"""

import json
from collections.abc import Iterator

import pytest

from tests.integration.connect.conftest import Served
from tests.integration.connect.published import javascript, judge
from tests.integration.grants.conftest import BROKER, CANARY, PROFILE, Api, Granted, api
from tests.integration.service.stand import Stand
from tests.support.service import started

pytestmark = [pytest.mark.component("wasm"), pytest.mark.component("published-client")]

CALLS = """
const said = (r) => r.status, failed = (error) => error.code;
for (const path of ["/v1/employees/7", "/v1/salaries"]) console.log(await host.get(path).then(said, failed));
"""
SECRET = "a-secret-of-my-own"
RAW = {"origin": "http://127.0.0.1:1", "allow": ["GET /v1/salaries"], "credential": SECRET}


@pytest.fixture(scope="module")
def hr() -> Iterator[Api]:
    with api() as server:
        yield server


@pytest.fixture(scope="module")
def brokered(hr: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    granted = Granted(
        Stand(tmp_path_factory.mktemp("granted"), settings=BROKER | {"SANDBOX_PROVIDER": "wasm"})
    )
    with started(granted.stand.environ(), granted.stand.folder / "log") as running:
        granted.profile(hr)
        granted.apply(
            PROFILE.format(name="foreign", origin=hr.origin, max_calls=5).replace("reporting", "another")
        )
        yield Served(running, granted.caller("reporting"))


def test_describe_says_that_snippets_can_have_grants(brokered: Served, served: Served) -> None:
    (with_one,) = judge(brokered.url, brokered.token, ("describe", {}))
    (without,) = judge(served.url, served.token, ("describe", {}))
    shown = [
        (each.result["supports_javascript_grants"], each.result["supports_project_grants"])
        for each in (with_one, without)
    ]
    assert shown == [(True, False), (False, False)]


def test_the_published_client_runs_a_snippet_that_calls(brokered: Served, hr: Api) -> None:
    before = len(hr.seen)
    plain, granted = judge(
        brokered.url, brokered.token, javascript(CALLS), javascript(CALLS, grant_profile="hr-read")
    )
    assert (plain.stdout, granted.stdout) == (b"no_grant\nno_grant\n", b"200\ndenied\n")
    # The client has recomputed the digest of the request, with the profile's name in it.
    assert granted.result["record"]["request_sha256"] != plain.result["record"]["request_sha256"]
    ((method, path, headers),) = hr.seen[before:]
    assert (method, path, headers["authorization"]) == ("GET", "/v1/employees/7", f"Bearer {CANARY}")
    kept = brokered.runs()[0]
    assert kept["grant_profile"] == "hr-read"


def test_a_profile_that_is_not_there_or_not_for_this_caller_is_refused_and_marked(
    brokered: Served, hr: Api
) -> None:
    seen, runs = len(hr.seen), brokered.runs()
    refused = judge(
        brokered.url,
        brokered.token,
        *(javascript(CALLS, grant_profile=name) for name in ("no-such", "foreign")),
    )
    for each in refused:
        assert (each.error["code"], each.error["not_dispatched"]) == ("permission_denied", "permission")
        assert not each.error["answer_not_bound"]
    assert len({each.error["message"] for each in refused}) == 1
    assert (len(hr.seen), brokered.runs()) == (seen, runs)


@pytest.mark.parametrize(
    "javascript_message",
    [
        {"grant": RAW},
        {"grant": RAW, "grantProfile": "hr-read"},
        {"grantProfile": RAW},
        {"grantProfile": ["hr-read"]},
        {"grantProfile": json.dumps(RAW)},
        {"grantProfile": "hr-read", "allow": ["GET /v1/salaries"]},
    ],
    ids=json.dumps,
)
def test_a_grant_itself_is_no_part_of_a_message(
    brokered: Served, hr: Api, javascript_message: dict[str, object]
) -> None:
    seen, runs = len(hr.seen), brokered.runs()
    body = {"protocol": 4, "javascript": {"code": CALLS} | javascript_message}
    answer = brokered.call("Run", json.dumps(body))
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "invalid_argument"), problem
    assert answer.headers["plimsoll-not-dispatched"] == "request"
    assert SECRET not in answer.text
    assert (len(hr.seen), brokered.runs()) == (seen, runs)
