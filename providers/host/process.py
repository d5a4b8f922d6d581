"""What every process on the provider side does to itself first: no core, no debugger, private files, no orphan."""

import ctypes
import os
import resource
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_GET_DUMPABLE: Final = 3
_PR_SET_DUMPABLE: Final = 4

LAST_S: Final = 60
"""How long a process that outlives its parent may take to end, by the kernel's clock."""
IS_LINUX: Final = sys.platform == "linux"
_libc: Final = ctypes.CDLL(None, use_errno=True)


def protect(*, dumpable: bool = False) -> None:
    """Private files (umask 077), no core files, no debugger unless `dumpable`, and death together with the parent."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started us decides when we end
    set_dumpable(dumpable)
    die_with_parent()


def set_dumpable(value: bool) -> None:  # noqa: FBT001  # the name asks the question
    """Whether another process of this uid may attach, read memory or take descriptors."""
    if IS_LINUX:
        _prctl(_PR_SET_DUMPABLE, int(value))


def is_dumpable() -> bool:
    """What the kernel says; True where it cannot be asked."""
    return _prctl(_PR_GET_DUMPABLE, 0) != 0 if IS_LINUX else True


def die_with_parent() -> None:
    """SIGKILL when the parent (its thread that made us) ends; a second line behind the end of file on our socket."""
    if IS_LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def outlive_parent() -> None:
    """From now on have `LAST_S` seconds when the parent ends: for whoever must take down what others hold for it.

    It is told of that end by its socket; this only makes sure that it ends at all.
    """
    parent = os.getppid()

    def hung_up(_number: int, _frame: object) -> None:
        if os.getppid() != parent:  # any other hang-up means nothing to us
            signal.alarm(LAST_S)

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, hung_up)
    if IS_LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)


def _prctl(option: int, value: int) -> int:
    result = int(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))
    if result < 0:
        raise OSError(ctypes.get_errno(), "prctl")
    return result
