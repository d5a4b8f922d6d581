"""A folder as the files of a project, and artifacts as files in a folder: no link is ever followed, nothing outside is touched.

Only the folder that was named may itself be reached through a link. Everything below it is opened relative to its parent's
descriptor, so that a name that changes meanwhile cannot lead elsewhere.
"""

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plimsoll.contract import bounds
from plimsoll.contract.results import Artifact

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BELOW = _FOLDER | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o666


class Unreadable(Exception):
    """A file that was named cannot be read; nothing was sent."""


class Unwritable(Exception):
    """An artifact cannot be written where it was asked for."""


# --- reading -------------------------------------------------------------------------------------------------------------


def read(folder: str) -> dict[str, bytes]:
    """The regular files below `folder` by their paths, in order of names. Raises Unreadable for anything else there."""
    files: dict[str, bytes] = {}
    size = 0
    try:
        with _opened(folder, _FOLDER) as root:
            for path, data in _below(root, ""):
                files[path] = data
                size += len(data)
                if len(files) > bounds.FILES:
                    raise Unreadable(f"{_shown(folder)}: holds more than {bounds.FILES} files")
                if size > bounds.FILES_BYTES:
                    raise Unreadable(f"{_shown(folder)}: holds more than {bounds.FILES_BYTES} bytes of files")
    except OSError as error:
        raise Unreadable(f"{_shown(folder)}: {error.strerror}") from None
    return files


def _below(folder: int, prefix: str) -> Iterator[tuple[str, bytes]]:
    for name in sorted(os.listdir(folder)):
        path = prefix + name
        if rule := bounds.path_rule(path):
            raise Unreadable(f"{_shown(path)}: its path {rule}")
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            with _opened(name, _BELOW, folder) as child:
                yield from _below(child, f"{path}/")
        else:
            yield path, _file(folder, name, path)


def _file(folder: int, name: str, path: str) -> bytes:
    """A file's bytes, at most one more than a project may have. A FIFO or a device is refused, and never waited on."""
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        what = "a link" if stat.S_ISLNK(_mode(folder, name)) else error.strerror
        raise Unreadable(f"{_shown(path)}: {what}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unreadable(f"{_shown(path)}: no regular file")
        return file.read(bounds.FILES_BYTES + 1)


# --- writing -------------------------------------------------------------------------------------------------------------


def check(folder: str, paths: Iterable[str], *, force: bool) -> None:
    """Whether artifacts at `paths` could be written below `folder`, as it is now. Raises Unwritable."""
    try:
        with _opened(folder, _FOLDER) as root:
            for path in paths:
                _check(root, path, force=force)
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unwritable(f"{_shown(folder)}: {error.strerror}") from None


def _check(root: int, path: str, *, force: bool) -> None:
    if bounds.path_rule(path):
        return  # the request is refused for it, in the words of the request
    try:
        with _parent(root, path, make=False) as (folder, name):
            mode = _mode(folder, name)
    except FileNotFoundError:
        return
    if mode and not force:
        raise Unwritable(f"{_shown(path)}: is there already (--force replaces it)")
    if stat.S_ISDIR(mode):
        raise Unwritable(f"{_shown(path)}: is a folder")


def write(folder: str, artifacts: Iterable[Artifact], *, force: bool) -> None:
    """Each artifact as a file below `folder`, which is made if it is not there. Raises Unwritable."""
    try:
        with suppress(FileExistsError):
            Path(folder).mkdir()
        with _opened(folder, _FOLDER) as root:
            for artifact in artifacts:
                _write(root, artifact, force=force)
    except OSError as error:
        raise Unwritable(f"{_shown(folder)}: {error.strerror}") from None


def _write(root: int, artifact: Artifact, *, force: bool) -> None:
    if rule := bounds.path_rule(artifact.path):
        raise Unwritable(f"{_shown(artifact.path)}: its path {rule}")
    with _parent(root, artifact.path, make=True) as (folder, name):
        try:
            if force:
                _replace(folder, name, artifact.content)
            else:
                _create(folder, name, artifact.content)
        except FileExistsError:
            raise Unwritable(f"{_shown(artifact.path)}: is there already (--force replaces it)") from None
        except OSError as error:
            raise Unwritable(f"{_shown(artifact.path)}: {error.strerror}") from None


def _create(folder: int, name: str, content: bytes) -> None:
    """A new file, or none: what could not be written whole is taken away again."""
    descriptor = os.open(name, _WRITE, _MODE, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise


def _replace(folder: int, name: str, content: bytes) -> None:
    """In the place of whatever file or link has that name; what a link led to is not touched."""
    temporary = f".plimsoll-{secrets.token_hex(8)}"
    _create(folder, temporary, content)
    try:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


@contextmanager
def _parent(root: int, path: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """The folder that `path` is in, and its name there. Raises Unwritable where a link or a file is in the way."""
    *folders, name = path.split("/")
    now = os.dup(root)
    try:
        for each in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(each, dir_fd=now)
            try:
                below = os.open(each, _BELOW, dir_fd=now)
            except FileNotFoundError:
                raise
            except OSError:  # what is no folder, and what is a link
                raise Unwritable(f"{_shown(path)}: a link or a file is in the way of its folder") from None
            os.close(now)
            now = below
        yield now, name
    finally:
        os.close(now)


def _mode(folder: int, name: str) -> int:
    """The mode of what is there, 0 for nothing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


@contextmanager
def _opened(path: str, how: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, how, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _shown(path: str) -> str:
    """A name within one line of ours, whatever it holds."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in path)
