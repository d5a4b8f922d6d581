"""Figures 16 and 17: what a guest's call of an API costs beyond the API's own time, on each wall, through the real broker."""

import asyncio
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from app.dispatch.supervisor import ProviderSupervisor, spawn
from app.settings import read_settings
from plimsoll.client.administer import apply_grants
from plimsoll.contract.worker import Health, Lease
from tests.bench import http_figures
from tests.bench.call_servers import BODY
from tests.bench.http_figures import Service
from tests.bench.report import Figure, Report
from tests.bench.sampling import Series
from tests.bench.wire import Connection
from tests.support import docker
from tests.support.runs import follow, job, new_id, reserved, spec
from tests.support.service import DAEMON, ROOT, environment

TIMES_ECHO: Final = 2.0
OVERHEAD_MS: Final = {"runc": 5.0, "runsc": 10.0}
_NAMES: Final = {"wasm": "wasm", "runc": "runc", "runsc": "gVisor"}
_WARM: Final = 20
_PATIENCE_S: Final = 120.0
_PROFILE: Final = """
[bench]
origin = "http://127.0.0.1:{port}"
allow = ["GET /v1/employees/*"]
allowed_callers = ["bench"]
max_calls = 100000
[bench.credential]
type = "static"
env = "BENCH_TOKEN"
"""
# Calls one after the other; the first are not counted. Prints the mean, milliseconds: a guest's clock is coarse.
_CODE: Final = {
    "javascript": """
        for (let n = 0; n < {warm}; n++) await host.get('/v1/employees/7');
        const began = Date.now();
        for (let n = 0; n < {calls}; n++) await host.get('/v1/employees/7');
        console.log((Date.now() - began) / {calls});
    """,
    "python": """
import host, time
for _ in range({warm}): host.get('/v1/employees/7')
began = time.perf_counter()
for _ in range({calls}): host.get('/v1/employees/7')
print(1000 * (time.perf_counter() - began) / {calls})
""",
}


@dataclass(frozen=True, slots=True)
class Effort:
    """How many samples, each the mean of so many calls."""

    rounds: int
    calls: int


FULL = Effort(rounds=8, calls=400)
QUICK = Effort(rounds=2, calls=200)


@dataclass(frozen=True, slots=True)
class Servers:
    """The API's port and the echo's socket."""

    port: int
    echo: str


def figures(report: Report, folder: Path, *, quick: bool = False) -> None:
    """Both; the containers' say why when there is no daemon."""
    effort = QUICK if quick else FULL
    folder.mkdir(parents=True, exist_ok=True)
    with serving() as servers:
        with report.measuring(16, "One call of an API through the broker, from a VM") as figure:
            _of_wasm(figure, servers, folder, effort)
        with report.measuring(17, "One call of an API through the broker, from a container") as figure:
            found, why = docker.available()
            if not found:
                figure.note(f"not measured: {why}")
                return
            # A socket's path has little room.
            with tempfile.TemporaryDirectory(prefix="pd-") as place, docker.daemon(Path(place)) as daemon:
                image = docker.build_image(daemon)
                for runtime in OVERHEAD_MS:
                    with report.attempt(f"figure 17, {_NAMES[runtime]}"):
                        _of_containers(figure, runtime, (daemon, image), servers, folder, effort)


@contextmanager
def serving() -> Iterator[Servers]:
    """Both servers, in their own process."""
    with tempfile.TemporaryDirectory(prefix="bc-") as place:
        echo = f"{place}/echo.sock"
        command = [sys.executable, "-m", "tests.bench.call_servers", echo]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as process:
            assert process.stdout is not None  # it was asked for
            try:
                yield Servers(int(process.stdout.readline()), echo)
            finally:
                process.kill()


def _bare(servers: Servers, calls: int) -> float:
    """The same request to the API itself, on a connection that is kept: milliseconds each."""
    connection = http.client.HTTPConnection("127.0.0.1", servers.port)
    began = 0.0
    for number in range(_WARM + calls):
        if number == _WARM:
            began = time.perf_counter()
        connection.request("GET", "/v1/employees/7")
        if connection.getresponse().read() != BODY:
            raise RuntimeError("the API answered something else")
    spent = 1000 * (time.perf_counter() - began) / calls
    connection.close()
    return spent


def _code(language: str, calls: int) -> str:
    return _CODE[language].replace("{warm}", str(_WARM)).replace("{calls}", str(calls))


# --- from a VM ------------------------------------------------------------------------------------------------------------


