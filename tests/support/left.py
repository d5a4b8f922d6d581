"""Everything that could grow with runs in containers, counted from outside: a service and its providers, the daemon, the host.

What grows by an amount for each run is compared, before and after, within a tolerance. What belongs to a container that is
gone (control groups, processes, a name in the table) has no tolerance.
"""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from providers.docker.names import FIRST_UID, MAKING_S, PREFIX
from tests.bench.processes import children
from tests.support.births import Births
from tests.support.docker import Daemon
from tests.support.runs import rss_mb
from tests.support.service import Running

Counts = dict[str, float]
_LATELY_S: Final = 15.0
"""What a daemon said it had destroyed so shortly before its end may still have been on its way out."""
_OF_A_SHIM: Final = 6
"""Descriptors that containerd has for each, at most."""
_CGROUPS: Final = "/sys/fs/cgroup"

TOLERANCE: Final[Mapping[str, float]] = {
    # Kept connections: each caller's to the service, each background task's to the daemon. They are closed after some seconds.
    "descriptors": 8,
    # Pools of threads make one when all are busy at the same moment, which may happen late, and keep it.
    "threads": 8,
    # Go keeps as many as were ever busy at once.
    "dockerd threads": 24,
    "containerd threads": 24,
    # The allocator keeps what it had at the worst moment: eight runs with both outputs at their caps, in some copies.
    "MiB": 12,
    # One for each container that waits and for what it was made of: as many before as after.
    "mounts": 0,
    "containers": 0,
    # The interpreter that waits in each of four containers may just be starting.
    "guest processes": 4,
}
"""By a count's name, or its last word or words."""


@dataclass
class Machine:
    """A daemon, all the containers that it had since, and perhaps a service with its data."""

    docker: Daemon
    births: Births
    data: Path | None = None
    running: Running | None = None
    forgotten: frozenset[str] = frozenset()
    """Containers that the daemon does not know any more: see `forget`."""
    others: frozenset[str] = frozenset()
    """Containers that were there before: whoever made them may have left the daemon unable to remove them."""

    def counts(self) -> Counts:
        """Everything that may come and go."""
        found = self._of_daemon()
        if self.running is not None:
            api = self.running.process.pid
            found |= _of_process("API", api)
            for number, provider in enumerate(children(api)):
                found |= _of_process(f"provider {number}", provider)
        return found

    def listed(self) -> dict[str, dict[str, Any]]:
        """What the daemon has, by id; without those of before its end that it lists as dead and then says it does not know."""
        told_of = self.docker.call("GET", "/containers/json?all=1")
        found = {each["Id"]: each for each in told_of if each["Id"] not in self.others}
        ghosts = {each for each, told in found.items() if told["State"] == "dead" and each in self.forgotten}
        return {each: told for each, told in found.items() if each not in ghosts}

    def told(self) -> list[str]:
        """What the daemon says of each container, and which processes it has: for whoever asks why it is still there."""
        return [
            f"{each['State']} {each['Status']} {each['Names']} {_processes([name])}"
            for name, each in self.listed().items()
        ]

    def left(self) -> list[str]:
        """What belongs to containers that are gone, and names of which there is no container."""
        listed = self.listed()
        names = {name for each in listed.values() for name in each["Names"]}
        dead = self.births.ids - listed.keys() - self.forgotten - self.others
        found = [f"control group {each}" for each in _groups(dead)]
        found += [f"process {each}" for each in _processes(dead)]
        places = [path for path in self._names() if f"/{path.name}" not in names]
        return found + [f"name {each.name}" for each in places]

    def forget(self) -> None:
        """The daemon ends, or has ended. Of what it had then it may forget some, and only the machine's owner can end that.

        A container that was made and auto-removes is dropped by the daemon when that is back. If its start was under way,
        containerd has a shim by then, perhaps with the runtime's own processes that wait for its start; if its end was,
        perhaps an empty shim, also after it said that all was destroyed. No request of the daemon's interface reaches them, and
        no program of a run is in them.
        """
        lately = time.time() - _LATELY_S
        times = self.births.times.items()
        self.forgotten |= {each for each, told in times if told.get("destroy", math.inf) > lately}

    def running_unknown(self) -> list[str]:
        """Agents and guests in what the daemon has forgotten; under gVisor the host sees neither."""
        unknown = self.forgotten - self.listed().keys()
        return _processes(unknown, _is_container)

    def clear(self) -> None:
        """End what was forgotten, as the machine's owner would."""
        self.forgotten -= self.listed().keys()
        for each in _processes(self.forgotten):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(each.split()[0]), signal.SIGKILL)
        end = time.monotonic() + 30
        while groups := _groups(self.forgotten):
            assert time.monotonic() < end, groups
            for group in reversed(groups):
                with contextlib.suppress(OSError):  # its last process is on its way out
                    Path(group).rmdir()
            time.sleep(0.1)

    def settled(self, holds: Callable[[], bool] = lambda: True, seconds: float = 150) -> Counts:
        """Wait until nothing of dead containers is left and `holds`; the counts then."""
        end = time.monotonic() + seconds
        while (left := self.left()) or not holds():
            assert time.monotonic() < end, left or self.told()
            time.sleep(0.1)
        return self.counts()

    def assert_flat(self, before: Counts, holds: Callable[[], bool], seconds: float = 60) -> Counts:
        """Wait until no count exceeds what it was by more than its tolerance; the counts then."""
        end = time.monotonic() + seconds
        while grown := _grown(before, now := self.settled(holds)):
            assert time.monotonic() < end, f"grown (before, now): {grown}; there are {self.told()}"
            time.sleep(0.5)
        return now

    def _names(self) -> list[Path]:
        """In the service's table. One that was never made may come to be for a while after a daemon was killed."""
        found = (
            [] if self.data is None else [each for each in self.data.rglob(f"{PREFIX}*") if each.is_file()]
        )
        if not self.forgotten:
            return found
        return [each for each in found if _age_s(each) > MAKING_S]

    def _of_daemon(self) -> Counts:
        listed = self.listed()
        own = [child for child in children(self.docker.pid) if _name(child) == "containerd"]
        mounts = Path(f"/proc/{self.docker.pid}/mountinfo").read_text().splitlines()
        found: Counts = {
            "containers": len(listed),
            "mounts": sum(
                Path(line.split(" ")[4]).is_relative_to(self.docker.place.resolve()) for line in mounts
            ),
            "guest processes": len(_processes(listed, _is_guest)),
        }
        for name, pid in (("dockerd", self.docker.pid), *(("containerd", each) for each in own)):
            found |= {
                key: value for key, value in _of_process(name, pid).items() if not key.endswith("MiB")
            }  # Go gives memory back when it likes
        if own:  # it goes on to hold what the daemon has forgotten
            unknown = _processes(self.forgotten - listed.keys())
            shims = sum("containerd-shim" in each for each in unknown)
            found["containerd descriptors"] -= _OF_A_SHIM * shims
        return found


