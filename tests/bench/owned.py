"""Programs that are ended together with everything they started, whatever ends us."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.bench.processes import children, descendants

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM)
_LOOK_S: Final = 0.1
END_S: Final = 90.0
"""How long a program that was interrupted may take to end what it started, a docker daemon among it."""


def interruptible() -> None:
    """Raise KeyboardInterrupt on SIGINT and SIGTERM, and on SIGHUP unless whoever started us ignores it."""
    for each in (*_INTERRUPTS, signal.SIGHUP):
        if each in _INTERRUPTS or signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, _interrupt)


def interrupted_with_parent() -> None:
    """Raise KeyboardInterrupt on the first SIGINT or SIGTERM, and when the parent dies; later ones do not disturb the end."""
    for each in _INTERRUPTS:
        signal.signal(each, _interrupt_once)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def adopt() -> None:
    """Become the parent of whatever loses its own below this process, so that it can be found and ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def run(
    command: Sequence[str | Path],
    folder: Path,
    environ: Mapping[str, str] | None = None,
    *,
    end_s: float = END_S,
) -> int:
    """Run a program to its end; the exit status.

    It gets no signal from the terminal. An interrupt of ours is passed on to it, and what is left of it after `end_s`, or at
    the next interrupt, is killed. After `adopt`, so is what it left behind.
    """
    others = set(children(os.getpid()))
    # An interrupt while it is started would leave it to nobody: it is put off until there is an owner.
    came: list[int] = []
    handlers = {each: signal.signal(each, lambda number, _: came.append(number)) for each in _INTERRUPTS}
    try:
        process = subprocess.Popen(
            command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, start_new_session=True
        )
    except BaseException:
        _handle(handlers)
        raise
    try:
        _handle(handlers)
        if came:
            raise KeyboardInterrupt  # as the handler would have
        while process.poll() is None:
            _reap(others | {process.pid})
            time.sleep(_LOOK_S)
        return process.returncode
    finally:
        try:
            _interrupted(process, others, time.monotonic() + end_s)
        finally:
            _kill(process, others)


def _handle(handlers: Mapping[signal.Signals, Any]) -> None:
    for each, handler in handlers.items():
        signal.signal(each, handler)


def _interrupted(process: "subprocess.Popen[bytes]", others: set[int], until: float) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    while process.poll() is None and time.monotonic() < until:
        _reap(others | {process.pid})
        time.sleep(_LOOK_S)


def _kill(process: "subprocess.Popen[bytes]", others: set[int]) -> None:
    """Kill what is left, from the leaves on as often as something new comes up."""
    while process.poll() is None or (set(children(os.getpid())) - others):
        for each in set(children(os.getpid())) - others:
            for pid in (each, *descendants(each)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.poll()
        _reap(others | {process.pid})
        time.sleep(_LOOK_S)


def _reap(but: set[int]) -> None:
    """Take leave of adopted processes that have ended: what waits for their end looks for their pid."""
    for each in set(children(os.getpid())) - but:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(each, os.WNOHANG)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    for each in _INTERRUPTS:
        signal.signal(each, signal.SIG_IGN)
    _interrupt(number, frame)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), *([ctypes.c_ulong(0)] * 3)) < 0:
        raise OSError(ctypes.get_errno(), "prctl")
