"""Become a program that ends with its parent: `python -I -S bound.py PARENT COMMAND…`.

A minter's program is killed at its deadline by the broker. If the broker itself is killed, nobody is left to do that but the
kernel. It asks for nothing but the standard library, and runs in the program's own place.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> None:
    """Never returns but by OSError."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() == int(parent):  # else it died in between
        os.execv(command[0], command)  # noqa: S606  # as the broker's settings say; the environment is as it was given


if __name__ == "__main__":
    main(*sys.argv[1:])
    raise SystemExit(1)
