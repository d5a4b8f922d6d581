"""Removes containers by name that nobody looks after, also one that its runtime cannot end.

The daemon asks the runtime to kill, and a program can keep a gVisor from doing so: then the process itself is ended, if it is
one of this machine and in that container's control groups.
"""

import os
import signal
from typing import Any

from providers.docker import cgroups
from providers.docker.daemon import Daemon, DaemonError
from providers.docker.process import Process


async def remove(daemon: Daemon, name: str) -> bool:
    """True if it was there. When this returns it is gone, otherwise DaemonError."""
    try:
        return await daemon.remove(name)
    except DaemonError:
        if not _ended(await daemon.inspect(name)):
            raise
    return await daemon.remove(name)


def _ended(told: dict[str, Any]) -> bool:
    """End the process that the daemon names; whether it is this container's and was there."""
    state, container = told.get("State"), told.get("Id")
    pid = state.get("Pid") if isinstance(state, dict) else None
    if not isinstance(pid, int) or pid <= 0 or not isinstance(container, str):
        return False
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not cgroups.holds(Process(pid).text("cgroup"), container):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True
