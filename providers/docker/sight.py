"""What the kernel says of one container, read on the host side before it gets any code, and read again cheaply later.

Nothing here asks the daemon: its word is only where to look (a pid), and that process must be in the cgroup of this container.
"""

from dataclasses import dataclass
from typing import Self

from providers.seam import Observation


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container was created with. No swap on top of `memory_bytes`."""

    memory_bytes: int
    pids: int
    cpus: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory that the kernel cannot take back, against the limit at which it kills."""

    held_bytes: int
    limit_bytes: int


class Unseen(Exception):
    """There is no local proof for this container; `code` says why. It says nothing about how strong the wall is."""

    def __init__(self, code: str) -> None:
        """Keep the code."""
        super().__init__(code)
        self.code = code


class Sight:
    """One container's process as the host sees it. Synchronous: `open` takes a few milliseconds, the rest well below one."""

    observations: tuple[Observation, ...]
    """Facts without ids or pids: equal for equal walls."""

    @classmethod
    def open(cls, container_id: str, pid: int, limits: Limits, runsc_sha256: frozenset[str]) -> Self:
        """Look at the process that the daemon names. Raises Unseen."""
        raise NotImplementedError

    def same(self) -> bool:
        """Whether the process lives and is what it was: start, executable, arguments, cgroup and its limits."""
        raise NotImplementedError

    def oom_kills(self) -> int:
        """How often the kernel has killed in this container for want of memory; 0 once it is gone."""
        raise NotImplementedError

    def memory(self) -> Usage:
        """What it holds now; nothing once it is gone."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the process; never raises, and again is fine."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Close at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
