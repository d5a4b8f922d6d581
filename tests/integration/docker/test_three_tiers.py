"""The real service over real walls, three tiers at once: what one unchanged client gets, and what it hears when walls go."""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import plimsoll
from plimsoll.client import errors
from tests.integration.service.stand import EVENTS, events_in, http
from tests.support.docker import Daemon
from tests.support.runs import children, descriptors, environment, family
from tests.support.service import Running, started
from tests.support.service import environment as settings_for

pytestmark = [
    pytest.mark.component("docker"),
    pytest.mark.component("runsc"),
    pytest.mark.component("wasm"),
    pytest.mark.timeout(400),
]

START_S = 180.0
FLOORS = ("process", "container", "kernel")
MARK = "console.log('ran')"
LINGER = "import time; print('ran', flush=True); time.sleep(60)"


@contextmanager
def service(folder: Path, docker: Daemon, providers: str, **settings: str) -> Iterator[Running]:
    environ = settings_for(
        folder / "data",
        SANDBOX_PROVIDER=providers,
        SANDBOX_DOCKER_HOST=docker.host,
        SANDBOX_MEMORY_MB="256",
        SANDBOX_EVIDENCE_INTERVAL_S="5",
        PLIMSOLL_INSECURE="1",
        **settings,
    )
    with started(environ, folder / "log", start_s=START_S) as running:
        yield running


