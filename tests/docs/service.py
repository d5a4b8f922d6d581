"""A service for one reader: started as a page says, on a free port, with a data directory of its own and one caller."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.architecture.repository import ROOT

BIN = Path(sys.executable).parent
START_S = 60.0
FIRST_LOOK_S = 300.0
"""Containers are started and their limits broken on purpose, on a machine that may do much else."""
END_S = 30.0


@contextmanager
def running_service(folder: Path, command: str, **settings: str) -> Iterator[dict[str, str]]:
    """The environment of a reader's terminal while the service runs that `command`, a line of shell, starts."""
    environment = _environment(folder)
    with subprocess.Popen(
        ["bash", "-c", command],
        env=environment | settings,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # make and what it started are ended together
    ) as process:
        try:
            assert process.stderr is not None
            reader = _Log(process.stderr)
            url = f"http://{reader.address()}"
            _wait_until_ready(url)
            yield environment | {"PLIMSOLL_URL": url, "PLIMSOLL_TOKEN": _token(environment)}
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "XDG_CACHE_HOME") if name in os.environ}
    return kept | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PLIMSOLL_ADDR": "127.0.0.1:0",
        "PLIMSOLL_DATA_DIR": str(folder / "data"),
    }


class _Log:
    """Reads the service's log to its end, so that the service never waits for us, and notes where it listens."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._serving = threading.Event()
        self._address = ""
        self._lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def address(self) -> str:
        """HOST:PORT, once the service says so."""
        self._serving.wait(START_S)
        assert self._address, "the service did not start:\n" + "".join(self._lines)
        return self._address

    def _read(self) -> None:
        for line in self._stream:
            self._lines.append(line)
            if line.startswith("{") and (said := json.loads(line)).get("event") == "serving":
                self._address = said["address"]
                self._serving.set()
        self._serving.set()


def _wait_until_ready(url: str) -> None:
    """Until the walls are proven: on a machine that does much else a look can fail, and is done again soon."""
    until = time.monotonic() + FIRST_LOOK_S
    while said := _amiss(url):
        assert time.monotonic() < until, said
        time.sleep(0.05)


def _amiss(url: str) -> str:
    """What is missing; nothing once all is there."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return " ".join(json.load(answer)["reasons"])
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def _token(environment: dict[str, str]) -> str:
    made = subprocess.run(
        [BIN / "plimsoll-admin", "callers", "create", "reader"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()
