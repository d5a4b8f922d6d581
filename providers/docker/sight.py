"""What the kernel says of one container, read on the host side before it gets any code, and read again cheaply later.

Nothing here asks the daemon: its word is only where to look (a pid), and that process must be in the control groups of this
container. A process elsewhere (a remote daemon, another pid namespace, a decoy) is no proof, and neither is what we may not
read. Numbers and paths stay out of the facts, so that equal walls have equal facts.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from plimsoll.contract.tiers import Tier
from providers.docker import cgroups, hidden, mounts, process, runsc
from providers.docker.cgroups import Groups
from providers.docker.process import Executable, Process
from providers.seam import Observation

AGENT: Final = "agent"
"""How facts write the uid that this container's agent has, and no other container's."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container was created with. No swap on top of `memory_bytes`; `uid` is the agent's."""

    memory_bytes: int
    pids: int
    cpus: float
    uid: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory that the kernel cannot take back, against the limit at which it kills."""

    held_bytes: int
    limit_bytes: int


class Unseen(Exception):
    """There is no local proof for this container; `code` says why. It says nothing about how strong the wall is.

    `not_linux`, `pid_unknown` (no such process here), `cgroup_other` (it is not this container's), `cgroup_ignored` (a known
    gVisor runs this container outside of its control groups, so without limits), `cgroup_unmounted`, `no_rights` (we may not
    read what it runs: that takes root), `process_gone`.
    """

    def __init__(self, code: str) -> None:
        """Keep the code."""
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class _Mark:
    """What must not change while a container serves."""

    start: str
    executable: Executable
    arguments: bytes
    groups: str
    limits: tuple[bytes, ...]


class Sight:
    """One container's process as the host sees it. Synchronous: `open` takes a few milliseconds, the rest well below one."""

    def __init__(
        self, pidfd: int, found: Process, groups: Groups, limits: Limits, seen: tuple[Observation, ...]
    ) -> None:
        """Takes the pidfd over; `open` is how one is made. Raises OSError."""
        self.observations = seen
        """Facts without ids or pids: equal for equal walls."""
        self._pidfd = pidfd
        self._process = found
        self._groups = groups
        self._limits = limits
        self._limit_files = groups.limit_files
        self._mark = self._read_mark()

    @classmethod
    def open(cls, container_id: str, pid: int, limits: Limits, runsc_sha256: frozenset[str]) -> Self:
        """Look at the process that the daemon names. Raises Unseen."""
        if sys.platform != "linux":
            raise Unseen("not_linux")
        try:
            pidfd = os.pidfd_open(pid)
        except (OSError, OverflowError):
            raise Unseen("pid_unknown") from None
        try:
            return cls._open(pidfd, container_id, pid, limits, runsc_sha256)
        except BaseException:
            os.close(pidfd)
            raise

    @classmethod
    def _open(
        cls, pidfd: int, container_id: str, pid: int, limits: Limits, runsc_sha256: frozenset[str]
    ) -> Self:
        found = Process(pid)
        try:
            where = cgroups.mounts(Process(os.getpid()).text("mountinfo"))
            groups = _groups(found, container_id, where, runsc_sha256)
            seen = tuple(_look(found, groups, container_id, limits, runsc_sha256))
            made = cls(pidfd, found, groups, limits, seen)
        except cgroups.Missing as missing:
            raise Unseen("process_gone" if found.ending() else missing.code) from None
        except PermissionError:
            raise Unseen("no_rights") from None
        except (OSError, ValueError, IndexError):
            raise Unseen("process_gone") from None
        if made.ended:  # only now is it sure that all of this was read of one process
            raise Unseen("process_gone")
        return made

    @property
    def alive(self) -> bool:
        """Whether any of it is left."""
        return self._pidfd >= 0 and not select.select([self._pidfd], [], [], 0)[0]

    @property
    def ended(self) -> bool:
        """Whether it has ended, or its end has begun: then nothing that is read of it says that its wall changed."""
        return not self.alive or self._process.ending()

    def same(self) -> bool:
        """Whether the process lives and is what it was: start, executable, arguments, cgroup and its limits."""
        try:
            return self._read_mark() == self._mark and not self.ended
        except (OSError, IndexError):
            return False

    def oom_kills(self) -> int:
        """How often the kernel has killed in this container for want of memory; 0 once it is gone."""
        with contextlib.suppress(OSError, ValueError):
            return self._groups.oom_kills()
        return 0

    def memory(self) -> Usage:
        """What it holds now; nothing once it is gone."""
        held = 0
        with contextlib.suppress(OSError, ValueError):
            held = self._groups.held()
        return Usage(held, self._limits.memory_bytes)

    def leaves(self) -> bool:
        """Whether there are processes in its control groups, also after its own has ended."""
        with contextlib.suppress(OSError, ValueError):
            return bool(self._groups.processes())
        return False

    def kill(self) -> None:
        """End that very process, and with it all that runs in its container; never raises, and again is fine.

        The daemon's own way asks the runtime first, and a gVisor that a guest keeps busy may let it wait for a minute.
        """
        if self._pidfd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Let go of the process; never raises, and again is fine."""
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)

    def __enter__(self) -> Self:
        """Close at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _read_mark(self) -> _Mark:
        found = self._process
        return _Mark(
            found.start(),
            found.executable(),
            found.arguments(),
            found.text("cgroup"),
            tuple(map(process.read, self._limit_files)),
        )


