"""A file that only takes up room: removed when the disk is full, since a full disk refuses to delete rows as well.

It keeps enough for ends of runs to be written and for retention to make room, after which it is made anew: four times what
SQLite's log beside the file grows to. Until then what it gave back is no room for new runs.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

MOST_BYTES = 16 << 20
SHARE: Final = 0.2
"""Of a small disk it takes this share at most."""
RELEASE_UNDER: Final = 0.01
MAKE_OVER: Final = 0.10
"""What must be free of the disk with the ballast in place."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The size of a file system, and what is free of it, in bytes."""

    size: int
    free: int


def disk_of(path: Path) -> Disk:
    """The file system under `path`. Raises OSError."""
    found = os.statvfs(path)
    return Disk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def _wanted(disk: Disk) -> int:
    return min(MOST_BYTES, int(disk.size * SHARE))


class Ballast:
    """The ballast beside a database file."""

    def __init__(self, database: Path, disk: Callable[[Path], Disk] = disk_of) -> None:
        """Nothing is made yet."""
        self.path = database.with_name(database.name + ".ballast")
        self._folder, self._disk = database.parent, disk

    def missing_bytes(self, disk: Disk) -> int:
        """What is still to be put aside of this disk."""
        return 0 if self.path.exists() else _wanted(disk)

    def tend(self) -> Literal["released", "made"] | None:
        """Remove it when less than 1 % is free, make it when there is room: what was done. Raises OSError."""
        disk = self._disk(self._folder)
        if self.path.exists():
            if disk.free >= disk.size * RELEASE_UNDER:
                return None
            self.remove()
            return "released"
        if disk.free - _wanted(disk) < disk.size * MAKE_OVER:
            return None
        self._make(_wanted(disk))
        return "made"

    def remove(self) -> None:
        """Give its room back."""
        self.path.unlink(missing_ok=True)

    def _make(self, size: int) -> None:
        descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError:
            with suppress(OSError):
                self.remove()
            raise
        finally:
            os.close(descriptor)
