"""The bench itself, on the real service: what it writes, and what it leaves behind when it is interrupted."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.__main__ import INTERRUPTED
from tests.bench.processes import descendants
from tests.support.service import ROOT

pytestmark = [pytest.mark.component("wasm"), pytest.mark.timeout(600)]
_PATIENCE_S = 120.0
# Ends at once and leaves behind what has a session of its own.
_LEAVES = "setsid sleep 1000 & echo $! > left; exit 3"
_OWNER = """
import sys
from pathlib import Path
from tests.bench import owned
owned.interruptible()
owned.adopt()
print(owned.run(("sh", "-c", sys.argv[1]), Path(sys.argv[2])), flush=True)
"""


@contextmanager
def started(*arguments: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A bench with few samples; killed if it is not over."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "tests/bench", "--quick", *arguments], cwd=ROOT, stdout=sink, stderr=sink
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def runs(pid: int) -> str:
    """What a process is: its start and name; empty once it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else f"{pid} {fields[19]} {stat.partition('(')[2].rpartition(')')[0]}"


def test_a_short_bench_writes_its_figures(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    with started("--only", "1", "--out", str(out), log=tmp_path / "log") as process:
        assert process.wait(_PATIENCE_S) == 0, (tmp_path / "log").read_text()
    document = json.loads(out.read_text())
    assert [each["number"] for each in document["figures"]] == [1, 2]
    assert not document["failures"]
    for figure in document["figures"]:
        assert figure["comparable"] == (figure["others_cpus"] <= 1.5)
        assert all(each["samples"] == 300 and 0 < each["least"] <= each["p50"] for each in figure["lines"])
    assert {"load_before", "load_after"} <= document["machine"].keys()
    printed = (tmp_path / "log").read_text()
    assert printed.count("bench: load ") == 2
    assert "1. A fresh VM" in printed


def test_an_interrupt_keeps_what_was_measured_and_ends_all_that_was_started(tmp_path: Path) -> None:
    out, log = tmp_path / "bench.json", tmp_path / "log"
    with started("--only", "1,3", "--out", str(out), log=log) as process:
        until, below = time.monotonic() + _PATIENCE_S, set[str]()
        while "2 of 2: http" not in log.read_text() or not any("plimsolld" in each for each in below):
            assert time.monotonic() < until, log.read_text()
            assert process.poll() is None, log.read_text()
            below |= {runs(each) for each in descendants(process.pid)}
            time.sleep(0.02)
        below |= {runs(each) for each in descendants(process.pid)}
        process.send_signal(signal.SIGINT)
        assert process.wait(_PATIENCE_S) == INTERRUPTED, log.read_text()
    assert not [each for each in below if each and runs(int(each.split()[0])) == each]
    assert {1, 2} <= {each["number"] for each in json.loads(out.read_text())["figures"]}
    assert "interrupted: the rest was not measured" in log.read_text()


def owning(program: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _OWNER, program, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_what_a_part_leaves_behind_is_ended(tmp_path: Path) -> None:
    with owning(_LEAVES, tmp_path) as process:
        printed, _ = process.communicate(timeout=_PATIENCE_S)
    assert printed == "3\n"
    assert not runs(int((tmp_path / "left").read_text()))


def test_a_second_interrupt_kills_what_does_not_end(tmp_path: Path) -> None:
    program = "trap 'echo asked > asked' INT; echo $$ > left; while true; do sleep 0.1; done"
    with owning(program, tmp_path) as process:
        for name in ("left", "asked"):
            until = time.monotonic() + _PATIENCE_S
            while not (tmp_path / name).exists() or not (tmp_path / name).read_text():
                assert time.monotonic() < until
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
        assert process.wait(_PATIENCE_S)
    assert not runs(int((tmp_path / "left").read_text()))


def test_a_part_ends_when_its_bench_is_killed(tmp_path: Path) -> None:
    part = f"exec {sys.executable} tests/bench --quick --part http --out {tmp_path / 'part.json'}"
    with owning(part, ROOT) as process:
        until, below = time.monotonic() + _PATIENCE_S, set[str]()
        while not any("plimsolld" in each for each in below):
            assert time.monotonic() < until
            assert process.poll() is None
            below |= {runs(each) for each in descendants(process.pid)}
            time.sleep(0.02)
        process.kill()
        process.wait(_PATIENCE_S)
        while left := [each for each in below if each and runs(int(each.split()[0])) == each]:
            assert time.monotonic() < until, left
            time.sleep(0.02)
    assert (tmp_path / "part.json").exists()
