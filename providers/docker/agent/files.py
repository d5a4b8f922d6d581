"""Input files into the workspace and artifacts out of it, one path segment at a time.

No link is followed and nothing is waited on: a guest may have put a symlink, a FIFO or a directory where a file is asked for.
Both functions run as the guest's uid in a child of the agent, before the first guest and after the last, so nothing changes
between a look and the next step. The look comes first because gVisor of 2022 follows a link in spite of O_NOFOLLOW if a
directory is asked for.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from providers.docker.agent import wire

ARTIFACTS_BYTES = 8 << 20
CHUNK = 512 << 10

DONE, DISK_FULL, PATH_REFUSED = 0, 1, 2
"""How `put_all` ends."""

TRUNCATED = 3
"""How `collect` ends when something was left out for its size; otherwise with DONE."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def put_all(root: str, files: Mapping[str, Iterable[bytes]]) -> int:
    """Write every file below `root`, exactly."""
    try:
        for path, parts in files.items():
            _put(root, path, parts)
    except OSError as error:
        return DISK_FULL if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} else PATH_REFUSED
    except ValueError:
        return PATH_REFUSED
    return DONE


def collect(root: str, paths: Iterable[str], write: int) -> int:
    """Send each of `paths` that is a regular file to `write`, as frames, whole or not at all."""
    left, status = ARTIFACTS_BYTES, DONE
    for path in paths:
        descriptor = _open_regular(root, path)
        if descriptor is None:
            continue
        size = os.fstat(descriptor).st_size
        if size <= left:
            _send(descriptor, path, size, write)
            left -= size
        else:
            status = TRUNCATED
        os.close(descriptor)
    return status


def _put(root: str, path: str, parts: Iterable[bytes]) -> None:
    folder, name = _walk(root, path, make=True)
    try:
        descriptor = os.open(name, _WRITE, 0o644, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        for part in parts:
            wire.send(descriptor, part)
    finally:
        os.close(descriptor)


def _open_regular(root: str, path: str) -> int | None:
    try:
        folder, name = _walk(root, path, make=False)
        try:
            _look(name, folder, stat.S_ISREG)
            descriptor = os.open(name, _READ, dir_fd=folder)
        finally:
            os.close(folder)
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _walk(root: str, path: str, *, make: bool) -> tuple[int, bytes]:
    """The folder of `path`, open, and its last segment."""
    *folders, name = path.encode().split(b"/")
    if any(part in {b"", b".", b".."} for part in (*folders, name)):
        raise ValueError("path")
    at = os.open(root, _FOLDER)
    for part in folders:
        try:
            if make:
                _make_folder(part, at)
            _look(part, at, stat.S_ISDIR)
            below = os.open(part, _FOLDER, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at, name


def _look(name: bytes, at: int, wanted: Callable[[int], bool]) -> None:
    if not wanted(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        raise ValueError("kind of file")


def _make_folder(name: bytes, at: int) -> None:
    with suppress(FileExistsError):  # of an earlier path; opening it tells whether it is a folder
        os.mkdir(name, 0o755, dir_fd=at)


def _send(descriptor: int, path: str, size: int, write: int) -> None:
    header = {"t": "artifact", "path": path, "size": size}
    sent = 0
    while not sent or sent < size:
        chunk = os.read(descriptor, min(CHUNK, size - sent))
        wire.send(write, wire.encode(header, chunk))
        sent += len(chunk)
        if not chunk:
            return  # an empty file; a shorter one than it was cannot be, nothing else runs
