"""What a process has open, as words: how a runner reports it, and how the host sees it from outside."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_OWN: Final = Path("/proc/self/fd")


def kind(link: str) -> str:
    """What a link in /proc/<pid>/fd points at, in one word; `image` is what fresh guest memory is mapped from."""
    if link == os.devnull:
        return "null"
    if link.startswith("/memfd:wasm-memory-image"):
        return "image"
    if link.startswith("/proc/") and link.endswith("/fd"):
        return "listing"
    word, colon, _ = link.partition(":")
    return word if colon and word in {"socket", "pipe", "anon_inode"} else "file"


def own() -> dict[int, str]:
    """This process's descriptors by number, without the one this look takes. Needs /proc."""
    found = {}
    for link in _OWN.iterdir():
        with contextlib.suppress(OSError):
            found[int(link.name)] = kind(str(link.readlink()))
    return {number: word for number, word in found.items() if word != "listing"}


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor of this process that is not in `keep`."""
    for link in _OWN.iterdir():
        if int(link.name) not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is gone already
                os.close(int(link.name))


def of(folder: Path) -> str | None:
    """The sorted kinds in some process's /proc/<pid>/fd; None when this process may not look."""
    try:
        return words(kind(str(link.readlink())) for link in folder.iterdir())
    except OSError:
        return None


def words(kinds: Iterable[str]) -> str:
    """Kinds as one comparable value."""
    return " ".join(sorted(kinds))
