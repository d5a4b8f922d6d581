"""Where a container's control groups are on this machine, what they limit and what they have counted: version 1, 2, or both.

A controller's group counts as the container's only if its path ends in the container's id, as docker names it with either of
its cgroup drivers.
"""

from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NONE: Final = "none"
"""In place of a number: there is no limit."""
_CONTROLLERS: Final = ("memory", "pids", "cpu")
_UNLIMITED_V1: Final = 1 << 62
"""Version 1 writes the absence of a limit as the largest whole number of pages."""
_MICRO: Final = 1_000_000
_MEMORY_V1: Final[tuple[str, ...]] = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
_MEMORY_V2: Final[tuple[str, ...]] = ("memory.max", "memory.swap.max")
_SOCKETS_V1: Final = "memory.kmem.tcp.limit_in_bytes"
_IN_SOCKETS_V1: Final = "memory.kmem.tcp.usage_in_bytes"
_SOCKET_BYTES: Final = 32 << 20
"""Beyond that a socket gets no more than the least that the kernel gives each, which counts too."""
COUNTED: Final = "counted"
_CPU_V1: Final[tuple[str, ...]] = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
_TAKEN_BACK: Final = ("inactive_file", "active_file", "slab_reclaimable")
"""What the kernel frees when a group needs memory; version 1 does not tell the last."""
_CPU_V2: Final[tuple[str, ...]] = ("cpu.max",)


class Missing(Exception):
    """The container's control groups are not to be found here; `code` says why."""

    def __init__(self, code: str) -> None:
        """Keep the code."""
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Mounts:
    """Where control groups are mounted: version 1 by controller, version 2."""

    first: Mapping[str, Path]
    second: Path | None


