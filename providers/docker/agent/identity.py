"""Who the agent is and who its guests are.

A guest under the agent's own uid could open its descriptors and memory, set its limits and stop it. So the first process comes
up as root with three capabilities, keeps those while it moves to a uid of its own, and starts everything else as a second
uid with none. Nothing here relies on the guest: it is done before there is one, or in a child before it becomes one.

No other container has these two uids, since a kernel counts much of what a process holds by its user. The host chooses the
agent's; the guest's is the next one.
"""

import ctypes
import os
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ACCOUNTS = Path("/dev/plimsoll")
"""A folder in memory that only root can write. Links of the image's lead to it from where its C library looks for users."""

_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
KILL_SETGID_SETUID = 1 << 5 | 1 << 6 | 1 << 7

_libc = ctypes.CDLL(None, use_errno=True)


def write_accounts(uid: int, folder: Path = ACCOUNTS) -> None:
    """Tell programs that ask the C library who they are. Raises OSError."""
    folder.mkdir(0o755)
    people = (
        ("agent", uid, "/nonexistent", "/usr/sbin/nologin"),
        ("guest", uid + 1, "/workspace", "/bin/bash"),
    )
    passwd = "".join(f"{name}:x:{each}:{each}::{home}:{shell}\n" for name, each, home, shell in people)
    group = "".join(f"{name}:x:{each}:\n" for name, each, _, _ in people)
    for name, text in (("passwd", passwd), ("group", group)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)


def become_agent(uid: int) -> None:
    """Root to that uid, holding nothing but KILL, SETGID and SETUID, unreadable to other processes. Raises OSError."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_KEEPCAPS, 1)
    _move_to(uid)
    _set_capabilities(KILL_SETGID_SETUID)
    _prctl(_PR_SET_KEEPCAPS, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # After the moves: a change of uid sets this flag as the kernel likes.
    _prctl(_PR_SET_DUMPABLE, 0)


def become_guest() -> None:
    """The agent's forked child to the guest's uid, without a capability; its descriptors are closed before. Raises OSError."""
    _move_to(os.getuid() + 1)
    _set_capabilities(0)


@contextmanager
def guests_files() -> Iterator[None]:
    """What the agent makes meanwhile is a file of the guest's, so that a guest can open its own /dev/stdout again.

    Only the effective ids change: nobody may do to a process more than its real one allows, and the kernel goes on to count on
    the agent's account. A guest makes nothing for itself before it runs: what an earlier step has used up of the kernel's
    limits for users keeps no other from starting.
    """
    agent = os.getuid()
    os.setresgid(-1, agent + 1, -1)
    os.setresuid(-1, agent + 1, -1)
    try:
        yield
    finally:
        os.setresuid(-1, agent, -1)
        os.setresgid(-1, agent, -1)
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