def until(holds: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def ours(docker: Daemon, others: Collection[str] = ()) -> list[str]:
    """The containers there are, but for those that other tests left to the daemon's end."""
    return [each["Id"] for each in docker.call("GET", "/containers/json?all=1") if each["Id"] not in others]


def shown(client: httpx2.Client) -> dict[str, Any]:
    return {each["provider"]: each for each in client.get("/v1/providers").json()["providers"]}


def bodies(code: str, *floors: str, kind: str = "javascript") -> Iterator[dict[str, Any]]:
    for floor in floors:
        yield {
            "payload": {"kind": kind, "code": code},
            "timeout_ms": 60_000,
            **({"minimum_isolation": floor} if floor else {}),
        }


@contextmanager
def running_now(client: httpx2.Client, code: str, floor: str) -> Iterator[Iterator[bytes]]:
    """The rest of the stream of a Python program that has printed something."""
    (body,) = bodies(code, floor, kind="python")
    with client.stream("POST", "/v1/runs", json=body, headers=EVENTS) as answer:
        assert answer.status_code == 200, answer.read()
        came, rest = b"", answer.iter_bytes()
        while b"event: stdout" not in came or not came.endswith(b"\n\n"):
            came += next(rest)
        yield rest


def assert_refused(answer: httpx2.Response, status: int, reason: str) -> None:
    assert (answer.status_code, answer.headers.get("plimsoll-not-dispatched")) == (status, reason), (
        answer.text
    )
    assert answer.json()["not_dispatched"] == {"reason": reason}


def test_one_unchanged_client_gets_the_wall_that_it_asks_for(
    docker: Daemon, image: str, tmp_path: Path
) -> None:
    providers = "wasm,docker,docker@runsc"
    with service(tmp_path, docker, providers, SANDBOX_DOCKER_IMAGE=image) as running:
        with plimsoll.Client(running.url, "") as client:
            found = {floor: client.run_javascript(MARK, floor=floor) for floor in FLOORS}
            python = client.run_python("print('ran')", floor="kernel")
        assert {floor: (run.provider, run.isolation, run.text) for floor, run in found.items()} == {
            "process": ("wasm", "process", "ran\n"),
            "container": ("docker", "container", "ran\n"),
            "kernel": ("docker@runsc", "kernel", "ran\n"),
        }
        assert (python.provider, python.isolation, python.text) == ("docker@runsc", "kernel", "ran\n")
        assert len({run.evidence_sha256 for run in found.values()}) == 3
        with http(running.url) as plain:
            for run in (*found.values(), python):
                evidence = plain.get(f"/v1/evidence/{run.evidence_sha256}").json()
                assert (evidence["provider"], evidence["tier"]) == (run.provider, run.isolation)
            described = plain.get("/v1/describe").json()
            assert described["floors"] == list(FLOORS)
            assert described["kinds"] == ["javascript", "project", "python"]
            limits = [each["resources"] for each in described["providers"]]
            assert [each["cpus"] for each in limits] == [None, 1.0, 1.0]
            assert [each["pids"] for each in limits] == [None, 128, 128]
            assert [each["disk_mb"] for each in limits] == [None, 64, 64]
            assert plain.get("/readyz").json() == {"status": "ready", "reasons": []}


def test_the_providers_inherit_nothing_and_everything_ends_with_the_service(
    docker: Daemon, image: str, tmp_path: Path
) -> None:
    others = ours(docker)
    with service(tmp_path, docker, "docker,docker@runsc", SANDBOX_DOCKER_IMAGE=image) as running:
        processes = children(running.process.pid)
        assert {environment(pid) for pid in processes} == {b""}
        canary = str(tmp_path / "data" / "plimsoll.db")
        assert not [
            name for pid in processes for name in descriptors(pid).values() if name.startswith(canary)
        ]
        until(lambda: len(ours(docker, others)) >= 2)  # some wait already
        everybody = family(running.process.pid)
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0
        assert time.monotonic() - began < 25
        until(lambda: not ours(docker, others))
    assert not [pid for pid in everybody if Path(f"/proc/{pid}").exists()]


def test_the_floor_kernel_without_gvisor_is_refused_and_nothing_runs(
    docker: Daemon, image: str, tmp_path: Path
) -> None:
    providers = "docker@absent,docker,wasm"
    with (
        service(tmp_path, docker, providers, SANDBOX_DOCKER_IMAGE=image) as running,
        plimsoll.Client(running.url, "") as client,
    ):
        with pytest.raises(errors.InsufficientIsolation) as caught:
            client.run_python("print('ran')", floor="kernel")
        assert caught.value.not_dispatched == "isolation"
        assert client.runs().runs == []
        anywhere = client.run_javascript(MARK)
        assert (anywhere.provider, anywhere.isolation) == ("docker", "container")
        with http(running.url) as plain:
            reasons = plain.get("/readyz").json()["reasons"]
            assert [each for each in reasons if each.startswith("docker@absent:")] == reasons != []


def test_when_the_daemon_is_killed_floors_are_refused_and_what_ran_may_have_run(
    docker: Daemon, image: str, tmp_path: Path
) -> None:
    providers = "docker@runsc,docker,wasm"
    with (
        service(tmp_path, docker, providers, SANDBOX_DOCKER_IMAGE=image) as running,
        http(running.url, 90) as client,
        running_now(client, LINGER, "kernel") as events,
    ):
        docker.kill()
        try:
            until(
                lambda: {shown(client)[each]["isolation"] for each in ("docker@runsc", "docker")} == {"none"}
            )
            for body in bodies(MARK, "container", "kernel"):
                assert_refused(client.post("/v1/runs", json=body), 412, "isolation")
            (anywhere,) = bodies(MARK, "")
            told = client.post("/v1/runs", json=anywhere).json()
            assert (told["provider"], told["isolation"]) == ("wasm", "process")
            ((name, end),) = [each for each in events_in(b"".join(events)) if each[0] != "stdout"]
            assert (name, end["code"]) == ("error", "may_have_run")
            assert "not_dispatched" not in end
        finally:
            docker.start_again()
        (kernel,) = bodies(MARK, "kernel")
        until(lambda: client.post("/v1/runs", json=kernel).status_code == 200)


def test_a_killed_provider_is_waited_for_and_nothing_moves_to_a_weaker_wall(
    docker: Daemon, image: str, tmp_path: Path
) -> None:
    providers = "docker@runsc,docker,wasm"
    with (
        service(tmp_path, docker, providers, SANDBOX_DOCKER_IMAGE=image) as running,
        http(running.url, 90) as client,
    ):
        os.kill(min(children(running.process.pid)), signal.SIGKILL)
        until(lambda: client.get("/readyz").json()["reasons"] == ["docker@runsc:away"], 10)
        for body in bodies(MARK, "", *FLOORS):
            assert_refused(client.post("/v1/runs", json=body), 503, "environment")
        seen = set()

        def back() -> bool:
            (body,) = bodies(MARK, "")
            answer = client.post("/v1/runs", json=body)
            seen.add(answer.json().get("isolation", "refused"))
            return answer.status_code == 200

        until(back)
        assert seen == {"refused", "kernel"}


def test_a_private_service_takes_several_providers_and_leaves_no_container(
    docker: Daemon, image: str
) -> None:
    others = ours(docker)
    with plimsoll.local("docker@runsc,wasm", settings=docker.settings(image)) as sandbox:
        run = sandbox.run_python("print('ran')", floor="kernel")
        assert (run.provider, run.text) == ("docker@runsc", "ran\n")
        assert [each.provider for each in sandbox.describe().providers] == ["docker@runsc", "wasm"]
    until(lambda: not ours(docker, others))  # what was going when the service ended goes by itself
