"""A real service in a process of its own, on a free port or as told, waited for and surely ended."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from app.settings import read_settings

ROOT = Path(__file__).resolve().parent.parent.parent
DAEMON = Path(sys.executable).with_name("plimsolld")
ADMIN = Path(sys.executable).with_name("plimsoll-admin")
_START_S = 30.0
_END_S = 15.0

PATIENT = (sys.executable, "-m", "tests.support.patient_wasm", "serve")
"""The service over a wasm provider that kills late, so that a busy machine costs no output."""


@dataclass(slots=True)
class Running:
    """A started service. `log` is where its stderr goes."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    environ: Mapping[str, str] = field(repr=False)

    def client(self, token: str | None = None, **options: Any) -> httpx2.Client:
        """An HTTP client without proxies or redirects."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx2.Client(base_url=self.url, headers=headers, trust_env=False, timeout=30, **options)

    def run(self, code: str, token: str | None = None, **more: Any) -> httpx2.Response:
        """One run of JavaScript."""
        body = {"payload": {"kind": "javascript", "code": code}, **more}
        with self.client(token) as client:
            return client.post("/v1/runs", json=body)

    def until_begun(self, number: int, token: str | None = None, seconds: float = 30) -> None:
        """Until that many runs are written down, which is right before they are given away."""
        end = time.monotonic() + seconds
        with self.client(token) as client:
            while len(client.get("/v1/runs", params={"limit": 100}).json()["runs"]) < number:
                assert time.monotonic() < end, f"{number} runs did not begin"
                time.sleep(0.05)

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


def environment(data: Path, **settings: str) -> dict[str, str]:
    """Settings for a service whose data is in `data`; the cache is the user's, filled by `make setup`."""
    keep = {name: os.environ[name] for name in ("HOME", "XDG_CACHE_HOME") if name in os.environ}
    defaults = {"PLIMSOLL_DATA_DIR": str(data), "PLIMSOLL_ADDR": "127.0.0.1:0"}
    return {"PATH": os.defpath, **keep, **defaults, **settings}


@contextmanager
def started(
    environ: Mapping[str, str], log: Path, *command: str, wait: bool = True, start_s: float = _START_S
) -> Iterator[Running]:
    """The service (or another `command` that behaves like it), once it is ready; ended with SIGTERM, then SIGKILL."""
    _remember_image(environ)
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            command or [str(DAEMON)], env=dict(environ), stderr=stderr, stdin=subprocess.DEVNULL, cwd=ROOT
        )
    try:
        yield _wait(process, log, environ, time.monotonic() + start_s, ready=wait)
    finally:
        end(process)


def _remember_image(environ: Mapping[str, str]) -> None:
    """So that no start reads the whole sandbox image again, where the tests' own is served."""
    if image := environ.get("SANDBOX_DOCKER_IMAGE"):
        from tests.support.docker import state_knowing  # noqa: PLC0415  # some fork after this, and hold what is imported

        settings = read_settings(environ)
        for provider in settings.providers:
            state_knowing(image, settings.state_dir(provider))


def end(process: subprocess.Popen[bytes], seconds: float = _END_S) -> int:
    """SIGTERM, then SIGKILL; the exit status."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _wait(
    process: subprocess.Popen[bytes], log: Path, environ: Mapping[str, str], until: float, *, ready: bool
) -> Running:
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with {process.returncode}:\n{log.read_text()[-4000:]}")
        running = Running(process, _address(log, process.pid), log, environ)
        if running.url and (not ready or _ready(running)):
            return running
        time.sleep(0.02)
    process.kill()
    raise RuntimeError(f"the service did not get ready:\n{log.read_text()[-4000:]}")


def _address(log: Path, pid: int) -> str:
    """The bound address, from the last line that names one (a log may hold earlier starts)."""
    found = ""
    for line in log.read_text().splitlines():
        if '"event":"serving"' in line and f'"pid":{pid}' in line:
            found = json.loads(line)["address"]
    return f"http://{found}" if found else ""


def _ready(running: Running) -> bool:
    with running.client() as client:
        return client.get("/readyz").status_code == 200


def make_caller(environ: Mapping[str, str], name: str, *options: str) -> str:
    """A caller's token, made with the real command."""
    command = [str(ADMIN), "callers", "create", name, *options]
    done = subprocess.run(command, env=dict(environ), capture_output=True, check=True, timeout=60)
    return done.stdout.decode().split()[-1]
