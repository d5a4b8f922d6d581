"""The wasm guest is what its pinned inputs make, to the byte. Needs npm and a package registry."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from providers.wasm.guest import build
from tests.conftest import require


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rebuild_gives_the_same_bytes() -> None:
    wanted = "guest-build" in os.environ.get("PLIMSOLL_REQUIRE", "")
    require("guest-build", available=wanted, why="a rebuild takes a minute and is done only on demand")
    script = Path(build.__file__)
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, timeout=550, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