def _of_wasm(figure: Figure, servers: Servers, folder: Path, effort: Effort) -> None:
    bare, broker, echo = Series(), Series(), Series()
    with served(folder / "wasm", servers, SANDBOX_PROVIDER="wasm") as service:
        for _ in range(effort.rounds):
            bare.values.append(_bare(servers, effort.calls))
            broker.values.append(_called(service, "javascript", effort.calls))
            echo.values.append(asyncio.run(_echoed(servers, folder, effort.calls)))
    overhead = Series([ours - floor for ours, floor in zip(broker.values, bare.values, strict=True)])
    figure.line("the API, asked directly", bare)
    figure.line("the same bytes to a socket and back, from the VM (echo)", echo)
    figure.line("the API, asked from the VM through the broker", broker)
    figure.line("of that the wall and the broker", overhead)
    ratio = overhead.p50 / echo.p50
    figure.value("wall and broker against the echo, wasm", ratio, at_most=TIMES_ECHO)


async def _echoed(servers: Servers, folder: Path, calls: int) -> float:
    """A provider of its own, whose guest's messages go to the echo."""
    settings = read_settings(environment(folder / "echo", SANDBOX_PROVIDER="wasm"))
    process = spawn("wasm", settings.provider_frame("wasm"))
    async with ProviderSupervisor(process) as supervisor:
        info = await supervisor.wait_first_evidence(timeout_s=60)
        if info is None or info.health is not Health.SERVING:
            raise RuntimeError("the provider does not serve")
        wanted = spec(timeout_ms=60_000)
        lease = Lease(f"unix://{servers.echo}", "bench", new_id())
        what = replace(job(wanted, _code("javascript", calls)), lease=lease)
        seen = await follow(supervisor.worker, await reserved(supervisor.worker, wanted), what)
        return float(seen.stdout)


# --- from a container -----------------------------------------------------------------------------------------------------


def _of_containers(
    figure: Figure,
    runtime: str,
    made: tuple[docker.Daemon, str],
    servers: Servers,
    folder: Path,
    effort: Effort,
) -> None:
    found, why = docker.runsc_available() if runtime == "runsc" else (True, "")
    if not found:
        figure.note(f"not measured under {_NAMES[runtime]}: {why}")
        return
    daemon, image = made
    settings = {
        "SANDBOX_PROVIDER": f"docker@{runtime}",
        **daemon.settings(image),
        "SANDBOX_DOCKER_POOL": "1",
        "SANDBOX_MEMORY_MB": "256",
    }
    with served(folder / runtime, servers, **settings) as service:
        for language in _CODE:
            pairs = [
                (_bare(servers, effort.calls), _called(service, language, effort.calls))
                for _ in range(effort.rounds)
            ]
            where = f"{_NAMES[runtime]}, {language}"
            overhead = Series([ours - floor for floor, ours in pairs])
            figure.line(f"asked through the broker, {where}", Series([ours for _, ours in pairs]))
            figure.line(f"of that the wall and the broker, {where}", overhead)
            figure.value(f"wall and broker, {where}, p50", overhead.p50, "ms", at_most=OVERHEAD_MS[runtime])


# --- a service with a broker ----------------------------------------------------------------------------------------------


@contextmanager
def served(folder: Path, servers: Servers, **settings: str) -> Iterator[Service]:
    """A service with a broker of its own and a profile for the API."""
    with http_figures.served(
        folder,
        SANDBOX_EVIDENCE_INTERVAL_S="3600",  # a look is no part of a call
        PLIMSOLL_BROKER_SAME_USER="1",
        PLIMSOLL_BROKER_ALLOW_PRIVATE="127.0.0.0/8",
        **settings,
    ) as service:
        profiles, secrets = _PROFILE.format(port=servers.port), {"BENCH_TOKEN": "bench-credential-of-nobody"}
        apply_grants(str(DAEMON), service.running.environ, profiles, secrets)
        yield service


def _called(service: Service, language: str, calls: int) -> float:
    """What one run says that a call took, milliseconds."""
    payload = {"kind": language, "code": _code(language, calls), "grant_profile": "bench"}
    with ExitStack() as stack:
        connection: Connection = stack.enter_context(service.connect())
        connection.sock.settimeout(_PATIENCE_S)
        body: Mapping[str, Any] = {"payload": payload, "timeout_ms": 60_000}
        status, answer = connection.ask(service.post(body=json.dumps(body).encode()))
    said = json.loads(answer)
    if status != 200 or said["result"]["exit_code"]:
        raise RuntimeError(f"the service answered {status}: {answer.decode()[:500]}")
    return float(said["result"]["stdout"])
