"""What the largest answers, asked for by programs that do not read them, make the service's processes hold."""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from plimsoll.contract.grants import BACK_BYTES
from plimsoll.contract.results import EXIT_DEADLINE, EXIT_FLOOD
from tests.integration.grants.conftest import BROKER, Granted, api, broker_pid, processes_of
from tests.integration.service.stand import Stand, bearer, http
from tests.support import mix
from tests.support.docker import Daemon
from tests.support.runs import rss_mb
from tests.support.service import started

pytestmark = [pytest.mark.timeout(300), pytest.mark.component("docker")]

RUNS = 4
# Two bytes each, and six as JSON: no body makes a longer message.
LARGEST = "é".encode() * (BACK_BYTES // 2)
MOST_OF_ONE = 80
"""MiB, of the broker and of the provider, for each run: a few answers of 12 MiB, where 16 may be under way."""

_UNREAD = """
import json, socket, time
message = json.dumps({"method": "GET", "path": "/v1/employees", "headers": {}}).encode()
asking = []
for _ in range(64):
    channel = socket.socket(socket.AF_UNIX)
    channel.connect("/dev/shm/plimsoll-calls")
    channel.settimeout(0)
    try:
        channel.send(len(message).to_bytes(4, "big") + message)
    except OSError:
        pass
    asking.append(channel)
time.sleep(6)
print("through")
"""
# Its answers wait for room on the way to it when it is stopped: by its own flood, or by its deadline.
_STOPPED = """
import os, threading, host
def ask():
    while True:
        try: host.get("/v1/employees")
        except host.HostError: pass
for _ in range(16): threading.Thread(target=ask, daemon=True).start()
for _ in range(6):
    if os.fork() == 0:
        while True: pass
import time
time.sleep(1)
while FLOODS: os.write(1, b"x" * 65536)
time.sleep(60)
"""
# Each answer is small enough to be handed on at once.
_BUSY = """
import concurrent.futures, host, os
for _ in range(8):
    if os.fork() == 0:
        while True: pass
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print(sum(pool.map(lambda _: len(host.get("/v1/employees/60").body), range(300))), flush=True)
os._exit(0)
"""
_READ = """
import concurrent.futures, host
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    answers = list(pool.map(lambda _: len(host.get("/v1/employees").body), range(24)))
print(set(answers), len(answers))
"""


@contextmanager
def growth(pids: Mapping[str, int]) -> Iterator[dict[str, float]]:
    """The most MiB that each process held during the block beyond what it held before; complete after it."""
    before = {name: rss_mb(pid) for name, pid in pids.items()}
    found = dict.fromkeys(pids, 0.0)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            for name, pid in pids.items():
                found[name] = max(found[name], rss_mb(pid) - before[name])

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield found
        finally:
            over.set()
            watching.result()


@dataclass
class Served:
    """A service over containers, with a grant for an API of the largest answers."""

    client: httpx2.Client
    token: str
    pids: Mapping[str, int]

    def run(self, code: str, timeout_ms: int = 60_000) -> dict[str, Any]:
        payload = {"kind": "python", "code": code, "grant_profile": "hr-read"}
        body = {"payload": payload, "timeout_ms": timeout_ms}
        result: dict[str, Any] = mix.ask(self.client, body, bearer(self.token))["result"]
        return result

    def free(self) -> tuple[int, int]:
        (found,) = self.client.get("/v1/providers", headers=bearer(self.token)).json()["providers"]
        return found["free"], found["slots"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, docker: Daemon, image: str) -> Iterator[Served]:
    settings = (
        BROKER
        | docker.settings(image)
        | {
            "SANDBOX_PROVIDER": "docker",
            "SANDBOX_DOCKER_POOL": "1",
            "SANDBOX_MEMORY_MB": "1024",
            "SANDBOX_TOTAL_MEMORY_MB": "8192",
            "SANDBOX_EVIDENCE_INTERVAL_S": "3600",
        }
    )
    stand = Stand(tmp_path_factory.mktemp("large"), "", settings)
    with (
        api() as hr,
        started(stand.environ(), stand.folder / "log", start_s=240) as running,
        http(running.url, 240) as client,
    ):
        plain = {"content-type": "text/plain; charset=utf-8"}
        hr.answers["/v1/employees"] = lambda _: (200, plain, LARGEST)
        hr.answers["/v1/employees/60"] = lambda _: (200, plain, b"x" * (60 << 10))
        granted = Granted(stand)
        granted.profile(hr, max_calls=100_000)
        broker = broker_pid(running.process.pid)
        below = processes_of(running.process.pid).items()
        (provider,) = [pid for pid, words in below if "--fd" in words and pid != broker]
        yield Served(client, granted.caller("reporting"), {"broker": broker, "provider": provider})


def test_runs_that_ask_for_the_largest_answers_cost_the_service_little_and_lose_none(
    service: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    with growth(service.pids) as found, ThreadPoolExecutor(RUNS) as pool:
        unread = list(pool.map(service.run, [_UNREAD] * RUNS))
    with capsys.disabled():
        print({name: f"{held / RUNS:.0f} MiB a run" for name, held in found.items()})
    assert [each["stdout"] for each in unread] == ["through\n"] * RUNS
    assert max(found.values()) <= RUNS * MOST_OF_ONE
    assert service.run(_READ)["stdout"] == f"{{{BACK_BYTES // 2}}} 24\n"


@pytest.mark.parametrize(("floods", "exit_code"), [(True, EXIT_FLOOD), (False, EXIT_DEADLINE)])
def test_a_run_that_is_stopped_while_its_answers_wait_gets_its_end_and_gives_its_slot_back(
    service: Served, floods: object, exit_code: int
) -> None:
    code = _STOPPED.replace("FLOODS", repr(floods))
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: service.run(code, 4_000), range(4)))
    assert [each["exit_code"] for each in results] == [exit_code] * 4
    end = time.monotonic() + 30
    while len(set(free := service.free())) > 1:
        assert time.monotonic() < end, free
        time.sleep(0.1)


def test_sixteen_calls_at_once_beside_busy_processes_are_all_answered(service: Served) -> None:
    result = service.run(_BUSY)
    assert (result["exit_code"], result["stdout"]) == (0, f"{300 * (60 << 10)}\n"), result
