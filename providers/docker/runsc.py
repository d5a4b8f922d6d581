"""The gVisor releases that are known here, and what the command line of their sandbox process may say.

gVisor's parent hands every setting that is not the default to the sandbox process as a flag, so what is allowed is a short
list: a flag that is not on it, a second one of a kind, or another value than expected is a fault of its own. Pure.

The releases stand in deploy/gvisor-releases.txt too, for whoever installs one; a test compares the two.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Release:
    """One build: the SHA-256 of the file, and the Debian package it is from."""

    sha256: str
    version: str
    platform: str
    architecture: str
    package: str


RELEASES: Final = (
    Release(
        "a6756a39353dfac7aeab4d3f9205341e4a714600991c7928d747b93d50f9cfaf",
        "20240729.0",
        "systrap",
        "x86_64",
        "0.0~20240729.0-4~bpo12+2",
    ),
    Release(
        "de98831af671d537a66cd36b4ae1d797e03f9d265375162ab2221a9a33c2592c",
        "20221219.0",
        "ptrace",
        "x86_64",
        "0.0~20221219.0-2+b3",
    ),
)
SETTING: Final = "setting"
"""In place of a version: the operator vouches for this file (SANDBOX_RUNSC_SHA256)."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a command line must fit: the container and its memory."""

    container_id: str
    memory_bytes: int


Fits = Callable[[str, Place], bool]


@dataclass(frozen=True, slots=True)
class Family:
    """What releases of one time have in common."""

    platforms: frozenset[str]
    unprinted_platform: str
    """In force when the command line names none: a flag with its default value is not handed on."""
    uid: str
    capabilities: int
    """The most that its sandbox process holds, in a user namespace of its own."""
    before_boot: Mapping[str, Fits]
    boot: Mapping[str, Fits]


@dataclass(frozen=True, slots=True)
class Boot:
    """What a command line says; `faults` are the codes of everything in it that is not expected."""

    platform: str
    network: str
    faults: tuple[str, ...]


def _a(pattern: str) -> Fits:
    rule = re.compile(pattern)
    return lambda value, _: rule.fullmatch(value) is not None


_DESCRIPTOR: Final = _a(r"-1|\d{1,6}")
_ABSENT: Final = _a("-1")
_DESCRIPTORS: Final = _a(r"\d{1,6}(,\d{1,6})*")
_NUMBER: Final = _a(r"\d{1,20}")
_PATH: Final = _a(r"/[^\x00-\x1f]{1,4096}")
_FALSE: Final = _a("false")


def _bundle(value: str, place: Place) -> bool:
    return _PATH(value, place) and value.endswith("/" + place.container_id)


def _log(value: str, place: Place) -> bool:
    return _PATH(value, place) and value.endswith(f"/{place.container_id}/log.json")


def _memory(value: str, place: Place) -> bool:
    return value == str(place.memory_bytes)


_BEFORE_BOOT: Final[Mapping[str, Fits]] = {
    "log": _log,
    "log-fd": _DESCRIPTOR,
    "log-format": _a("json|text"),
    "network": _a("none"),
    "platform": _a("systrap|ptrace"),
    "root": _PATH,
    "systemd-cgroup": _a("true|false"),
}
_BOOT: Final[Mapping[str, Fits]] = {
    "bundle": _bundle,
    "controller-fd": _DESCRIPTOR,
    "cpu-num": _NUMBER,
    "io-fds": _DESCRIPTORS,
    "mounts-fd": _DESCRIPTOR,
    "proc-mount-sync-fd": _DESCRIPTOR,
    "product-name": _a(r"[^\x00-\x1f]{0,256}"),
    "spec-fd": _DESCRIPTOR,
    "start-sync-fd": _DESCRIPTOR,
    "stdio-fds": _DESCRIPTORS,
    "total-memory": _memory,
}
_REPEATED: Final = frozenset({"io-fds", "stdio-fds"})
_REQUIRED: Final = frozenset({"bundle", "network", "root", "spec-fd", "total-memory"})

OF_2022: Final = Family(
    platforms=frozenset({"ptrace"}),
    unprinted_platform="ptrace",
    uid="65534",
    capabilities=1 << 18 | 1 << 21,  # SYS_CHROOT, SYS_ADMIN
    before_boot=_BEFORE_BOOT,
    boot={**_BOOT, "overlay-filestore-fd": _ABSENT},
)
OF_2024: Final = Family(
    platforms=frozenset({"systrap"}),
    unprinted_platform="systrap",
    uid="0",
    # CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID for the files it serves itself, KILL, SETGID, SETUID, SYS_PTRACE
    capabilities=0xFF | 1 << 19,
    before_boot=_BEFORE_BOOT,
    boot={
        **_BOOT,
        "apply-caps": _FALSE,
        "dev-io-fd": _ABSENT,
        "gofer-mount-confs": _a("lisafs:none(,lisafs:none)*"),  # no writable layer over any of them
        "host-shmem-huge": _a("[a-z_]{1,32}"),
        "setup-root": _FALSE,
        "total-host-memory": _NUMBER,
    },
)

_FLAG = re.compile(r"--?([A-Za-z0-9][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
_CODE_CHARACTERS = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 40


def release_of(sha256: str, vouched: frozenset[str] = frozenset()) -> str:
    """The version of a known file, SETTING for one that the operator vouches for, else empty."""
    known = {release.sha256: release.version for release in RELEASES}
    return known.get(sha256, SETTING if sha256 in vouched else "")


def family_of(version: str) -> Family:
    """What is expected of it; a file that the operator vouches for is judged as the newest."""
    return OF_2022 if version.startswith("2022") else OF_2024


def read(argv: Sequence[str], family: Family, place: Place) -> Boot:
    """What a sandbox process's command line says, held against what its family may say."""
    before, word, after = _split(argv)
    faults = [] if word and argv[0] == "runsc-sandbox" else ["runsc_argv"]
    if not after or after[-1] != place.container_id:
        faults.append("runsc_argv")
    flags: dict[str, str] = {}
    for words, allowed in ((before, family.before_boot), (after[:-1], family.boot)):
        faults += _take(words, allowed, place, flags)
    faults += [_code(name) for name in sorted(_REQUIRED - flags.keys())]
    platform = flags.get("platform", family.unprinted_platform)
    if platform not in family.platforms:
        faults.append(_code("platform"))
    return Boot(platform, flags.get("network", ""), tuple(dict.fromkeys(faults)))


def _split(argv: Sequence[str]) -> tuple[Sequence[str], bool, Sequence[str]]:
    """The words before `boot`, whether it is there, and the words after."""
    if "boot" not in argv:
        return argv[1:], False, ()
    at = argv.index("boot")
    return argv[1:at], True, argv[at + 1 :]


def _take(
    words: Sequence[str], allowed: Mapping[str, Fits], place: Place, flags: dict[str, str]
) -> Iterator[str]:
    """Enters the flags; gives the code of each that is not allowed, comes twice, or has a value that does not fit."""
    rest = iter(words)
    for word in rest:
        found = _FLAG.fullmatch(word)
        if found is None:
            yield "runsc_argv"
            continue
        name, value = found.groups()
        if name not in allowed:
            yield _code(name)
            continue
        if value is None:  # `--cpu-num 2`: none of those allowed is known to be printed as a bare word
            value = next(rest, "")
        if name in flags and name not in _REPEATED:
            yield _code(name)
        if not allowed[name](value, place):
            yield _code(name)
        flags[name] = value


def _code(name: str) -> str:
    return "runsc_flag_" + _CODE_CHARACTERS.sub("_", name.lower())[:_LONGEST_NAME].strip("_")
