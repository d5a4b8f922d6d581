"""Guest processes: how one is started, how all of them are ended, and what an ending is called."""

import errno
import fcntl
import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from providers.docker.agent.identity import become_guest, guests_files

WORKSPACE = "/workspace"
ENVIRONMENT = {
    "HOME": "/tmp",  # noqa: S108  # the container's own, made empty for it
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "TMPDIR": "/tmp",  # noqa: S108  # as above
    # One thread each: a sandbox has a share of a processor, and these would start one for every processor of the host.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""All that a guest finds in its environment; the agent's own holds nothing that is not here."""

SPARE = 3
"""The one descriptor beyond the standard three that a guest may be given. The agent keeps its own number 3 occupied."""

_REPORT = SPARE + 1
"""Where a child says that its program could not be started; it is closed when that is."""

_FAILED = 127


@dataclass(frozen=True)
class Guest:
    """A started process and the agent's ends of its output pipes."""

    pid: int
    stdout: int
    stderr: int


def start(command: Sequence[str], spare: int | None = None) -> Guest:
    """Start `command` as the guest's uid in the workspace. Raises OSError when there is no process or no program."""
    with guests_files():
        (out, out_w), (err, err_w) = os.pipe(), os.pipe()
    failed, failed_w = os.pipe()
    # These are files of the guest's: it may read there what it has written, and nothing is left when the agent does.
    os.set_blocking(out, False)
    os.set_blocking(err, False)
    try:
        pid = os.fork()
        if pid == 0:
            _turn_into(command, (out_w, err_w), spare, failed_w)
        os.close(failed_w)
        failed_w = -1
        _wait_for_program(failed)
    except OSError:
        os.close(out)
        os.close(err)
        raise
    finally:
        for each in (out_w, err_w, failed, failed_w):
            if each >= 0:
                os.close(each)
    return Guest(pid, out, err)


def _wait_for_program(failed: int) -> None:
    """Until the child runs it. Raises OSError when it said that it could not."""
    if os.read(failed, 1):
        raise OSError(errno.ENOEXEC, "")


def helper(work: Callable[[int], int]) -> tuple[int, int]:
    """Run `work(descriptor)` as the guest's uid in a child of ours, while no guest lives: (pid, where its bytes come from)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _help(work, write)
    os.close(write)
    return pid, read


def kill_all() -> Iterator[tuple[int, int]]:
    """Kill whatever runs beside the agent, until nothing does; gives (pid, wait status) of what is reaped."""
    while True:
        with suppress(ProcessLookupError, PermissionError):  # nothing left to kill, though perhaps to reap
            os.kill(-1, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            yield pid, status
        else:
            time.sleep(0.0005)


def reap() -> Iterator[tuple[int, int]]:
    """(pid, wait status) of every process that has ended, those without a parent of their own included."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status


def unread(descriptor: int) -> int:
    """How many bytes wait in a pipe."""
    answer = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(answer, sys.byteorder)


def exit_code(status: int) -> int:
    """A wait status as a shell would say it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _turn_into(command: Sequence[str], outputs: tuple[int, int], spare: int | None, failed: int) -> None:
    try:
        _keep(outputs, spare, failed)
        become_guest()
        os.chdir(WORKSPACE)
        os.execve(command[0], list(command), ENVIRONMENT)  # noqa: S606  # no shell is meant
    finally:
        os.write(_REPORT, b"!")
        os._exit(_FAILED)


def _keep(outputs: tuple[int, int], spare: int | None, failed: int) -> None:
    """Close everything of the agent's but the outputs and the spare descriptor, and set what a program expects."""
    for number, output in enumerate(outputs, 1):
        os.dup2(output, number)
    if spare is not None:
        os.dup2(spare, SPARE)
    else:
        os.close(SPARE)
    os.dup2(failed, _REPORT, inheritable=False)
    os.closerange(_REPORT + 1, _most_descriptors())
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.umask(0o022)
    os.setsid()


def _help(work: Callable[[int], int], write: int) -> None:
    status = _FAILED
    try:
        os.dup2(write, SPARE, inheritable=False)
        os.closerange(SPARE + 1, _most_descriptors())
        become_guest()
        os.umask(0o022)
        status = work(SPARE)
    finally:
        os._exit(status)


def _most_descriptors() -> int:
    return min(os.sysconf("SC_OPEN_MAX"), 1 << 16)
