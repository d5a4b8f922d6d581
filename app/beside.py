"""Texts that a file of profiles names instead of holding them: files in its own folder, or below it, and no others.

Who writes a profile does not choose what is read of this machine: a path is relative and goes down, a link may not lead out,
and only a regular file of bounded size and in UTF-8 is taken.
"""

import os
import stat
from pathlib import Path
from typing import Final

PATH_CHARACTERS: Final = 1_024
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: a FIFO is refused, not waited on.
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Unreadable(Exception):
    """A file that is not taken; the message is the rule, as the end of a sentence that begins with the field."""


def read(folder: Path | None, name: str, most: int) -> str:
    """The text in the file of that name below `folder`, of at most so many bytes. Raises Unreadable."""
    if folder is None:
        raise Unreadable("must be a text where the profiles come from stdin: there is no folder to read from")
    if not 1 <= len(name) <= PATH_CHARACTERS or "\0" in name or {"", ".", ".."} & set(name.split("/")):
        raise Unreadable("must name a file by a relative path that goes down, without . and ..")
    try:
        data = _read(Path(os.path.realpath(folder, strict=True)), name, most + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read: {name!a}: {error.strerror}") from None
    if len(data) > most:
        raise Unreadable(f"must be at most {most} bytes: {name!a} has more")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Unreadable(f"must be UTF-8: {name!a} is not") from None


def _read(folder: Path, name: str, most: int) -> bytes:
    target = Path(os.path.realpath(folder / name, strict=True))
    if not target.is_relative_to(folder):
        raise Unreadable(f"must be in the folder of the profiles: {name!a} leads out of it")
    # From here on nothing is followed: a link that is put there now is refused.
    *folders, last = target.relative_to(folder).parts or (".",)
    opened = os.open(folder, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened = inner
        inner = os.open(last, _FILE, dir_fd=opened)
        os.close(opened)
        opened = inner
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise Unreadable(f"must be in a regular file: {name!a} is none")
        with os.fdopen(os.dup(opened), "rb") as file:
            return file.read(most)
    finally:
        os.close(opened)
