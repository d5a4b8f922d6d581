"""A directory of its own for each docker provider, made before its process: what is in it decides which containers are ours.

It is refused when others can reach it, never repaired: what they may have written already is for the operator to judge.
"""

import os
import stat
from pathlib import Path


class UnsafeStateError(Exception):
    """A directory is not ours alone; the message says which and why."""


def make_state_directory(path: Path, *, below: Path) -> None:
    """Make `path` and what is missing of the way to it, 0700. Raises OSError, UnsafeStateError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)  # the way to it as the umask says: 077
    _check(below.stat(), below)  # this one may be reached through a link, what is in it may not
    while path != below:
        _check(path.lstat(), path)
        path = path.parent


def _check(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeStateError(f"{path} must be a directory")
    if found.st_uid != os.geteuid():
        raise UnsafeStateError(f"{path} belongs to uid {found.st_uid}, and this is uid {os.geteuid()}")
    if found.st_mode & 0o077:
        raise UnsafeStateError(
            f"{path} can be reached by others: make it 700 if it is for this service alone"
        )