def _groups(found: Process, container_id: str, where: cgroups.Mounts, vouched: frozenset[str]) -> Groups:
    """Raises Missing, and tells a process elsewhere from one of this container that was left without limits."""
    try:
        return cgroups.find(found.text("cgroup"), container_id, where)
    except cgroups.Missing as missing:
        is_named = found.arguments().endswith(b"\0%b\0" % container_id.encode()) and container_id
        if is_named and found.executable().on_host and runsc.release_of(found.executable_sha256(), vouched):
            raise cgroups.Missing("cgroup_ignored") from missing
        raise


# --- facts ----------------------------------------------------------------------------------------------------------------


def _look(
    found: Process, groups: Groups, container_id: str, limits: Limits, vouched: frozenset[str]
) -> Iterator[Observation]:
    executable, status = found.executable(), found.status()
    digest = found.executable_sha256() if executable.on_host else ""
    release = runsc.release_of(digest, vouched)
    supports = Tier.KERNEL if release else Tier.CONTAINER
    yield _fact("limits.memory_bytes", str(limits.memory_bytes), "asked for", supports)
    yield _fact("limits.pids", str(limits.pids), "asked for", supports)
    yield _fact("limits.cpus", cgroups.cpus_text(limits.cpus), "asked for", supports)
    for name, value in groups.limits().items():
        yield _fact(f"cgroup.{name}", value, "the container's control group", supports)
    yield from _of_executable(executable, digest, release, supports)
    yield from _of_rights(found, status, limits.uid, supports)
    yield from _of_namespaces(found, status, supports)
    if release:
        yield from _of_gvisor(
            found, executable, groups, release, runsc.Place(container_id, limits.memory_bytes)
        )
    else:
        yield from _of_container(found, groups, limits.uid + 1)


def _of_executable(
    executable: Executable, digest: str, release: str, supports: Tier
) -> Iterator[Observation]:
    how = "/proc/<pid>/exe"
    yield _fact("sandbox.executable", "host" if executable.on_host else "image", how, supports)
    if executable.on_host:
        yield _fact("sandbox.executable_sha256", digest, how, supports)
    yield _fact("sandbox.release", release, f"{how}, by its SHA-256", supports)


