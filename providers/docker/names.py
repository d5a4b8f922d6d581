"""The names of containers that this process made and that may still exist; only they are ever removed by name.

A table is a directory with one file for each name, locked as long as its process lives. A name is written before its container
is made, with the container's id once that is known, and taken out after it is surely gone. A table whose process is dead is
taken over by the next one that opens the same state directory for the same daemon; of two that live, neither touches the
other's.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, Self

from providers.docker import remains

PREFIX: Final = "plimsoll-"
FIRST_UID: Final = 0x7000_0000
"""The first uid of a container. Below lies what systemd takes for its containers, and what people have."""
CONTAINERS: Final = 1 << 27
"""So many have a pair of uids each: beyond, a uid would be negative to programs that take 32 bits for a signed number."""
EVERY_S: Final = 60.0
MAKING_S: Final = 120.0
"""So long after it was asked for, a container of that name may still come to be: the daemon finishes what it has begun."""
_ID: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(re.escape(PREFIX) + r"[0-9a-f]{32}")
_TABLE: Final = re.compile(r"[0-9a-f]{32}")
_LOCK_S: Final = 5.0
_PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

Remove = Callable[[str], Coroutine[Any, Any, bool]]
"""Remove the container of that name; whether it was there. Raises when it is not surely gone."""
End = Callable[[frozenset[str]], frozenset[str]]
"""End what processes are left of containers of these ids; those of which some are still there. May take seconds."""


class StateRefused(Exception):
    """The state directory is not one that only this user can write."""


def uid_of(name: str) -> int:
    """The uid of that container's agent; the next one is its guest's. A kernel counts much by the user."""
    return FIRST_UID + 2 * (int(name[-8:], 16) % CONTAINERS)


class Names:
    """One process's table for one daemon. Use as a context manager. Synchronous: each step is one call on a directory."""

    def __init__(self, state_dir: str, host: str) -> None:
        """`host` is the daemon's address: names mean nothing to another one."""
        self._home = Path(state_dir) / f"docker-{hashlib.sha256(host.encode()).hexdigest()[:16]}"
        self._lock = -1
        self._place = self._home / secrets.token_hex(16)
        self._alive: set[str] = set()
        self._ids: dict[str, str] = {}
        """Of the containers that were made."""
        self.doubtful: set[str] = set()
        """Names of strays that were made and of which processes may be left: they count like those that are looked after."""

    def __enter__(self) -> Self:
        """Lock a table of our own; take over what dead processes left. Raises StateRefused, OSError."""
        _private(self._home.parent)
        _private(self._home)
        with _held(self._home):  # no table is seen before it is locked
            self._place.mkdir(0o700)
            self._lock = _locked(self._place)
            for other in self._home.iterdir():
                if _TABLE.fullmatch(other.name) and other != self._place:
                    self._take_over(other)
        self._ids = {name: found for name in self.strays() if (found := self._read_id(name))}
        self.doubtful = set(self._ids)
        return self

    def __exit__(self, *_: object) -> None:
        """Let go. A table that still has names stays, for the next process."""
        with contextlib.suppress(OSError), _held(self._home):
            self._place.rmdir()
        os.close(self._lock)

    def new(self) -> str:
        """A name for a container, written down; no other in the table has its uids. Raises OSError when it cannot be."""
        taken = {uid_of(entry.name) for entry in self._place.iterdir() if _NAME.fullmatch(entry.name)}
        name = next(name for name in _random_names() if uid_of(name) not in taken)
        os.close(os.open(self._place / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self._alive.add(name)
        return name

    def made(self, name: str, container: str) -> None:
        """Its container was made, with this id: once that is gone, no other will come to be."""
        with contextlib.suppress(
            OSError
        ):  # without room for the id the next process looks for it by its name alone
            (self._place / name).write_text(container)
        os.utime(self._place / name, (0, 0))
        self._ids[name] = container

    def forget(self, name: str) -> None:
        """Its container is surely gone."""
        self._alive.discard(name)
        self.doubtful.discard(name)
        self._ids.pop(name, None)
        (self._place / name).unlink(missing_ok=True)

    def abandon(self, name: str) -> None:
        """Nobody here looks after its container any more: whoever sweeps removes it."""
        self._alive.discard(name)
        if name in self._ids:
            self.doubtful.add(name)

    def strays(self) -> list[str]:
        """Every name in the table whose container nobody here looks after."""
        names = (entry.name for entry in self._place.iterdir())
        return sorted(name for name in names if _NAME.fullmatch(name) and name not in self._alive)

    async def end_remains(self, end: End) -> frozenset[str]:
        """End what processes are left of strays; the names of those of which some are still there. Raises OSError."""
        ids = {name: self._ids[name] for name in self.strays() if name in self._ids}
        alive = await asyncio.to_thread(end, frozenset(ids.values())) if ids else frozenset()
        left = frozenset(name for name, container in ids.items() if container in alive)
        self.doubtful = (self.doubtful - ids.keys()) | left
        return left

    def settled(self, name: str) -> bool:
        """Whether a container of that name can no longer come to be when there is none now."""
        with contextlib.suppress(FileNotFoundError):
            return time.time() - (self._place / name).stat().st_mtime > MAKING_S
        return True

    def _read_id(self, name: str) -> str:
        text = (self._place / name).read_text(errors="replace")
        return text if _ID.fullmatch(text) else ""

    def _take_over(self, other: Path) -> None:
        with contextlib.suppress(OSError):  # another process took it, or its process lives
            lock = _locked(other)
            try:
                for entry in other.iterdir():
                    entry.rename(self._place / entry.name)
                other.rmdir()
            finally:
                os.close(lock)


class Reaper:
    """Removes what nobody looks after: at once, then every minute; what cannot be removed is tried again, slower and slower.

    What processes are left of it on this machine are ended first, whether or not there is a daemon, and whatever that knows.
    """

    def __init__(
        self, names: Names, remove: Remove, end: End = remains.end, ended: Callable[[], None] = lambda: None
    ) -> None:
        """Nothing runs yet. `ended` is called when there may be fewer of them than there were."""
        self._names = names
        self._remove = remove
        self._end = end
        self._ended = ended
        self.wanted = asyncio.Event()
        """Set it to have a look soon."""

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            self.wanted.clear()
            failures = 0 if await self.sweep() else failures + 1
            pause = _PAUSES[min(failures, len(_PAUSES)) - 1] if failures else EVERY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.wanted.wait()

    async def sweep(self) -> bool:
        """One round; false when something could not be removed."""
        try:
            strays = self._names.strays()
            left = await self._names.end_remains(self._end)
        except OSError as failure:
            _say(type(failure).__name__)
            return False
        self._ended()
        done = [await self._try(name, left=name in left) for name in strays]
        return all(done)

    async def _try(self, name: str, *, left: bool) -> bool:
        try:
            there = await self._remove(name)
            if left:
                _say("processes_left")
                return False
            if there or self._names.settled(name):
                self._names.forget(name)
        except Exception as failure:  # noqa: BLE001  # one that fails never keeps the others from being removed
            _say(str(getattr(failure, "code", type(failure).__name__)))
            return False
        return True


def _random_names() -> Iterator[str]:
    while True:
        yield PREFIX + secrets.token_hex(16)


def _say(code: str) -> None:
    sys.stderr.write(json.dumps({"event": "container-not-removed", "code": code}) + "\n")


def _private(directory: Path) -> None:
    """Make it, or check that it is ours alone."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(0o700)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StateRefused


def _locked(directory: Path) -> int:
    """A descriptor that holds the lock. Raises BlockingIOError when another process does, or OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """The lock over all tables, held for a moment. Raises OSError when it is not to be had within five seconds."""
    deadline = time.monotonic() + _LOCK_S
    descriptor = -1
    while descriptor < 0:
        try:
            descriptor = _locked(directory)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    try:
        yield
    finally:
        os.close(descriptor)
