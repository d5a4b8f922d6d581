"""A disk with no room left: every run is refused before it starts, readiness says why, and room brings the service back."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import environment, started

LOOK_S = 2.5
"""A little longer than the service remembers its last look at the disk."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.component("wasm")
def test_under_five_percent_every_run_is_refused_and_readiness_says_so(
    tmp_path: Path, small_disk: Path
) -> None:
    environ = environment(small_disk / "data", SANDBOX_PROVIDER="wasm", PLIMSOLL_INSECURE="1")
    with started(environ, tmp_path / "log") as running, running.client() as client:
        assert running.run("1").status_code == 200
        ballast = small_disk / "ballast"
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        ballast.write_bytes(bytes(free - (16 << 20) // 50))
        time.sleep(LOOK_S)
        refused = running.run("1")
        assert (refused.status_code, refused.json()["code"]) == (429, "capacity")
        assert refused.headers["plimsoll-not-dispatched"] == "capacity"
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["reasons"]) == (503, ["disk_full"])
        ballast.unlink()
        time.sleep(LOOK_S)
        assert running.run("1").status_code == 200
        assert client.get("/readyz").status_code == 200
