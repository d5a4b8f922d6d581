"""The files of a SQLite database: whose they are, who may read them, and who may serve them.

Whoever can write the database is an admin of the service, so a directory or file that others can reach is refused, never
repaired: what they may have read or changed already is for the operator to judge. Files are looked at, never opened,
because closing any descriptor of a database file drops every lock SQLite holds on it in this process.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.store.values import StoreUnusable

_IS = {"directory": stat.S_ISDIR, "regular file": stat.S_ISREG}
_SIDE_FILES = ("", "-wal", "-shm", "-journal", ".lock")


def prepare(path: Path) -> None:
    """Make the directory (0700) and the file (0600) if they are missing, and check what is there. Raises StoreUnusable."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(path.parent, "directory", "700")
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        check_files(path)
    except OSError as error:
        raise StoreUnusable(f"{path}: {error.strerror}") from None


def check_files(path: Path) -> None:
    """Refuse a database whose files are not ours alone. Raises StoreUnusable."""
    for suffix in _SIDE_FILES:
        with suppress(FileNotFoundError):
            _check(path.with_name(path.name + suffix), "regular file", "600")


def _check(path: Path, kind: str, mode: str) -> None:
    # A directory may be reached through a link, a file may not: the link could be swapped for another.
    found = path.stat() if kind == "directory" else path.lstat()
    if not _IS[kind](found.st_mode):
        raise StoreUnusable(f"{path} must be a {kind}")
    if found.st_uid != os.geteuid():
        raise StoreUnusable(f"{path} belongs to uid {found.st_uid}, and this is uid {os.geteuid()}")
    if found.st_mode & 0o077:
        raise StoreUnusable(
            f"{path} can be reached by others: name another, or make it {mode} if it is for this service alone"
        )


def other_owner(path: Path) -> tuple[Path, int] | None:
    """Which directory makes this database another user's, and whose it is; None when it is or can become ours.

    A directory that is missing will be ours, unless root would make it inside somebody's own: that user could not open it.
    """
    directory = path.parent
    present = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    owner, us = present.stat().st_uid, os.geteuid()
    return None if owner == us or (present != directory and us != 0) else (present, owner)


@contextmanager
def sole_owner(path: Path) -> Iterator[None]:
    """Hold the lock that bars a second service on this file. Raises StoreUnusable when another process has it."""
    descriptor = _locked(path)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    lock = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnusable(f"{lock}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise StoreUnusable(f"another plimsolld serves {path}: stop it first") from None
        raise StoreUnusable(f"{lock} cannot be locked: {error.strerror}") from None
    return descriptor
