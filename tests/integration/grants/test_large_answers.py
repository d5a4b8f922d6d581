"""What the largest answers, asked for by programs that do not read them, make the service's processes hold."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from plimsoll.contract.grants import BACK_BYTES
from tests.integration.grants.conftest import Api, Granted, broker_pid, processes_of
from tests.integration.service.stand import bearer, http
from tests.support import mix
from tests.support.docker import Daemon
from tests.support.service import started

pytestmark = [pytest.mark.timeout(300), pytest.mark.component("docker")]

MIB = 1 << 20
RUNS = 4
# Two bytes each, and six as JSON: no body makes a longer message.
LARGEST = "é".encode() * (BACK_BYTES // 2)
MOST_OF_ONE = 80 * MIB
"""Of the broker and of the provider, for each run: a few answers of 12 MiB, where 16 may be under way."""

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
_READ = """
import concurrent.futures, host
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    answers = list(pool.map(lambda _: len(host.get("/v1/employees").body), range(24)))
print(set(answers), len(answers))
"""


@contextmanager
def growth(pids: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The most bytes that each process held during the block beyond what it held before; complete after it."""
    before = {name: _resident(pid) for name, pid in pids.items()}
    found = dict.fromkeys(pids, 0)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            for name, pid in pids.items():
                found[name] = max(found[name], _resident(pid) - before[name])

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield found
        finally:
            over.set()
            watching.result()


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_runs_that_ask_for_the_largest_answers_cost_the_service_little_and_lose_none(
    on_sqlite: Granted, hr: Api, docker: Daemon, image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hr.answers["/v1/employees"] = lambda _: (200, {"content-type": "text/plain; charset=utf-8"}, LARGEST)
    on_sqlite.stand.settings |= docker.settings(image) | {
        "SANDBOX_PROVIDER": "docker",
        "SANDBOX_DOCKER_POOL": "1",
        "SANDBOX_MEMORY_MB": "1024",
        "SANDBOX_TOTAL_MEMORY_MB": "8192",
        "SANDBOX_EVIDENCE_INTERVAL_S": "3600",
    }
    environ = on_sqlite.stand.environ()
    with (
        started(environ, on_sqlite.stand.folder / "log", start_s=240) as running,
        http(running.url, 240) as client,
    ):
        on_sqlite.profile(hr, max_calls=1_000)
        token = on_sqlite.caller("reporting")
        service = running.process.pid
        broker = broker_pid(service)
        (provider,) = [
            pid for pid, words in processes_of(service).items() if "--fd" in words and pid != broker
        ]

        def run(code: str) -> str:
            payload = {"kind": "python", "code": code, "grant_profile": "hr-read"}
            answer = mix.ask(client, {"payload": payload, "timeout_ms": 60_000}, bearer(token))
            return str(answer["result"]["stdout"])

        with growth({"broker": broker, "provider": provider}) as found, ThreadPoolExecutor(RUNS) as pool:
            unread = list(pool.map(run, [_UNREAD] * RUNS))
        with capsys.disabled():
            print({name: f"{held / MIB / RUNS:.0f} MiB a run" for name, held in found.items()})
        assert unread == ["through\n"] * RUNS
        assert len(hr.seen) >= RUNS  # it did ask
        assert max(found.values()) <= RUNS * MOST_OF_ONE
        assert run(_READ) == f"{{{BACK_BYTES // 2}}} 24\n"