def _grown(before: Counts, now: Counts) -> dict[str, tuple[float, float]]:
    return {
        name: (before[name], value)
        for name, value in now.items()
        if value - before.get(name, 0) > _tolerance(name)
    }


def _tolerance(name: str) -> float:
    return TOLERANCE.get(name) or next(value for end, value in TOLERANCE.items() if name.endswith(end))


def _of_process(name: str, pid: int) -> Counts:
    place = Path(f"/proc/{pid}")
    return {
        f"{name} descriptors": sum(1 for _ in (place / "fd").iterdir()),
        f"{name} threads": sum(1 for _ in (place / "task").iterdir()),
        f"{name} MiB": rss_mb(pid),
    }


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _age_s(place: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return time.time() - place.stat().st_mtime
    return 0


def _groups(ids: Iterable[str]) -> list[str]:
    """Control groups of these containers, in every hierarchy."""
    names = {each for one in ids for each in (one, f"docker-{one}.scope")}
    return [
        os.path.join(place, each)  # noqa: PTH118  # thousands of them, and a path object costs more than the look
        for place, folders, _ in os.walk(_CGROUPS)
        for each in folders
        if each in names
    ]


def _is_container(uid: int) -> bool:
    return uid >= FIRST_UID


def _is_guest(uid: int) -> bool:
    return _is_container(uid) and uid % 2 == 1


def _processes(ids: Iterable[str], of: Callable[[int], bool] = lambda _: True) -> list[str]:
    """Processes in control groups of these containers, or started for one of them; perhaps only those of some users."""
    wanted = frozenset(ids)
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and wanted:
            try:
                told = (place / "cgroup").read_text() + (place / "cmdline").read_text(errors="replace")
                owner = place.stat().st_uid
            except OSError:  # it has ended
                continue
            if any(each in told for each in wanted) and of(owner):
                found.append(f"{place.name} {_name(int(place.name))}")
    return found
