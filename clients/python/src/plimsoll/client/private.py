"""Starting and ending the process of a private service."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO

from plimsoll.client.errors import InvalidOption, LocalServiceError
from plimsoll.contract import bounds
from plimsoll.records import strictjson

START_S = 180.0
"""A first start may compile a guest, and on a busy machine the first look at a container's wall takes minutes."""
END_S = 10.0
"""Providers of the service have four seconds to remove what they started."""
COMMAND = "plimsolld"

_LINE = 64 * bounds.KIB
_TAIL = 4 * bounds.KIB
_LINES = 32


def find_daemon(named: str | os.PathLike[str] | None) -> str:
    """The service's program: as named, else PLIMSOLL_DAEMON, else beside this Python, else on PATH.

    Raises LocalServiceError saying how to install it.
    """
    how = "PLIMSOLL_DAEMON" if named is None else "the argument daemon"
    wanted = _path(named) if named is not None else os.environ.get("PLIMSOLL_DAEMON", "")
    beside = str(Path(sys.executable).parent / COMMAND)
    for candidate in [wanted] if wanted else [beside, COMMAND]:
        if found := shutil.which(candidate):
            return found
    if wanted:
        raise LocalServiceError(f"{wanted}, named by {how}, is not a program that can be run")
    raise LocalServiceError(
        f"the service's program {COMMAND} was not found: install it from a clone of the repository (`make setup`, or"
        " `pip install` of its folder in an environment of its own), and name it by PLIMSOLL_DAEMON or the argument"
        " daemon"
    )


def _path(named: object) -> str:
    path = os.fspath(named) if isinstance(named, os.PathLike) else named
    if not isinstance(path, str):
        raise InvalidOption("daemon must be a path")
    return path


class _Tail:
    """The last of what the service wrote to its error stream; read all the time, so that it never blocks.

    All of it goes on to `log`, for as long as that takes it.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", log: IO[bytes] | None) -> None:
        self._log = log
        self._chunks: deque[bytes] = deque(maxlen=_LINES)
        stream = process.stderr
        self._thread = threading.Thread(
            target=self._read, args=(stream,), name="plimsoll-stderr", daemon=True
        )
        self._thread.start()

    def _read(self, stream: IO[bytes] | None) -> None:
        if stream is None:
            return
        with stream, self._log or nullcontext():
            while line := stream.readline(_TAIL):
                self._chunks.append(line)
                if self._log is not None:
                    self._write(self._log, line)

    def _write(self, log: IO[bytes], line: bytes) -> None:
        try:
            log.write(line)
        except OSError:  # a full disk is no reason to let the service wait
            self._log = None

    def finish(self) -> None:
        """Wait a moment for the stream's end."""
        self._thread.join(1)

    def text(self) -> str:
        """The tail as text, once the stream ended or a moment later."""
        self.finish()
        return b"".join(self._chunks)[-_TAIL:].decode(errors="backslashreplace").strip()


