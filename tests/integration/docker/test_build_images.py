"""How deploy/images/build.sh treats its cache of package bases, with a mmdebstrap that does as the test says."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.docker import ROOT

BUILD = ROOT / "deploy" / "images" / "build.sh"


def build(place: Path, mmdebstrap: str) -> subprocess.CompletedProcess[str]:
    """The script as far as it comes: its docker command knows no image and makes none."""
    tools = place / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in {"mmdebstrap": mmdebstrap, "docker": "exit 1"}.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "PLIMSOLL_CACHE_DIR": str(place)}
    return subprocess.run(
        [BUILD, "--from-packages", "--tag", "nothing"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def kept(place: Path) -> list[Path]:
    return sorted((place / "images").glob("*.tar"))


# Into the file that is asked for, which is the last word of the command.
WRITES = 'echo "$1" >>"${!#}"'


def test_a_base_that_was_not_finished_is_not_kept(tmp_path: Path) -> None:
    done = build(tmp_path, f"{WRITES}; exit 1")
    assert done.returncode != 0
    assert kept(tmp_path) == []
    assert "Building nothing" not in done.stderr


def test_a_finished_base_is_taken_again_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    counts = f"echo made >>{tmp_path}/count; {WRITES}"
    for _ in range(2):
        build(tmp_path, counts)
    (base,) = kept(tmp_path)
    assert (tmp_path / "count").read_text() == "made\n"
    whole = base.read_bytes()
    base.write_bytes(whole + b"x")
    build(tmp_path, counts)
    assert (base.read_bytes(), (tmp_path / "count").read_text()) == (whole, "made\nmade\n")


def test_two_builds_at_once_make_one_base(tmp_path: Path) -> None:
    """The second waits for the first, and takes what that made."""
    counts = f"echo made >>{tmp_path}/count; sleep 0.5; {WRITES}"
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: build(tmp_path, counts), range(2)))
    assert (tmp_path / "count").read_text() == "made\n"
    assert len(kept(tmp_path)) == 1
