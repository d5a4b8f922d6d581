"""Sockets a listener is given: bound by us, so that nobody else can be in their place (S3)."""

import os
import socket
import stat
from pathlib import Path


class UnsafePathError(Exception):
    """A directory or file that somebody else could change or already owns."""


class SocketInUseError(OSError):
    """Another process listens on this socket."""


def bind_tcp(host: str, port: int) -> socket.socket:
    """A bound TCP socket, IPv6 when `host` is such an address. OSError when the address is not ours or taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's delay (40 ms an answer) off only where it sees TCP's number.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # `localhost` is not looked up: whoever answers names must not choose where we listen.
        bound.bind(("127.0.0.1" if host == "localhost" else host, port))
    except BaseException:
        bound.close()
        raise
    return bound


def bind_unix(path: Path) -> socket.socket:
    """A bound Unix socket of mode 0600 in a directory of ours with mode 0700; UnsafePathError otherwise.

    A socket left by a process that is gone is replaced; one that answers is a SocketInUseError. Links are not followed.
    """
    directory = _open_private(path.parent)
    try:
        _remove_stale(path, directory)
        return _bind_inside(path, directory)
    finally:
        os.close(directory)


def _open_private(directory: Path) -> int:
    try:
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnsafePathError(f"the socket's directory cannot be used: {error.strerror}") from None
    status = os.fstat(opened)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != stat.S_IRWXU:
        os.close(opened)
        raise UnsafePathError("the socket's directory must be ours and have mode 0700")
    return opened


def _remove_stale(path: Path, directory: int) -> None:
    try:
        status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise UnsafePathError("something that is no socket of ours is in the socket's place")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(str(path)) == 0:
            raise SocketInUseError("another process listens on this socket")
    os.unlink(path.name, dir_fd=directory)


def _bind_inside(path: Path, directory: int) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)
    try:
        bound.bind(str(path))
        _check_bound(path.name, directory)
    except BaseException:
        bound.close()
        raise
    finally:
        os.umask(umask)
    return bound


def _check_bound(name: str, directory: int) -> None:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISSOCK(status.st_mode) or stat.S_IMODE(status.st_mode) != stat.S_IRUSR | stat.S_IWUSR:
        raise UnsafePathError("the socket is not where it was bound, or has another mode")
