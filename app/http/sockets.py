"""Sockets a listener is given: bound by us, so that nobody else can be in their place (S3)."""

import socket
from pathlib import Path


def bind_tcp(host: str, port: int) -> socket.socket:
    """A bound TCP socket. OSError when the address is not ours or taken."""
    raise NotImplementedError


def bind_unix(path: Path) -> socket.socket:
    """A bound Unix socket of mode 0600 in a directory of ours with mode 0700; UnsafePath otherwise."""
    raise NotImplementedError
