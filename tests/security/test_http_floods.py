"""Strangers who hold connections or send nonsense do not take the service from an honest caller (S6).

Real processes: a listener with its real limits, attackers, and here the honest caller. Figures are printed.
"""

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.http.wire import RUN, TOKEN, connect, head, with_body
from tests.support.service import environment, make_caller, started

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = 600
NOISE_S = 0.002
"""What a scheduler of a shared machine adds to the slowest of a hundred by itself."""


@contextlib.contextmanager
def process(*arguments: str, stderr: Path | None = None) -> Iterator[str]:
    """A program that prints one line once it is up."""
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(stderr.open("wb")) if stderr else None
        command = [sys.executable, "-m", *arguments]
        started = stack.enter_context(
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
        )
        stack.callback(started.terminate)
        assert started.stdout is not None
        yield started.stdout.readline().strip()


@dataclass
class Server:
    port: int
    log: Path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with process("tests.integration.http.server", stderr=tmp_path / "log") as port:
        yield Server(int(port), tmp_path / "log")


def p99(port: int, samples: int = SAMPLES, token: str = TOKEN) -> float:
    """Of runs asked for one after the other, every tenth over a new connection."""
    times = []
    wire = connect(("127.0.0.1", port))
    for number in range(samples):
        if number % 10 == 0:
            wire.close()
            wire = connect(("127.0.0.1", port))
        started = time.perf_counter()
        assert wire.send(with_body(RUN, token=token)).answer().status == 200
        times.append(time.perf_counter() - started)
        time.sleep(0.002)
    wire.close()
    return statistics.quantiles(times, n=100)[98]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "connections"), [("slow", 2000), ("headers", 25), ("tokens", 20)])
def test_an_honest_callers_p99_stays_within_5x(server: Server, kind: str, connections: int) -> None:
    unloaded = p99(server.port)
    with process("tests.integration.http.attacker", kind, str(server.port), str(connections)) as up:
        assert up == "up"
        loaded = p99(server.port)
    print(f"{kind}: p99 {unloaded * 1e3:.2f} ms unloaded, {loaded * 1e3:.2f} ms loaded")
    assert loaded < 5 * max(unloaded, NOISE_S)
    assert "unhandled" not in server.log.read_text()


@pytest.mark.slow
@pytest.mark.component("wasm")
def test_250_connections_of_a_stranger_slow_no_caller_of_the_real_service(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data", SANDBOX_PROVIDER="wasm", SANDBOX_RATE_PER_MIN="0")
    token = make_caller(environ, "honest")
    with started(environ, tmp_path / "log") as running:
        port = int(running.url.rpartition(":")[2])
        unloaded = p99(port, token=token)
        with process("tests.integration.http.attacker", "hammer", str(port), "250") as up:
            assert up == "up"
            loaded = p99(port, token=token)
            wire, at = connect(("127.0.0.1", port)), time.perf_counter()
            assert wire.send(head("GET", "/healthz", token=None)).answer().status == 200
            probed = time.perf_counter() - at
            wire.close()
    print(
        f"hammer: p99 {unloaded * 1e3:.2f} ms unloaded, {loaded * 1e3:.2f} ms loaded, probe {probed * 1e3:.2f} ms"
    )
    assert loaded < 5 * max(unloaded, NOISE_S)
    assert probed < 0.5


def test_10000_refused_tokens_write_few_lines(tmp_path: Path) -> None:
    with process("tests.integration.http.server", "unpaced", stderr=tmp_path / "log") as port:
        refuse_10000(Server(int(port), tmp_path / "log"))


def refuse_10000(server: Server) -> None:
    wire = connect(("127.0.0.1", server.port))
    for _ in range(100):
        wire.send(with_body(RUN, token="garbage") * 100)
        assert {wire.answer().status for _ in range(100)} == {401}
    wire.close()
    written = server.log.read_text()
    print(f"10,000 refusals: {len(written)} bytes, {written.count(chr(10))} lines")
    assert len(written) < 100 * 1024
    assert written.count("unauthenticated") >= 10
