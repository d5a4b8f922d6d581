"""What processes use, from /proc."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat: user, nice, system, interrupts (two) and what another machine on the same processors took."""


def busy_s(stat: str) -> float:
    """Processor seconds that all programs together have used since the start of the machine; `stat` is /proc/stat."""
    used = [int(each) for each in stat.splitlines()[0].split()[1:]]
    return sum(used[each] for each in _BUSY) / _TICKS


def others_cpus(pause_s: float = 1.0) -> float:
    """Processors that other programs use, seen in a pause in which this one and all that it started do nothing."""
    stat, began = Path("/proc/stat"), time.monotonic()
    before = busy_s(stat.read_text())
    time.sleep(pause_s)
    return (busy_s(stat.read_text()) - before) / (time.monotonic() - began)


def children(pid: int) -> list[int]:
    """Direct children, of any thread, oldest first; none of a process that has ended."""
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
                found.update(map(int, (task / "children").read_text().split()))
    return sorted(found)


def descendants(pid: int) -> list[int]:
    """All of them, nearest first."""
    found = children(pid)
    for each in found:
        found.extend(children(each))
    return found


def cpu_s(pid: int) -> float:
    """CPU time that a process and its children that ended have used, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one process, KiB. `private` is what would be free without it."""

    rss: int
    private: int


def memory(pid: int) -> Memory:
    """Sums over all mappings. Needs the right to trace the process."""
    fields = _fields(Path(f"/proc/{pid}/smaps_rollup"))
    return Memory(fields["Rss"], fields["Private_Clean"] + fields["Private_Dirty"])


def resident(pid: int) -> tuple[int, int]:
    """(RSS now, highest RSS ever), KiB."""
    fields = _fields(Path(f"/proc/{pid}/status"))
    return fields["VmRSS"], fields["VmHWM"]


def _fields(file: Path) -> dict[str, int]:
    pairs = (line.split()[:2] for line in file.read_text().splitlines() if line.endswith(" kB"))
    return {name.rstrip(":"): int(value) for name, value in pairs}
