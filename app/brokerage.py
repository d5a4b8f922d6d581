"""The broker a service starts with: one of its own, one that somebody else runs, or none, with the reason why it cannot be.

A broker of our own has the service's user only where that was asked for (then the first start makes its pair of keys), or, when
the service is root, a user of its own whose key was made before. It listens on a Unix socket in a directory of ours.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from app.dispatch.broker import BrokerAccess, User, spawn_broker, user_named
from app.dispatch.state import make_state_directory
from app.http.sockets import SocketInUseError, bind_unix
from app.settings import Settings
from app.vault import keys
from app.vault.keys import KeyUnusable

BACKLOG: Final = 1024
PAUSES: Final = 150
PAUSE_S: Final = 0.1
"""How often, and how long, a start waits for the broker of a killed service, which ends by itself: 15 s together."""


def open_broker(
    settings: Settings, listeners: Sequence[socket.socket], owned: ExitStack
) -> BrokerAccess | None:
    """How the broker is reached; `owned` ends it. It never calls `listeners`.

    Raises OSError, UnsafeStateError, UnsafePathError, KeyUnusable.
    """
    if settings.broker_url and settings.broker_secret_file:
        return BrokerAccess(settings.broker_url, keys.read_secret(settings.broker_secret_file))
    if not settings.broker_here:
        return None
    user = broker_user(settings)
    if user is None:
        make_missing_pair(settings)
    keys.read_public(settings.vault_public)
    folder = settings.data_dir / "broker"
    make_state_directory(folder, below=settings.data_dir)
    listening = owned.enter_context(bind_when_free(folder / "socket"))
    listening.listen(BACKLOG)
    control = secrets.token_hex(32)
    process = spawn_broker(settings.broker_frame(control, _places(listeners)), listening, user)
    owned.callback(process.end)
    return BrokerAccess(f"unix://{folder / 'socket'}", control, process)


def bind_when_free(path: Path, pause: Callable[[], None] = lambda: time.sleep(PAUSE_S)) -> socket.socket:
    """A socket bound at `path`, once whoever listens there has ended. Raises OSError, UnsafePathError."""
    for _ in range(PAUSES):
        try:
            return bind_unix(path)
        except SocketInUseError:
            pause()
    try:
        return bind_unix(path)
    except SocketInUseError as error:
        raise OSError(
            f"{path}: the broker of another service still listens here: end that service, "
            "or give this one a PLIMSOLL_DATA_DIR of its own"
        ) from error


def broker_user(settings: Settings) -> User | None:
    """Whom the broker runs as; None for our own user. Raises KeyUnusable when that cannot be."""
    if not settings.broker_user:
        return None
    if os.geteuid() != 0:
        raise KeyUnusable(
            "PLIMSOLL_BROKER_USER: only a service that starts as root can start a broker as another"
        )
    try:
        found = user_named(settings.broker_user)
    except KeyError:
        raise KeyUnusable(f"PLIMSOLL_BROKER_USER: there is no user {settings.broker_user}") from None
    if found.uid == 0:
        raise KeyUnusable("PLIMSOLL_BROKER_USER: must not be root")
    return found


def make_missing_pair(settings: Settings) -> None:
    """A pair for a broker of our own user, where there is none at all. Raises KeyUnusable, OSError."""
    private, public = settings.vault_private, settings.vault_public
    if not private.exists() and not public.exists():
        make_state_directory(settings.data_dir, below=settings.data_dir)
        keys.make_pair(private, public)


def _places(listeners: Sequence[socket.socket]) -> list[tuple[str | None, int]]:
    """Where the service itself listens; a wildcard is every address."""
    names = [each.getsockname() for each in listeners if each.family != socket.AF_UNIX]
    return [(None if host in {"0.0.0.0", "::"} else host, port) for host, port, *_ in names]  # noqa: S104  # compared
