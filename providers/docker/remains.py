"""Processes that are left on this machine of containers that nobody looks after any more: found, and ended.

A daemon that is killed leaves what it had started, and one that is back may know nothing of it. A gVisor then lives on, with
its memory, for as long as the machine does. What is ended is provably ours: its control group is that of a container whose id
stands in our own table of names, or it is a gVisor of this machine that was started for that id. All else is left alone.
"""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from providers.docker import cgroups
from providers.docker.process import Process

GONE_S: Final = 2.0
"""How long what was killed may take to be gone, before it is left to the next try."""
_PAUSE_S: Final = 0.02
_GVISOR: Final = frozenset({"runsc-sandbox", "runsc-gofer"})


def find(ids: frozenset[str], proc: str = "/proc") -> dict[str, list[int]]:
    """The living processes of these containers, by container."""
    found: dict[str, list[int]] = {}
    for name in os.listdir(proc) if ids else ():  # noqa: PTH208  # numbers, not paths
        if name.isdigit() and (container := container_of(Process(int(name), proc), ids)):
            with _held(int(name)) as pidfd:
                if pidfd is not None:
                    found.setdefault(container, []).append(int(name))
    return found


def container_of(found: Process, ids: frozenset[str]) -> str:
    """Which of these containers a process is of; empty if it is of none, or has ended."""
    with suppress(OSError, ValueError):
        if container := cgroups.container_of(found.text("cgroup"), ids):
            return container
        first, *words = os.fsdecode(found.arguments()).split("\0")
        if (
            first in _GVISOR and found.executable().on_host
        ):  # a guest may take any name, with a file of its image
            return next((last for word in words if (last := word.rpartition("/")[2]) in ids), "")
    return ""


def end(ids: frozenset[str]) -> frozenset[str]:
    """Kill all that is left of these containers; those of which something still is. Takes up to `GONE_S`."""
    until = time.monotonic() + GONE_S
    while found := find(ids):
        for container, pids in found.items():
            for pid in pids:
                with _held(pid) as pidfd:
                    # Asked again: only now can the number mean no other process.
                    if pidfd is not None and container_of(Process(pid), ids) == container:
                        with suppress(OSError):
                            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if time.monotonic() > until:
            return frozenset(found)
        time.sleep(_PAUSE_S)
    return frozenset()


@contextmanager
def _held(pid: int) -> Iterator[int | None]:
    """A descriptor of a process that lives, else None: one that was not waited for yet has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield None if select.select([pidfd], [], [], 0)[0] else pidfd
    finally:
        os.close(pidfd)
