"""What becomes of a process on the provider side when its parent is killed: real processes, killed for real."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

_CHILD = """
import os, sys, time
from providers.host import process

process.LAST_S = int(sys.argv[1])
process.protect()
if sys.argv[2] == "outlives":
    process.outlive_parent()
print(os.getpid(), flush=True)
while True:
    time.sleep(60)
"""
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_CHILD!r}, *sys.argv[1:]])"


@contextlib.contextmanager
def orphaned(last_s: int, how: str) -> Iterator[int]:
    """A pidfd of a process whose parent was just killed."""
    command = [sys.executable, "-c", _PARENT, str(last_s), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            parent.wait()
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, signal.SIGKILL)
            os.close(child)


def ended(child: int, seconds: float) -> bool:
    """Whether it ends in that time."""
    poll = select.poll()
    poll.register(child, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def test_it_is_killed_with_its_parent() -> None:
    with orphaned(60, "dies") as child:
        assert ended(child, 10)


def test_one_that_outlives_its_parent_has_time_and_then_ends_whatever_it_does() -> None:
    with orphaned(1, "outlives") as child:
        assert not ended(child, 0.3)
        assert ended(child, 10)


def test_a_hang_up_that_is_not_its_parents_end_is_nothing_to_it() -> None:
    command = [sys.executable, "-c", _CHILD, "1", "outlives"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = os.pidfd_open(int(process.stdout.readline()))
        try:
            process.send_signal(signal.SIGHUP)
            assert not ended(child, 1.5)
        finally:
            os.close(child)
            process.kill()
