"""Three providers at once in the real service: who runs what, and what is said when one is full, gone, or proves less.

The walls are stand-ins (tests/support/tiered_provider.py); tests/integration/docker tries the real ones.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

import plimsoll
from plimsoll.client import errors
from tests.integration.service.stand import http, run_body
from tests.support.runs import alive, children, environment
from tests.support.service import Running, started
from tests.support.service import environment as settings_for

ALL = "docker@runsc,docker,wasm"
SERVE = (sys.executable, "-m", "tests.support.tiered_provider", "serve")


@dataclass
class House:
    """One running service, a plain HTTP client for it, and the folder of its providers' effects and switches."""

    running: Running
    http: httpx2.Client
    folder: Path

    def post(
        self, code: str, floor: str = "", *, kind: str = "javascript", timeout_ms: int = 0
    ) -> httpx2.Response:
        body = run_body(code, timeout_ms) | ({"minimum_isolation": floor} if floor else {})
        body["payload"]["kind"] = kind
        return self.http.post("/v1/runs", json=body)

    def ran(self) -> dict[str, int]:
        """How many programs had an effect, by provider."""
        files = {name: self.folder / name for name in ALL.split(",")}
        return {name: len(file.read_text().split()) for name, file in files.items() if file.exists()}

    def switch(self, entry: str, name: str, text: str = "") -> Path:
        file = self.folder / f"{entry}.{name}"
        file.write_text(text)
        return file

    def provider(self, entry: str) -> dict[str, Any]:
        found = self.http.get("/v1/providers").json()["providers"]
        return next(each for each in found if each["provider"] == entry)

    def reasons(self) -> list[str]:
        found: list[str] = self.http.get("/readyz").json()["reasons"]
        return found

    def until(self, holds: Callable[[], object], seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, self.running.lines()[-5:]
            time.sleep(0.02)

    def pid(self, entry: str) -> int:
        """The process of that provider: they were started in order."""
        name = {each: number for number, each in enumerate(ALL.split(","))}[entry]
        return sorted(children(self.running.process.pid))[name]

    def changes(self, entry: str) -> list[dict[str, Any]]:
        lines = self.running.lines()
        return [line for line in lines if line["event"] == "provider.changed" and line["provider"] == entry]


@contextmanager
def house(folder: Path, *, wait: bool = True, **settings: str) -> Iterator[House]:
    effects = folder / "effects"
    effects.mkdir(exist_ok=True)
    environ = settings_for(
        folder / "data",
        **{"SANDBOX_PROVIDER": ALL, "SANDBOX_EVIDENCE_INTERVAL_S": "1", "PLIMSOLL_INSECURE": "1"} | settings,
        TEST_EFFECTS=str(effects),
    )
    with started(environ, folder / "log", *SERVE, wait=wait) as running, http(running.url) as client:
        yield House(running, client, effects)


def assert_nothing_ran(answer: httpx2.Response, status: int, reason: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.json()["not_dispatched"] == {"reason": reason}
    assert answer.headers["plimsoll-not-dispatched"] == reason


def test_one_client_gets_for_each_floor_the_first_wall_that_meets_it(tmp_path: Path) -> None:
    with house(tmp_path, SANDBOX_PROVIDER="wasm,docker,docker@runsc") as service:
        with plimsoll.Client(service.running.url, "") as client:
            found = {
                floor: client.run_javascript("effect", floor=floor)
                for floor in ("process", "container", "kernel")
            }
            anywhere = client.run_javascript("effect")
            python = client.run_python("effect")
        assert {floor: (run.provider, run.isolation) for floor, run in found.items()} == {
            "process": ("wasm", "process"),
            "container": ("docker", "container"),
            "kernel": ("docker@runsc", "kernel"),
        }
        assert (anywhere.provider, python.provider) == ("wasm", "docker")
        assert service.ran() == {"wasm": 2, "docker": 2, "docker@runsc": 1}


def test_the_order_of_the_list_is_the_order_of_preference(tmp_path: Path) -> None:
    with house(tmp_path) as service:
        for floor in ("", "process", "container", "kernel"):
            told = service.post("effect", floor).json()
            assert (told["provider"], told["isolation"]) == ("docker@runsc", "kernel")
        assert_nothing_ran(service.post("effect", "vm"), 412, "isolation")
        assert service.ran() == {"docker@runsc": 4}


def test_every_provider_is_described_with_its_wall_its_limits_and_what_it_lacks(tmp_path: Path) -> None:
    with house(tmp_path, SANDBOX_DOCKER_CPUS="0.5") as service:
        service.switch("docker@runsc", "tier", "container")
        service.switch("docker@runsc", "shortfall", "gvisor_unproven")
        service.until(lambda: service.provider("docker@runsc")["shortfalls"])
        described = service.http.get("/v1/describe").json()
        assert described["kinds"] == ["javascript", "python"]
        assert described["floors"] == ["process", "container"]
        assert described["limits"]["body_bytes"] == 16 << 20
        shown = {each["provider"]: each for each in described["providers"]}
        assert list(shown) == ALL.split(",")
        assert [each["isolation"] for each in shown.values()] == ["container", "container", "process"]
        assert [each["shortfalls"] for each in shown.values()] == [["gvisor_unproven"], [], []]
        assert [each["slots"] for each in shown.values()] == [2, 2, 21]
        assert [each["resources"]["memory_mb"] for each in shown.values()] == [512, 512, 64]
        assert [each["resources"]["cpus"] for each in shown.values()] == [0.5, 0.5, None]
        assert all(len(each["evidence_sha256"]) == 64 for each in shown.values())
        assert len({each["evidence_sha256"] for each in shown.values()}) == 3
        ready = service.http.get("/readyz")
        assert (ready.status_code, ready.json()["reasons"]) == (200, ["docker@runsc:gvisor_unproven"])
        version = {"connect-protocol-version": "1"}
        path = "/plimsoll.v1.SandboxService/Describe"
        connect = service.http.post(path, json={}, headers=version).json()
        assert (connect["sandbox"], connect["isolation"]) == ("docker@runsc", "container")


def test_the_floor_kernel_without_gvisor_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    effects.mkdir()
    (effects / "docker@runsc.fault").write_text("runtime_missing")
    with house(tmp_path) as service:
        assert service.reasons() == ["docker@runsc:runtime_missing"]
        with (
            plimsoll.Client(service.running.url, "") as client,
            pytest.raises(errors.InsufficientIsolation) as caught,
        ):
            client.run_javascript("effect", floor="kernel")
        assert caught.value.not_dispatched == "isolation"
        assert_nothing_ran(service.post("effect", "kernel", kind="python"), 412, "isolation")
        assert service.ran() == {}
        told = service.post("effect").json()
        assert (told["provider"], told["isolation"]) == ("docker", "container")


def test_a_tier_that_drops_re_routes_the_result_says_so_and_the_log_has_one_line(tmp_path: Path) -> None:
    with house(tmp_path) as service:
        assert service.post("effect").json()["isolation"] == "kernel"
        fault = service.switch("docker@runsc", "fault", "runtime_swapped")
        service.until(lambda: service.provider("docker@runsc")["health"] == "refusing")
        told = service.post("effect").json()
        assert (told["provider"], told["isolation"]) == ("docker", "container")
        assert_nothing_ran(service.post("effect", "kernel"), 412, "isolation")
        assert service.ran() == {"docker@runsc": 1, "docker": 1}
        assert service.reasons() == ["docker@runsc:runtime_swapped"]
        first, drop = service.changes("docker@runsc")
        assert (first["was_health"], first["health"], first["tier"]) == ("starting", "serving", "kernel")
        assert drop["level"] == "warning"
        assert [drop[name] for name in ("was_tier", "tier", "health", "faults")] == [
            "kernel", "none", "refusing", "runtime_swapped",
        ]  # fmt: skip
        fault.unlink()
        service.until(lambda: service.post("effect", "kernel").status_code == 200)


def test_a_killed_provider_is_waited_for_and_nothing_moves_to_a_weaker_wall(tmp_path: Path) -> None:
    with house(tmp_path) as service, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(service.post, "effect begin hang", "kernel")
        service.until(service.ran)
        hold = service.switch("docker@runsc", "hold")
        os.kill(service.pid("docker@runsc"), signal.SIGKILL)
        lost = under_way.result(30)
        assert (lost.status_code, lost.json()["code"]) == (502, "may_have_run")
        assert "not_dispatched" not in lost.json()
        for floor in ("", "process", "container", "kernel"):
            refused = service.post("effect", floor)
            assert_nothing_ran(refused, 503, "environment")
            assert refused.headers["retry-after"]
        assert service.reasons() == ["docker@runsc:away"]
        assert service.ran() == {"docker@runsc": 1}
        hold.unlink()
        service.until(lambda: service.post("effect", "kernel").status_code == 200)
        assert [line["health"] for line in service.changes("docker@runsc")] == ["serving", "away", "serving"]


def test_a_provider_that_dies_again_before_its_first_look_loses_its_place(tmp_path: Path) -> None:
    with house(tmp_path) as service:
        service.switch("docker@runsc", "die")
        service.until(lambda: service.reasons() == ["docker@runsc:away"])
        service.until(lambda: service.post("effect").status_code == 200)
        assert set(service.ran()) == {"docker"}
        assert_nothing_ran(service.post("effect", "kernel"), 503, "environment")


def test_before_the_first_look_of_all_nothing_goes_to_a_weaker_wall_or_is_called_unsupported(
    tmp_path: Path,
) -> None:
    effects = tmp_path / "effects"
    effects.mkdir()
    (effects / "docker@runsc.hold").touch()
    (effects / "docker.hold").touch()
    with house(tmp_path, wait=False) as service:
        service.until(lambda: service.provider("wasm")["health"] == "serving")
        assert service.http.get("/readyz").status_code == 503
        assert service.reasons() == ["docker@runsc:evidence_pending", "docker:evidence_pending"]
        assert_nothing_ran(service.post("effect"), 503, "environment")
        assert_nothing_ran(service.post("effect", "kernel", kind="python"), 503, "environment")
        (effects / "docker@runsc.hold").unlink()
        service.until(lambda: service.post("effect", kind="python").status_code == 200)
        assert service.reasons() == ["docker:evidence_pending"]
        assert set(service.ran()) == {"docker@runsc"}


def test_a_full_provider_is_capacity_though_others_have_room(tmp_path: Path) -> None:
    with house(tmp_path) as service, ThreadPoolExecutor(2) as pool:
        two = [pool.submit(service.post, "effect begin sleep:60000", timeout_ms=60_000) for _ in range(2)]
        service.until(lambda: service.ran().get("docker@runsc") == 2)
        assert {each: service.provider(each)["free"] for each in ALL.split(",")} == {
            "docker@runsc": 0,
            "docker": 2,
            "wasm": 21,
        }
        for floor in ("", "process", "kernel"):
            refused = service.post("effect", floor)
            assert_nothing_ran(refused, 429, "capacity")
            assert refused.headers["retry-after"]
        assert_nothing_ran(service.post("effect", "vm"), 412, "isolation")
        assert service.ran() == {"docker@runsc": 2}
        for run in service.http.get("/v1/runs").json()["runs"]:
            service.http.post(f"/v1/runs/{run['id']}/cancel")
        assert {each.result(30).json()["cancelled"] for each in two} == {True}
        assert service.provider("docker@runsc")["free"] == 2


def test_all_providers_get_their_time_to_clean_up_at_the_same_time(tmp_path: Path) -> None:
    with house(tmp_path, PLIMSOLL_DRAIN_GRACE_S="1") as service, ThreadPoolExecutor(1) as pool:
        for entry in ALL.split(","):
            service.switch(entry, "slow", "2.5")
        endless = pool.submit(service.post, "effect begin sleep:60000", timeout_ms=60_000)
        service.until(service.ran)
        processes = children(service.running.process.pid)
        began = time.monotonic()
        service.running.process.send_signal(signal.SIGTERM)
        assert endless.result(30).json()["cancelled"] is True
        assert service.running.process.wait(30) == 0
        took = time.monotonic() - began
        assert all((service.folder / f"{entry}.closed").exists() for entry in ALL.split(","))
        assert took < 1 + 3 * 2.5, "one after the other"
        assert not any(map(alive, processes))


def test_no_provider_has_an_environment_and_each_docker_one_a_directory_of_its_own(tmp_path: Path) -> None:
    with house(tmp_path) as service:
        found = children(service.running.process.pid)
        assert len(found) == 3
        assert {environment(pid) for pid in found} == {b""}
        state = tmp_path / "data" / "providers"
        assert {each.name: each.stat().st_mode & 0o777 for each in state.iterdir()} == {
            "docker": 0o700,
            "docker-runsc": 0o700,
        }