@dataclass(frozen=True, slots=True)
class Groups:
    """A container's groups by controller, and which of them are of version 2."""

    folders: Mapping[str, Path]
    second: frozenset[str]

    @property
    def limit_files(self) -> tuple[str, ...]:
        """Every file that says a limit."""
        memory, pids, cpu = (self.folders[name] for name in _CONTROLLERS)
        limits = _MEMORY_V2 if "memory" in self.second else _MEMORY_V1
        shares = _CPU_V2 if "cpu" in self.second else _CPU_V1
        paths = (*(memory / name for name in limits), pids / "pids.max", *(cpu / name for name in shares))
        return tuple(map(str, paths))

    def limits(self) -> dict[str, str]:
        """The limits as whole numbers, but for `cpus`. Raises OSError, ValueError."""
        pids = _number((self.folders["pids"] / "pids.max").read_text())
        return {**self._memory(), "pids": pids, "cpus": self._cpus()}

    def oom_kills(self) -> int:
        """How often the kernel has killed here for want of memory. Raises OSError."""
        name = "memory.events" if "memory" in self.second else "memory.oom_control"
        return _table(self.folders["memory"] / name).get("oom_kill", 0)

    def count_sockets(self) -> str:
        """See to it that what waits in the container's sockets is counted; COUNTED or `uncounted`.

        Version 1 counts it only once there is a limit for it, which no daemon sets any more: until then a container may fill
        the memory that all TCP of the machine shares. Version 2 counts it as memory like any other.
        """
        if "memory" not in self.second:
            with suppress(OSError):
                (self.folders["memory"] / _SOCKETS_V1).write_text(str(_SOCKET_BYTES))
                return COUNTED
            return "uncounted"
        return COUNTED

    def held(self) -> int:
        """Bytes in use, less the file pages that the kernel takes back when it needs them. Raises OSError, ValueError."""
        memory = self.folders["memory"]
        if "memory" in self.second:
            usage, prefix = "memory.current", ""
        else:
            usage, prefix = "memory.usage_in_bytes", "total_"
        stat = _table(memory / "memory.stat")
        back = sum(stat.get(prefix + name, 0) for name in _TAKEN_BACK)
        return max(0, int((memory / usage).read_text()) + self._in_sockets() - back)

    def _in_sockets(self) -> int:
        """What `count_sockets` has counted; nothing where it is part of the rest, or not counted at all."""
        with suppress(FileNotFoundError):
            return (
                0 if "memory" in self.second else int((self.folders["memory"] / _IN_SOCKETS_V1).read_text())
            )
        return 0

    def processes(self) -> list[int]:
        """Every process in the container, as this machine numbers them. Raises OSError."""
        return [int(word) for word in (self.folders["memory"] / "cgroup.procs").read_text().split()]

    def _memory(self) -> dict[str, str]:
        memory = self.folders["memory"]
        if "memory" in self.second:
            swap = _number((memory / "memory.swap.max").read_text())
            # Version 2 cannot turn the killer off.
            return {
                "memory_bytes": _number((memory / "memory.max").read_text()),
                "swap_bytes": swap,
                "oom_kill": "on",
            }
        held, both = (int((memory / f"memory.{name}limit_in_bytes").read_text()) for name in ("", "memsw."))
        off = _table(memory / "memory.oom_control").get("oom_kill_disable")
        return {
            "memory_bytes": NONE if held > _UNLIMITED_V1 else str(held),
            "swap_bytes": NONE if both > _UNLIMITED_V1 else str(both - held),
            "oom_kill": "on" if off == 0 else "off",
        }

    def _cpus(self) -> str:
        cpu = self.folders["cpu"]
        if "cpu" in self.second:
            words = (cpu / "cpu.max").read_text().split()
        else:
            words = [(cpu / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")]
        quota, period = words
        return NONE if quota in {"max", "-1"} else cpus_text(int(quota) / int(period))


def cpus_text(cpus: float) -> str:
    """A share of processors to the millionth, as facts write it."""
    return f"{round(cpus * _MICRO) / _MICRO:g}"


def mounts(mountinfo: str) -> Mounts:
    """From our own /proc/self/mountinfo. Only whole hierarchies count: a part of one has other paths."""
    first: dict[str, Path] = {}
    second = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if fields[3] != "/":
            continue
        if kind[0] == "cgroup":
            first |= dict.fromkeys(kind[2].split(","), Path(fields[4]))
        elif kind[0] == "cgroup2":
            second = Path(fields[4])
    return Mounts(first, second)


def find(of_process: str, container_id: str, where: Mounts) -> Groups:
    """The groups that a process's /proc/<pid>/cgroup names. Raises Missing."""
    paths = _paths(of_process)
    folders: dict[str, Path] = {}
    for name in _CONTROLLERS:
        path = paths.get(name, paths.get("", ""))
        top = where.first.get(name) if name in paths else where.second
        if not is_of(path, container_id):
            raise Missing("cgroup_other")
        if top is None:
            raise Missing("cgroup_unmounted")
        folders[name] = top / path.lstrip("/")
    return Groups(folders, frozenset(name for name in _CONTROLLERS if name not in paths))


def holds(of_process: str, container_id: str) -> bool:
    """Whether a process with this /proc/<pid>/cgroup is in any group of the container's own."""
    return any(is_of(path, container_id) for path in _paths(of_process).values())


def container_of(of_process: str, ids: Container[str]) -> str:
    """Which of these containers a process with this /proc/<pid>/cgroup is in a group of; empty if of none."""
    for path in _paths(of_process).values():
        container = path.rpartition("/")[2].removeprefix("docker-").removesuffix(".scope")
        if container in ids and is_of(path, container):
            return container
    return ""


def is_of(path: str, container_id: str) -> bool:
    """Whether a group's path is this container's own, and not one beside or below it."""
    last = path.rpartition("/")[2]
    return bool(container_id) and ".." not in path and last in {container_id, f"docker-{container_id}.scope"}


def _paths(of_process: str) -> dict[str, str]:
    """Paths by controller; that of version 2 under the empty name."""
    paths: dict[str, str] = {}
    for line in of_process.splitlines():
        _, names, path = line.split(":", 2)
        paths |= dict.fromkeys(names.split(","), path)
    return paths


def _table(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}  # noqa: PLR2004  # a name and a number


def _number(text: str) -> str:
    return NONE if text.strip() == "max" else str(int(text))
