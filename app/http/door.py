"""Who may hold a connection: counts for one listener, and the peer's uid on a Unix socket."""

import os
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from app.http.limits import ListenerLimits
from app.http.pace import Pace
from plimsoll.contract.refusals import Code, Reason, Refusal

FULL = Refusal(Code.CAPACITY, "Too many connections", Reason.CAPACITY, retry_after_s=1)
OTHER_USER = Refusal(
    Code.PERMISSION_DENIED, "This socket serves only the user it belongs to", Reason.PERMISSION
)

_LOCAL_PEERCRED = 1
_CROWDED = 0.75


class Entry(Enum):
    """How a connection was received."""

    WELCOME = "welcome"
    TURNED_AWAY = "turned away"
    """Over a cap, and still told so."""
    SHUT = "shut"
    """Over the number that are told."""


class Door:
    """Counts the connections of one listener, and keeps the turns of strangers (`pace`).

    An IPv6 caller owns 2^64 addresses, so its /64 counts as one.
    """

    def __init__(self, limits: ListenerLimits, trusted_proxies: Iterable[str] = ()) -> None:
        self.limits, self.pace = limits, Pace(limits)
        self._trusted = [ip_network(proxy) for proxy in trusted_proxies]
        self._inside = 0
        self._turned_away = 0
        self._by_address: Counter[str] = Counter()

    @property
    def crowded(self) -> bool:
        """Few places are left: answers should end their connections."""
        return self._inside >= self.limits.connections * _CROWDED

    def enter(self, host: str | None) -> tuple[Entry, str | None]:
        """Count one connection from `host` (None: a Unix socket). Hand the result to `leave` when it ends."""
        key = self._key(host)
        full = self._inside >= self.limits.connections
        if full or (key is not None and self._by_address[key] >= self.limits.per_address):
            if self._turned_away >= self.limits.turned_away:
                return Entry.SHUT, None
            self._turned_away += 1
            return Entry.TURNED_AWAY, None
        self._inside += 1
        if key is not None:
            self._by_address[key] += 1
        return Entry.WELCOME, key

    def leave(self, entry: Entry, key: str | None) -> None:
        """Give the place back."""
        if entry is Entry.TURNED_AWAY:
            self._turned_away -= 1
        elif entry is Entry.WELCOME:
            self._inside -= 1
        if key is not None:
            self._by_address[key] -= 1
            if not self._by_address[key]:
                del self._by_address[key]

    def _key(self, host: str | None) -> str | None:
        if host is None:
            return None
        address = ip_address(host.partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._trusted):
            return None
        return _network_of(address)


def _network_of(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    return str(IPv6Network((address, 64), strict=False))


def is_other_user(sock: socket.socket) -> bool:
    """Whether the peer of a Unix socket runs under another uid than ours; an uid we cannot read is another."""
    if sock.family != socket.AF_UNIX:
        return False
    return _peer_uid(sock) != os.geteuid()


def _peer_uid(sock: socket.socket) -> int | None:
    try:
        if hasattr(socket, "SO_PEERCRED"):
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return int(struct.unpack("3i", raw)[1])
        raw = sock.getsockopt(0, _LOCAL_PEERCRED, 8)  # macOS and BSD: struct xucred starts with version, uid
        return int(struct.unpack("=II", raw)[1])
    except OSError:
        return None
