"""A disk with no room left: every run is refused before it starts, readiness says why, and room brings the service back."""

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.service.stand import Stand, keyed
from tests.support.service import environment, make_caller, started

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


def test_a_caller_that_stored_its_share_is_refused_marked_and_nobody_else(
    sqlite_stand: Stand,
) -> None:
    """Until retention deletes its runs. A key of the refused request belongs to no run."""
    stand = sqlite_stand
    stand.settings = {}
    full, other = (make_caller(stand.environ(), name) for name in ("full", "other"))
    bound = {"PLIMSOLL_STORED_CALLER_RUNS": "3"}
    with stand.service(more=bound) as served:
        assert [served.post("effect", token=full).status_code for _ in range(3)] == [200] * 3
        refused = served.post("effect", keyed("k"), token=full)
        assert (refused.status_code, refused.json()["code"]) == (429, "storage_limit")
        assert refused.json()["not_dispatched"] == {"reason": "capacity"}
        assert refused.headers["retry-after"] == "3600"
        assert served.post("effect", token=other).status_code == 200
    assert sum(stand.effects().values()) == 4
    with sqlite3.connect(stand.file) as database:
        database.execute("UPDATE runs SET created_unix_ms = 1")
    database.close()
    with stand.service(more=bound) as served:
        until = time.monotonic() + 60
        while (answer := served.post("effect", keyed("k"), token=full)).status_code != 200:
            assert answer.json()["code"] == "storage_limit"
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.mark.component("wasm")
def test_the_ballast_is_there_while_the_service_is(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data", SANDBOX_PROVIDER="wasm", PLIMSOLL_INSECURE="1")
    ballast = tmp_path / "data" / "plimsoll.db.ballast"
    with started(environ, tmp_path / "log"):
        until = time.monotonic() + 60
        while not ballast.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
    assert not ballast.exists()