class _NotReady(Exception):
    """Why the service is not ready, to be read after "the private service"; `errors` are its own words."""

    def __init__(self, message: str, errors: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.errors = tuple(errors)


class PrivateService:
    """A started service: `socket` is the path it listens on once it is ready, `token` the one it takes.

    `directory` holds its data. `close` ends it and removes what it left; so do losing the last reference and the end of this
    process.
    """

    def __init__(self, program: str, environment: Mapping[str, str], log: IO[bytes] | None = None) -> None:
        directory = tempfile.mkdtemp(prefix="plimsoll-")  # 0700
        self._ours, theirs = socket.socketpair()
        try:
            self._process = _spawn(program, theirs, {**environment, "PLIMSOLL_DATA_DIR": directory})
        except OSError as error:
            self._ours.close()
            shutil.rmtree(directory, ignore_errors=True)
            raise LocalServiceError(f"{program} could not be started: {error.strerror}") from None
        finally:
            theirs.close()
        self.program, self.directory, self.pid = program, directory, self._process.pid
        self.socket = ""
        self.token = f"plim_{secrets.token_urlsafe(32)}"
        self._end = weakref.finalize(self, end, os.getpid(), self._process, self._ours, directory)
        self._tail = _Tail(self._process, log)

    def wait_until_ready(self) -> None:
        """Hand over the token and wait for the service's line. Raises LocalServiceError."""
        try:
            self.socket = _handshake(self._ours, self.token)
        except _NotReady as problem:
            self.close()
            story = [f"the private service {problem}", *problem.errors, self._tail.text()]
            raise LocalServiceError("\n".join(filter(None, story)), errors=problem.errors) from None

    def close(self) -> None:
        """End the process, at most a few seconds later by force."""
        self._end()
        self._tail.finish()


def start(program: str, environment: Mapping[str, str], log: str = "") -> PrivateService:
    """Run `program` and wait until it is ready; its log is appended to the file `log`, if one is named.

    Raises InvalidOption, LocalServiceError; then nothing of it is left.
    """
    file = _opened(log) if log else None
    try:
        service = PrivateService(program, environment, file)
    except BaseException:
        if file is not None:
            file.close()
        raise
    try:
        service.wait_until_ready()
    except BaseException:
        service.close()
        raise
    return service


def _opened(log: str) -> IO[bytes]:
    try:
        return Path(log).open("ab", buffering=0)
    except OSError as error:
        raise InvalidOption(f"log: {log}: {error.strerror}") from None


def _spawn(program: str, theirs: socket.socket, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    number = theirs.fileno()
    return subprocess.Popen(  # noqa: S603 - the program was named by the caller
        [program, "--private-fd", str(number), "--private-data"],
        env=dict(environment),
        pass_fds=[number],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # A group of its own: an interrupt at our terminal is ours to answer, and the whole group can be ended.
        start_new_session=True,
    )


def _handshake(ours: socket.socket, token: str) -> str:
    until = time.monotonic() + START_S
    try:
        ours.settimeout(START_S)
        ours.sendall(token.encode("ascii") + b"\n")
        return _socket_path(_line(ours, until))
    except TimeoutError:
        raise _NotReady(f"was not ready within {START_S:.0f} seconds") from None
    except OSError:
        raise _NotReady("ended before it was ready") from None


def _line(ours: socket.socket, until: float) -> bytes:
    data = b""
    while b"\n" not in data:
        ours.settimeout(max(until - time.monotonic(), 0.001))
        part = ours.recv(4096)
        if not part:
            raise _NotReady("ended before it was ready")
        data += part
        if len(data) > _LINE:
            raise _NotReady("said too much")
    return data.partition(b"\n")[0]


def _socket_path(line: bytes) -> str:
    try:
        said = strictjson.loads(line)
    except strictjson.JsonFault as fault:
        raise _NotReady(f"said something that {fault}") from None
    ready = said.get("ready") if isinstance(said, dict) else None
    if ready is False:
        raise _NotReady("cannot start:", [str(error) for error in said.get("errors", [])])
    if ready is not True or not isinstance(said.get("socket"), str):
        raise _NotReady("said something that is no readiness line")
    path: str = said["socket"]
    return path


def end(owner: int, process: "subprocess.Popen[bytes]", ours: socket.socket, directory: str) -> None:
    """End the service: its socket's end of file, some time to obey, then SIGKILL for its whole group."""
    if os.getpid() != owner:
        return  # a fork of ours: the service is not its to end
    with suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)
    ours.close()
    _wait_unreaped(process.pid)
    # Not reaped yet, so the number is still this group's and nobody else's.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    shutil.rmtree(directory, ignore_errors=True)


def _wait_unreaped(pid: int) -> None:
    until = time.monotonic() + END_S
    while time.monotonic() < until:
        try:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
        except ChildProcessError:
            return
        time.sleep(0.01)
