"""What is left of containers: what is ours is found by its control group or as a gVisor, and nothing else is touched."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from providers.docker import remains
from providers.docker.process import Process

OURS, OTHER = "ab" * 32, "cd" * 32
ROOT = Path("/sys/fs/cgroup")
BUNDLE = f"--bundle=/run/moby/{OURS}"

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process of this machine under any name, with any words; all are gone after the test."""
    with ExitStack() as stack:

        def one(*argv: str) -> "subprocess.Popen[bytes]":
            words = [argv[0], "-c", "print(flush=True); input()", *argv[1:]]
            process = stack.enter_context(
                subprocess.Popen(words, executable=sys.executable, stdin=-1, stdout=-1)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            return process

        yield one


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["runsc-sandbox", "boot", BUNDLE, OURS], True),
        (["runsc-gofer", "gofer", "--bundle", f"/run/moby/{OURS}"], True),
        (["runsc-sandbox", "boot", OTHER], False),
        (["runsc-sandbox", "boot", OURS[:-1]], False),
        (["another", "boot", OURS], False),
        (["/usr/bin/runsc-sandbox", "boot", OURS], False),
    ],
)
def test_a_gvisor_is_found_by_the_id_it_was_started_for(start: Start, argv: list[str], found: object) -> None:
    process = start(*argv)
    assert remains.find(frozenset({OURS})) == ({OURS: [process.pid]} if found else {})


def test_without_a_container_of_ours_nothing_is_looked_for() -> None:
    assert remains.find(frozenset(), "/nowhere") == {}


@pytest.mark.parametrize(
    ("group", "found"),
    [
        (f"9:memory:/docker/{OURS}\n0::/\n", OURS),
        (f"0::/system.slice/docker-{OURS}.scope\n", OURS),
        (f"0::/system.slice/docker-{OTHER}.scope\n", ""),
        (f"0::/docker/{OURS}/below\n", ""),
        (f"0::/docker/../{OURS}\n", ""),
        ("0::/\n", ""),
        ("nonsense\n", ""),
    ],
)
def test_a_process_is_of_the_container_whose_control_group_it_is_in(
    tmp_path: Path, group: str, found: str
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(group)
    (tmp_path / "7" / "cmdline").write_bytes(b"python3\0")
    assert remains.container_of(Process(7, str(tmp_path)), frozenset({OURS})) == found


def test_a_guest_that_calls_itself_a_gvisor_is_none(tmp_path: Path) -> None:
    """What it runs is no file of this machine."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("0::/\n")
    (tmp_path / "7" / "cmdline").write_bytes(b"runsc-sandbox\0boot\0%b\0" % OURS.encode())
    (tmp_path / "7" / "exe").symlink_to(tmp_path / "away")
    assert remains.container_of(Process(7, str(tmp_path)), frozenset({OURS})) == ""


def test_what_is_left_is_ended_and_all_else_stays(start: Start) -> None:
    ours = [start("runsc-sandbox", "boot", OURS), start("runsc-gofer", "gofer", BUNDLE)]
    others = [start("runsc-sandbox", "boot", OTHER), start("python", OURS)]
    assert remains.end(frozenset({OURS})) == frozenset()
    assert all(each.wait(60) == -9 for each in ours)
    assert all(each.poll() is None for each in others)


def test_one_that_nobody_has_reaped_is_gone(start: Start) -> None:
    process = start("runsc-sandbox", "boot", OURS)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert remains.find(frozenset({OURS})) == {}