def _of_rights(found: Process, status: dict[str, str], agent: int, supports: Tier) -> Iterator[Observation]:
    how = "/proc/<pid>/status"
    names = {"uids": "Uid", "gids": "Gid", "groups": "Groups", "no_new_privs": "NoNewPrivs"}
    names |= {"seccomp": "Seccomp", "traced_by": "TracerPid"}
    for name, key in names.items():
        words = status.get(key, "unknown").split()
        if name in {"uids", "gids"}:
            words = [AGENT if word == str(agent) else word for word in words]
        yield _fact(f"sandbox.{name}", " ".join(words), how, supports)
    for name, value in process.capabilities(status).items():
        yield _fact(f"sandbox.cap_{name}", value, how, supports)
    yield _fact(
        "sandbox.oom_score_adj", found.text("oom_score_adj").strip(), "/proc/<pid>/oom_score_adj", supports
    )


def _of_namespaces(found: Process, status: dict[str, str], supports: Tier) -> Iterator[Observation]:
    """Against our own, and those of the process that started it: that one is the daemon's."""
    others = (Process(os.getpid()), Process(int(status["PPid"])))
    held = process.apart(found.namespaces(), [other.namespaces() for other in others])
    for name, value in held.items():
        yield _fact(f"namespace.{name}", value, "/proc/<pid>/ns", supports)
    yield _fact("network.devices", found.devices(), "/proc/<pid>/net/dev", supports)


def _of_gvisor(
    found: Process, executable: Executable, groups: Groups, release: str, place: runsc.Place
) -> Iterator[Observation]:
    words = os.fsdecode(found.arguments()).split("\0")[:-1]
    said = runsc.read(words, runsc.family_of(release), place)
    how = "/proc/<pid>/cmdline"
    yield _fact("sandbox.platform", said.platform, how, Tier.KERNEL)
    yield _fact("sandbox.network", said.network, how, Tier.KERNEL)
    yield _fact("sandbox.flags", " ".join(said.faults) or "expected", how, Tier.KERNEL)
    (root, *more) = mounts.parse(found.text("mountinfo"))
    value = f"{root.text} {root.place}" if not more else f"{1 + len(more)} mounts"
    yield _fact("sandbox.mounts", value, "/proc/<pid>/mountinfo", Tier.KERNEL)
    alone = all(_runs(pid, executable) for pid in groups.processes())
    value = "the same executable" if alone else "others"
    yield _fact(
        "sandbox.processes", value, "/proc/<pid>/exe of every process in the control group", Tier.KERNEL
    )


def _of_container(found: Process, groups: Groups, guest: int) -> Iterator[Observation]:
    # It is the same kernel, so what is there for us would be there for the container.
    to_hide = [path for path in hidden.PATHS if os.path.exists(path)]  # noqa: PTH110  # it never raises
    for name, value in mounts.facts(found.text("mountinfo"), to_hide).items():
        yield _fact(name, value, "/proc/<pid>/mountinfo", Tier.CONTAINER)
    how = "the container's control group"
    yield _fact("cgroup.socket_memory", groups.count_sockets(), how, Tier.CONTAINER)
    others = [Process(pid) for pid in groups.processes() if pid != found.pid]
    powerless = all(_is_powerless(other, guest) for other in others)
    how = "/proc/<pid>/status of every process in the control group"
    yield _fact("sandbox.processes", "powerless" if powerless else "others", how, Tier.CONTAINER)


def _runs(pid: int, executable: Executable) -> bool:
    try:
        return Process(pid).executable() == executable
    except (FileNotFoundError, ProcessLookupError):
        return True  # it has ended


def _is_powerless(found: Process, guest: int) -> bool:
    try:
        status = found.status()
    except (FileNotFoundError, ProcessLookupError):
        return True  # it has ended
    return status.get("State", "").startswith("Z") or process.is_powerless(status, str(guest))


def _fact(name: str, value: str, how: str, supports: Tier) -> Observation:
    return Observation(name, value, "host", how, supports)
