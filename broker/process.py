"""What the broker's process does to itself first, and its tie to whoever supervises it.

No core, no debugger, no memory for others of its user; private files; death together with the parent. The inherited socket
brings one frame of settings, takes back whether it serves, and its end is the broker's end.
"""

import ctypes
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Final

from plimsoll.contract import frames

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_DESCRIPTORS: Final = 65_536
_FIRST_FRAME_S: Final = 30.0
_FRAME_BYTES: Final = 64 << 10


def protect() -> None:
    """Before anything is read, and after `become`, which would undo it."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started us decides when we end
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_NO_NEW_PRIVS, 1)):
            if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")


def become(uid: int, gid: int) -> None:
    """Be this user and nothing else, for good. What is loaded later may be out of reach then, so it is loaded now."""
    "name".encode("idna")
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def die_with_parent() -> None:
    """SIGKILL when the thread that made us ends; a second line behind the end of file on our socket."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


class Tie:
    """The inherited socket."""

    def __init__(self, descriptor: int) -> None:
        """Take it over."""
        self.socket = socket.socket(fileno=descriptor)
        self.socket.set_inheritable(False)

    def settings(self) -> dict[str, Any]:
        """The first frame's settings. Raises OSError or FrameError when none comes."""
        self.socket.settimeout(_FIRST_FRAME_S)
        decoder = frames.Decoder(_FRAME_BYTES)
        while data := self.socket.recv(_FRAME_BYTES):
            for header, _ in decoder.feed(data):
                settings = header.get("settings")
                if not isinstance(settings, dict):
                    raise frames.FrameError("the first frame holds no settings")
                return settings
        raise frames.FrameError("the socket ended before the settings")

    def say(self, **header: Any) -> None:
        """One frame. A supervisor that is gone is noticed elsewhere."""
        with suppress(OSError):
            self.socket.settimeout(1.0)
            self.socket.sendall(frames.encode(header))
