"""How much memory this sandbox may hold, seen from inside: all there is under gVisor, else what the control group says."""

from contextlib import suppress
from pathlib import Path

_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_MIB = 1 << 20


def memory_mb(root: Path = Path("/")) -> int:
    """The least of what is said there."""
    found = [int(words[1]) << 10 for words in _lines(root / "proc/meminfo") if words[0] == "MemTotal:"]
    found += [int(words[0]) for name in _GROUPS for words in _lines(root / name[1:]) if words[0] != "max"]
    return min(found, default=512 * _MIB) // _MIB


def write_down(folder: Path) -> None:
    """For the image's `node`, which must be told: else it gives up by itself at half of that. Raises OSError."""
    place = folder / "memory_mb"
    place.write_text(f"{memory_mb()}\n")
    place.chmod(0o644)


def _lines(path: Path) -> list[list[str]]:
    with suppress(OSError):
        return [line.split() for line in path.read_text().splitlines()]
    return []
