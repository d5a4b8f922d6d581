"""The broker's process by itself: who may ask it, how much at once, what it shows; as one user and as two (S26)."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from app.dispatch.broker import BrokerSupervisor, User
from broker.jose import decode
from plimsoll.contract.profiles import CredentialTerms, CredentialType, Profile
from tests.integration.grants.conftest import CANARY, Api, api
from tests.support.broker_client import request
from tests.support.broker_place import Place, placed, serving
from tests.unit.broker.test_jose import ED, PUBLISHED, pem

NOBODY = 65534
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def place() -> Iterator[Place]:
    with placed() as found:
        yield found


def static(hr: Api, max_calls: int = 50) -> Profile:
    terms = CredentialTerms(CredentialType.STATIC)
    return Profile("hr-read", hr.origin, ("GET /v1/employees/*",), ("reporting",), terms, max_calls)


async def many(
    place: Place, secret: str, paths: Sequence[str], at_once: int, run_id: str = "a" * 32
) -> Counter[str]:
    """What became of so many calls."""
    found: Counter[str] = Counter()
    limits = httpx2.Limits(max_connections=at_once)
    transport = httpx2.AsyncHTTPTransport(uds=str(place.path), limits=limits, verify=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://broker", timeout=100) as client:

        async def one(path: str) -> None:
            body = json.dumps({"method": "GET", "path": path}).encode()
            answer = await client.post("/v1/calls", content=body, headers=place.worker(secret, run_id))
            said = answer.json()
            found[said["error"]["code"] if "error" in said else str(said["status"])] += 1

        await asyncio.gather(*map(one, paths))
    return found


@pytest.mark.slow
async def test_a_budget_is_kept_exactly_by_a_thousand_calls_at_once(place: Place, hr: Api) -> None:
    async with serving(place) as (link, _):
        given = await link.register(place.registration(static(hr, max_calls=100), CANARY.encode()))
        found = await many(place, given.secret, [f"/v1/employees/{n}" for n in range(1_000)], at_once=100)
        trace = (await link.close("a" * 32)).trace
    assert found == {"200": 100, "budget": 900}
    assert len(hr.seen) == 100
    assert trace is not None
    assert (trace.sent, trace.delivered, trace.failed) == (100, 100, {"budget": 900})


@pytest.mark.slow
async def test_64_runs_of_50_calls_at_once_lose_nothing_and_count_exactly(place: Place, hr: Api) -> None:
    ids = [f"{number:032x}" for number in range(64)]
    async with serving(place) as (link, _):
        asked = [place.registration(static(hr), CANARY.encode(), run_id) for run_id in ids]
        given = [await link.register(each) for each in asked]
        runs = zip(given, ids, strict=True)
        found = await asyncio.gather(
            *(many(place, each.secret, ["/v1/employees/1"] * 50, 50, run_id) for each, run_id in runs)
        )
        traces = [(await link.close(run_id)).trace for run_id in ids]
    assert found == [{"200": 50}] * 64
    assert [(trace.sent, trace.delivered) for trace in traces if trace] == [(50, 50)] * 64
    assert len(hr.seen) == 3_200


async def test_the_calls_of_one_run_do_not_take_every_place(place: Place, hr: Api) -> None:
    """More at once than one run may have are shed, and another run is served meanwhile."""
    async with serving(place) as (link, _):
        greedy = await link.register(place.registration(static(hr, 1_000), CANARY.encode()))
        other = await link.register(place.registration(static(hr), CANARY.encode(), "b" * 32))
        both = await asyncio.gather(
            many(place, greedy.secret, ["/v1/employees/1"] * 600, at_once=600),
            many(place, other.secret, ["/v1/employees/2"] * 20, at_once=1, run_id="b" * 32),
        )
    assert both[1] == {"200": 20}
    assert both[0]["200"] + both[0]["shed"] == 600
    assert both[0]["200"] >= 256


@pytest.mark.slow
async def test_a_caller_with_many_slow_calls_leaves_places_for_the_next(place: Place, hr: Api) -> None:
    """17 runs with 16 calls each are more than there are places; another caller's calls to another API have theirs at once.

    Counted, not timed: of the slow calls no more were ever under way than one caller may have.
    """
    ids = [f"{number:032x}" for number in range(17)]
    hold = hr.holds["/v1/employees/held"] = threading.Event()
    with api() as other_api:
        async with serving(place) as (link, _):
            slow = [
                await link.register(place.registration(static(hr), CANARY.encode(), run_id)) for run_id in ids
            ]
            asked = place.registration(static(other_api), CANARY.encode(), "b" * 32)
            other = await link.register(replace(asked, caller_id="caller-8"))
            greedy = [
                asyncio.create_task(many(place, each.secret, ["/v1/employees/held"] * 16, 16, run_id))
                for each, run_id in zip(slow, ids, strict=True)
            ]
            async with asyncio.timeout(60):
                while len(hr.seen) < 128:
                    await asyncio.sleep(0.02)
            found = await many(place, other.secret, ["/v1/employees/1"] * 40, at_once=1, run_id="b" * 32)
            under_way = len(hr.seen)
            hold.set()
            answered = await asyncio.gather(*greedy)
    assert found == {"200": 40}
    assert under_way < 256
    assert sum(each.total() for each in answered) == 17 * 16


async def test_a_message_that_is_too_long_is_answered_in_a_message(place: Place, hr: Api) -> None:
    async with serving(place) as (link, _):
        given = await link.register(place.registration(static(hr), CANARY.encode()))
        long = b"x" * ((2 << 20) + 1)
        status, said = await asyncio.to_thread(
            request, place.url, "POST", "/v1/calls", long, place.worker(given.secret)
        )
        trace = (await link.close("a" * 32)).trace
    assert (status, json.loads(said)["error"]["code"]) == (200, "too_large")
    assert trace is not None
    assert trace.failed == {"too_large": 1}


async def test_nobody_without_the_control_secret_registers_or_closes(place: Place, hr: Api) -> None:
    async with serving(place) as (link, _):
        given = await link.register(place.registration(static(hr), CANARY.encode()))
        for secret in (given.secret, "", place.control[:-1], place.control + "x"):
            headers = {"authorization": f"Bearer {secret}"}
            for path in ("/v1/leases", f"/v1/leases/{'a' * 32}/close"):
                assert await asyncio.to_thread(request, place.url, "POST", path, b"{}", headers) == (403, b"")
        ours = {"authorization": f"Bearer {place.control}"}
        assert (await asyncio.to_thread(request, place.url, "POST", "/v1/leases", b"{}", ours))[0] == 422
        assert (await asyncio.to_thread(request, place.url, "GET", "/v1/leases", b"", ours))[0] == 404
        assert (
            await link.register(place.registration(static(hr), CANARY.encode()))
        ).fault == "run_has_a_lease"
        assert (await link.close("a" * 32)).trace is not None
        assert (await link.close("a" * 32)).trace is None


async def test_a_token_names_the_key_that_the_service_publishes(place: Place, hr: Api) -> None:
    terms = CredentialTerms(CredentialType.JWT, "hr", issuer="plimsoll", algorithm="EdDSA")
    profile = Profile("hr-jwt", hr.origin, ("GET /v1/employees/*",), ("reporting",), terms)
    async with serving(place) as (link, _):
        given = await link.register(place.registration(profile, pem(ED)))
        assert (await many(place, given.secret, ["/v1/employees/1"], 1)) == {"200": 1}
    token = hr.seen[0][2]["authorization"].removeprefix("Bearer ")
    head = json.loads(decode(token.split(".")[0]))
    assert (head["alg"], head["kid"]) == ("EdDSA", PUBLISHED["EdDSA"]["kid"])


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"key": "/nowhere/private"}, "/nowhere/private: No such file or directory"),
        ({"networks": "8.8.8.0/24"}, "networks, listeners or peers: '8.8.8.0/24' must lie in a loopback"),
        ({"ca_file": "/dev/null"}, "/dev/null: must hold certificates"),
        ({"minters": "/nowhere/minters.toml"}, "/nowhere/minters.toml: No such file or directory"),
        ({"surprise": "1"}, "surprise: is no setting of the broker"),
        ({"control": "short"}, "control_file: must hold a secret of at least 32 characters"),
    ],
)
async def test_a_faulty_broker_says_what_is_wrong_and_serves_nothing(
    place: Place, caplog: pytest.LogCaptureFixture, more: dict[str, object], fault: str
) -> None:
    async with BrokerSupervisor(place.spawn(**more)) as broker:
        async with asyncio.timeout(60):
            while not broker.told:
                await asyncio.sleep(0.02)
        assert not broker.serving.is_set()
    (record, *_) = [each for each in caplog.records if each.msg == "broker.faulty"]
    assert fault in vars(record)["plimsoll_fields"]["fault"]


LOOK = """
import ctypes, json, os, sys
os.setgid({gid}); os.setuid({uid})
pid, key = int(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
def opened(path):
    try:
        with open(path, "rb") as file:
            return len(file.read(4096)) > 0
    except OSError:
        return False
pidfd = os.pidfd_open(pid)
found = {{
    "key": opened(key),
    "environ": opened(f"/proc/{{pid}}/environ"),
    "mem": opened(f"/proc/{{pid}}/mem"),
    "maps": opened(f"/proc/{{pid}}/maps"),
    "ptrace": libc.ptrace(16, pid, 0, 0) == 0,
    "pidfd_getfd": libc.syscall(438, pidfd, 0, 0) >= 0,
}}
print(json.dumps(found))
"""


def looked(uid: int, pid: int, key: Path) -> dict[str, bool]:
    """What a process of this uid gets of the broker."""
    command = [sys.executable, "-I", "-c", LOOK.format(uid=uid, gid=uid), str(pid), str(key)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, bool] = json.loads(done.stdout)
    return found


@ROOT
async def test_as_two_users_neither_key_nor_memory_is_within_reach_of_the_services_user(hr: Api) -> None:
    """The broker is `nobody`; another unprivileged user, as the service would be, gets nothing, and root serves it."""
    with placed(User(NOBODY, NOBODY)) as place:
        async with serving(place) as (link, broker):
            status = await asyncio.to_thread(Path(f"/proc/{broker.pid}/status").read_text)
            assert f"Uid:\t{NOBODY}\t{NOBODY}" in status
            assert "Groups:\t \n" in status
            assert "NoNewPrivs:\t1" in status
            found = await asyncio.to_thread(looked, 65533, broker.pid, place.private)
            assert found == dict.fromkeys(found, False)
            given = await link.register(place.registration(static(hr), CANARY.encode()))
            assert (await many(place, given.secret, ["/v1/employees/1"], 1)) == {"200": 1}


@ROOT
async def test_as_one_user_its_memory_is_out_of_reach_and_its_key_is_not(tmp_path: Path) -> None:
    """What PLIMSOLL_BROKER_SAME_USER gives up is exactly the key file."""
    user = User(NOBODY, NOBODY)
    with placed(user) as place:
        async with serving(place) as (_, broker):
            found = await asyncio.to_thread(looked, NOBODY, broker.pid, place.private)
    assert found == dict.fromkeys(found, False) | {"key": True}


@ROOT
async def test_a_broker_takes_no_connection_of_another_user(hr: Api) -> None:
    ask = (
        "import os,socket,sys; os.setgid(65533); os.setuid(65533); s=socket.socket(socket.AF_UNIX);"
        "s.settimeout(20); s.connect(sys.argv[1])\n"
        "try:\n s.sendall(b'GET /v1/health HTTP/1.1\\r\\nHost: b\\r\\n\\r\\n'); data=s.recv(100)\n"
        "except OSError: data=b''\n"
        "print(data)"
    )
    with placed() as place:
        # The file system lets it through: only the broker's own check is left to refuse.
        place.path.parent.chmod(0o755)
        place.path.chmod(0o666)
        async with serving(place) as (link, _):
            command = [sys.executable, "-I", "-c", ask, str(place.path)]
            said = await asyncio.to_thread(subprocess.check_output, command, timeout=60)
            assert said == b"b''\n"
            assert await link.answers()
