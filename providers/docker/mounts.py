"""What a container under the host's own kernel can reach through its mounts, read from its /proc/<pid>/mountinfo. Pure."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from providers.docker.hidden import TERMINALS
from providers.docker.recipe import INODES

PROMISED: Final = ("/workspace", "/tmp", "/dev/shm")  # noqa: S108  # the container's own
"""Where a guest may write: memory file systems with bounds on bytes and files, from which nothing is executed."""
_CLOSED: Final = frozenset({"nosuid", "nodev", "noexec"})
HIDDEN: Final = "all"
_WRITABLE: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    **dict.fromkeys(PROMISED, ("tmpfs", _CLOSED)),
    "/proc": ("proc", _CLOSED),
    "/dev": ("tmpfs", frozenset({"nosuid"})),
    "/dev/pts": ("devpts", frozenset({"nosuid", "noexec"})),
    "/dev/mqueue": ("mqueue", _CLOSED),
    "/sys/fs/cgroup": ("tmpfs", _CLOSED),
}
"""Mounts that are not read-only, with what they must be. In those that are not promised only root can write."""
_FILES: Final = frozenset({"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"})
"""The daemon's own files, which it always binds."""
_KERNEL: Final = frozenset({"proc", "sysfs", "tmpfs", "cgroup", "cgroup2"})
_BOUNDS = re.compile(r"(?:^|,)((?:size|nr_inodes)=\d+[kmg]?)(?=,|$)")
_CHARACTER = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line: where, what of its file system, how it is mounted here, and the file system's own options."""

    place: str
    part: str
    flags: frozenset[str]
    kind: str
    options: str

    @property
    def read_only(self) -> bool:
        """Here, whatever the file system allows elsewhere."""
        return "ro" in self.flags

    @property
    def text(self) -> str:
        """As facts write it."""
        flags = ",".join(sorted(self.flags & {"ro", *_CLOSED}))
        return " ".join(filter(None, (self.kind, flags, *_BOUNDS.findall(self.options))))


def parse(mountinfo: str) -> list[Mount]:
    """Every mount, in order."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(" "), after.split(" ", 2)
        place, part = (_CHARACTER.sub(lambda hit: chr(int(hit[1], 8)), fields[at]) for at in (4, 3))
        found.append(Mount(place, part, frozenset(fields[5].split(",")), kind, options))
    return found


def facts(mountinfo: str, to_hide: Collection[str] = ()) -> dict[str, str]:
    """Name and value of each fact. Two mounts at one place count as unexpected: only one of them would be looked at.

    `to_hide`: the files and folders of the kernel that must not be seen in the container.
    """
    found = parse(mountinfo)
    last = {mount.place: mount for mount in found}
    places = [mount.place for mount in found]
    twice = len(found) - len(last)
    if places.count(TERMINALS) == 2 and _is_hidden(last[TERMINALS]):  # noqa: PLR2004  # the runtime mounts them first
        twice -= 1
    unexpected = sum(not _is_expected(mount) for mount in found) + twice
    return {
        "mounts.root": "ro" if "/" in last and last["/"].read_only else "rw",
        **{f"mounts.{place}": last[place].text if place in last else "" for place in PROMISED},
        "mounts.kernel_settings": "ro"
        if all(_is_read_only(last, place) for place in ("/proc/sys", "/sys"))
        else "rw",
        "mounts.hidden": _all_but([path for path in to_hide if not _is_hidden(last.get(path))]),
        "mounts.unexpected": str(unexpected),
    }


def is_promised(value: str) -> bool:
    """Whether a promised place is what was promised."""
    return re.fullmatch(rf"tmpfs nodev,noexec,nosuid size=\d+[kmg]? nr_inodes={INODES}", value) is not None


def _all_but(seen: list[str]) -> str:
    return f"all but {len(seen)}, {seen[0]} among them" if seen else HIDDEN


def _is_hidden(mount: Mount | None) -> bool:
    return mount is not None and mount.kind == "tmpfs" and (mount.read_only or _is_null(mount))


def _is_null(mount: Mount) -> bool:
    """How a runtime hides a file: /dev/null in its place."""
    return mount.kind == "tmpfs" and mount.part == "/null" and "nosuid" in mount.flags


def _is_read_only(last: Mapping[str, Mount], place: str) -> bool:
    return place in last and last[place].read_only


def _is_expected(mount: Mount) -> bool:
    if mount.place == "/" or mount.place in _FILES:
        return mount.read_only
    in_kernel = mount.place.startswith(("/proc/", "/sys/")) or mount.place in {"/sys", TERMINALS}
    if mount.read_only:
        return in_kernel and mount.kind in _KERNEL
    kind, flags = _WRITABLE.get(mount.place, ("", _CLOSED))
    if mount.kind == kind and mount.part == "/":
        return flags <= mount.flags
    return in_kernel and _is_null(mount)
