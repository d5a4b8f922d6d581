"""Who the agent is and who its guests are.

A guest under the agent's own uid could open its descriptors and memory, set its limits and stop it. So the first process comes
up as root with three capabilities, keeps those while it moves to a uid of its own, and starts everything else as a second
uid with none. Nothing here relies on the guest: it is done before there is one, or in a child before it becomes one.
"""

import ctypes
import os
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager

AGENT = 10000
GUEST = 10001

_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
KILL_SETGID_SETUID = 1 << 5 | 1 << 6 | 1 << 7

_libc = ctypes.CDLL(None, use_errno=True)


def become_agent() -> None:
    """Root to uid 10000, holding nothing but KILL, SETGID and SETUID, unreadable to every other process. Raises OSError."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_KEEPCAPS, 1)
    _move_to(AGENT)
    _set_capabilities(KILL_SETGID_SETUID)
    _prctl(_PR_SET_KEEPCAPS, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # After the moves: a change of uid sets this flag as the kernel likes.
    _prctl(_PR_SET_DUMPABLE, 0)


def become_guest() -> None:
    """The agent's forked child to uid 10001 without any capability. Its descriptors must be closed before. Raises OSError."""
    _move_to(GUEST)
    _set_capabilities(0)


@contextmanager
def guests_files() -> Iterator[None]:
    """What the agent makes meanwhile is a file of the guest's, so that a guest can open its own /dev/stdout again.

    Only the effective ids change: nobody may do to a process more than its real one allows, and the kernel goes on to count on
    the agent's account. A guest makes nothing for itself before it runs: what its uid has used up of the kernel's limits for
    users, in whatever container, keeps no guest from starting.
    """
    os.setresgid(-1, GUEST, -1)
    os.setresuid(-1, GUEST, -1)
    try:
        yield
    finally:
        os.setresuid(-1, AGENT, -1)
        os.setresgid(-1, AGENT, -1)
        _prctl(_PR_SET_DUMPABLE, 0)  # as at the start


def _move_to(number: int) -> None:
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)


def _set_capabilities(mask: int) -> None:
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    # Effective, permitted, inheritable; then the same for the capabilities from number 32 on.
    _check(_libc.capset(header, struct.pack("=6I", mask, mask, 0, 0, 0, 0)))


def _prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), *([ctypes.c_ulong(0)] * 3)))


def _check(answer: int) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
