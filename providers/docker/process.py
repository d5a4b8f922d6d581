"""One process of this machine, read from /proc: what runs, as whom, apart from what. Nothing here decides anything.

Whoever reads must hold a pidfd and find the process alive and not `ending` afterwards: then everything that was read was of
that process, and is what it was before its end began.
It is read before every run, so by plain system calls: a path object costs several times what the kernel does.
"""
# ruff: noqa: PTH116, PTH115, PTH123  # see above

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

NAMESPACES: Final = ("user", "pid", "net", "mnt", "ipc", "uts")
_CAPABILITIES: Final = ("Eff", "Prm", "Inh", "Bnd", "Amb")
_PF_EXITING: Final = 0x4
_HASHED: Final[dict[tuple[int, ...], str]] = {}
_MOST_HASHED: Final = 16


@dataclass(frozen=True, slots=True)
class Executable:
    """The file that a process runs: by device and inode, and the path at which this machine has that same file, if any."""

    device: int
    inode: int
    path: str

    @property
    def on_host(self) -> bool:
        """Whether it is a file of this machine and not of an image."""
        return bool(self.path)


@dataclass(frozen=True, slots=True)
class Process:
    """One process by its number."""

    pid: int
    proc: str = "/proc"

    @property
    def folder(self) -> str:
        """Where the kernel shows it."""
        return f"{self.proc}/{self.pid}"

    def text(self, name: str) -> str:
        """One of its files. Raises OSError."""
        return os.fsdecode(read(f"{self.folder}/{name}"))

    def arguments(self) -> bytes:
        """What it was started with, as it lies in its memory. Raises OSError."""
        return read(f"{self.folder}/cmdline")

    def start(self) -> str:
        """When it began, in ticks since the machine did. Raises OSError."""
        return self.text("stat").rpartition(")")[2].split()[19]

    def ending(self) -> bool:
        """Whether it, or its first thread, is on its way out or gone: from then on what it was reads as gone or as changed.

        Its descriptor says so only later, when the last of its threads has ended.
        """
        try:
            state, *rest = self.text("stat").rpartition(")")[2].split()
        except OSError:
            return True
        return state in "ZX" or bool(int(rest[5]) & _PF_EXITING)

    def status(self) -> dict[str, str]:
        """What the kernel says of its rights. Raises OSError."""
        lines = (line.partition(":") for line in self.text("status").splitlines())
        return {name: " ".join(value.split()) for name, _, value in lines}

    def executable(self) -> Executable:
        """What it runs. Raises OSError, PermissionError where we may not know."""
        link = f"{self.folder}/exe"
        found, path = os.stat(link), os.readlink(link)
        return Executable(found.st_dev, found.st_ino, path if _is_file(path, found) else "")

    def executable_sha256(self) -> str:
        """Of the file that it runs, wherever that is now; read once for one state of a file. Raises OSError."""
        with open(f"{self.folder}/exe", "rb") as file:
            found = os.fstat(file.fileno())
            key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if key not in _HASHED:
                while len(_HASHED) >= _MOST_HASHED:
                    _HASHED.pop(next(iter(_HASHED)))
                _HASHED[key] = hashlib.file_digest(file, "sha256").hexdigest()
            return _HASHED[key]

    def namespaces(self) -> dict[str, str]:
        """Which one of each kind it is in. Raises OSError, PermissionError where we may not know."""
        return {name: os.readlink(f"{self.folder}/ns/{name}") for name in NAMESPACES}

    def devices(self) -> str:
        """The network devices in its network namespace. Raises OSError."""
        lines = self.text("net/dev").splitlines()[2:]
        return " ".join(sorted(line.partition(":")[0].strip() for line in lines))


def read(path: str) -> bytes:
    """A whole file of the kernel's. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)


def apart(own: dict[str, str], others: Iterable[dict[str, str]]) -> dict[str, str]:
    """For each kind of namespace `own`, or `host` when one of the others is in the same."""
    shared = {(name, place) for other in others for name, place in other.items()}
    return {name: "host" if (name, place) in shared else "own" for name, place in own.items()}


def capabilities(status: dict[str, str]) -> dict[str, str]:
    """Each set as a hexadecimal number without leading zeros."""
    return {name.lower(): f"{int(status.get(f'Cap{name}', 'f' * 16), 16):x}" for name in _CAPABILITIES}


def is_powerless(status: dict[str, str], uid: str) -> bool:
    """Whether it runs as that user in every sense, holds nothing and can gain nothing."""
    held = capabilities(status)
    return (
        set(status.get("Uid", "").split()) == {uid}
        and {held[name] for name in ("eff", "prm", "inh", "amb")} == {"0"}
        and status.get("NoNewPrivs") == "1"
    )


def _is_file(path: str, found: os.stat_result) -> bool:
    """Whether this machine has that very file at the path, not behind a link."""
    try:
        here = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(here.st_mode) and (here.st_dev, here.st_ino) == (found.st_dev, found.st_ino)
