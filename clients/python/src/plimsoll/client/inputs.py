"""From a caller's files, steps and artifacts to a project that is worth sending (checks 5 and 6)."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from plimsoll.contract import bounds
from plimsoll.contract.refusals import FieldFault
from plimsoll.contract.requests import File, Project

Files = Mapping[str, str | bytes | Path]
"""Relative paths in the sandbox, and for each its content: text, exact bytes, or a file here whose bytes are read."""


class _Broken(Exception):
    """Carries one rule out of reading a file."""


def project(files: object, steps: object, artifacts: object) -> tuple[Project, list[FieldFault]]:
    """The project and every broken rule; with any, the project is of no use. A caller's values are objects until here."""
    faults: list[FieldFault] = []
    read = _files(files, faults)
    commands = _texts("steps", steps, faults)
    paths = _texts("artifacts", artifacts, faults)
    faults += _count("steps", commands, 1, bounds.STEPS)
    faults += _rules("steps", commands, bounds.step_rule)
    faults += _count("artifacts", paths, 0, bounds.ARTIFACTS)
    faults += _rules("artifacts", paths, bounds.path_rule)
    if len(set(paths)) != len(paths):
        faults.append(FieldFault("artifacts", "must hold no path twice"))
    return Project(read, commands, paths), faults


def _files(files: object, faults: list[FieldFault]) -> tuple[File, ...]:
    if not isinstance(files, Mapping):
        faults.append(FieldFault("files", "must map relative paths to text, bytes or a pathlib.Path"))
        return ()
    if len(files) > bounds.FILES:
        faults.append(FieldFault("files", f"must hold at most {bounds.FILES} files"))
        return ()
    read, left = [], bounds.FILES_BYTES
    for number, (path, content) in enumerate(files.items()):
        if rule := _path_rule(path):
            faults.append(FieldFault(f"files.{number}", f"its path {rule}"))
            continue
        try:
            data = _content(content, left)
        except _Broken as broken:
            faults.append(FieldFault(f"files.{number}", str(broken)))
            continue
        left -= len(data)
        if left < 0:
            faults.append(FieldFault("files", f"must be at most {bounds.FILES_BYTES} bytes together"))
            return ()
        read.append(File(path, data))
    return tuple(read)


def _path_rule(path: object) -> str | None:
    return bounds.path_rule(path) if isinstance(path, str) else "must be text"


def _content(content: object, left: int) -> bytes:
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError:
            raise _Broken("its text must be valid Unicode without lone surrogates") from None
    if isinstance(content, Path):
        return _read(content, left)
    raise _Broken("must be text, bytes or a pathlib.Path")


def _read(path: Path, left: int) -> bytes:
    """At most one byte more than there is room for. A FIFO or a device is refused, and never waited on."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _Broken("is no regular file")
            return file.read(left + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        why = error.strerror if isinstance(error, OSError) else "no such path"
        raise _Broken(f"cannot be read: {why}") from None


def _texts(name: str, values: object, faults: list[FieldFault]) -> tuple[str, ...]:
    """A caller's list of text. One text by itself is not a list of its characters."""
    listed = values if isinstance(values, Sequence) and not isinstance(values, str | bytes) else None
    if listed is None or not all(isinstance(each, str) for each in listed):
        faults.append(FieldFault(name, "must be a list of text"))
        return ()
    return tuple(listed)


def _count(name: str, values: Sequence[str], least: int, most: int) -> Iterator[FieldFault]:
    if not least <= len(values) <= most:
        yield FieldFault(name, f"must hold {least} to {most}")


def _rules(name: str, values: Iterable[str], rule: Callable[[str], str | None]) -> Iterator[FieldFault]:
    for number, value in enumerate(values):
        if broken := rule(value):
            yield FieldFault(f"{name}.{number}", broken)
