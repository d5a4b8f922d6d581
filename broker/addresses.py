"""Which addresses the broker speaks to: every address of a name must pass, or the name is refused.

The rule book:

1. An address is judged by what it leads to: one that carries an IPv4 address (mapped, NAT64, 6to4, Teredo, ISATAP) passes
   only if the carrier and every address inside pass.
2. Our own list decides, not the standard library's `is_global`, which several carriers fool.
3. Loopback and private networks pass only where the operator listed a network; link-local, metadata, multicast,
   reserved, benchmarking and documentation addresses never pass, whatever is listed.
4. Plain http is for loopback alone.
5. A listener of our own is never an origin.
6. A name is resolved once, and what was judged is what is connected to: nobody asks the name again.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from plimsoll.contract.grants import Origin

IPv4 = ipaddress.IPv4Address
IPv6 = ipaddress.IPv6Address
Address = IPv4 | IPv6
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, as text. Raises OSError."""

ADDRESSES: Final = 32
RESOLVE_S: Final = 5.0


class AddressFault(StrEnum):
    """Why an origin is not spoken to; append-only."""

    UNRESOLVED = "unresolved"
    TOO_MANY = "too_many_addresses"
    NEVER = "address_never_allowed"
    PRIVATE = "address_not_listed"
    PLAIN_HTTP = "http_off_loopback"
    OURSELVES = "own_listener"


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
LISTABLE: Final = (
    *LOOPBACK,
    *_networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
    *_networks("fc00::/7"),
)
"""What passes only where the operator listed it."""
NEVER: Final = _networks(
    "0.0.0.0/8",
    "100.100.100.200/32",  # a cloud's metadata, inside the shared address space
    "168.63.129.16/32",  # a cloud's metadata, among the public addresses
    "169.254.0.0/16",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "2001:2::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:db8::/32",
    "3fff::/20",
    "fd00:ec2::254/128",  # metadata again, inside the private networks
    "fd20:ce::254/128",
    "fd00:42::42/128",
)
_GLOBAL: Final = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that is public; whatever is outside and not listed above never passes."""
_PROTOCOLS: Final = ipaddress.IPv6Network("2001::/23")
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
_LOW_32: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator lists, and where this service itself listens (None: on every address)."""

    listed: tuple[Network, ...] = ()
    listeners: tuple[tuple[Address | None, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Vetted:
    """Where an origin's connections go, and nowhere else."""

    addresses: tuple[Address, ...]


def parse_listed(text: str) -> tuple[Network, ...]:
    """The networks an operator lists, comma separated. Raises ValueError, naming the rule.

    Each lies in a loopback or private network: no listing opens what never passes.
    """
    return tuple(_listed(part.strip()) for part in text.split(",") if part.strip())


def _listed(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(
            f"{text!r} must be a network, as in 127.0.0.0/8, with no bit set behind its length"
        ) from None
    if not any(_inside(network, listable) for listable in LISTABLE):
        raise ValueError(f"{text!r} must lie in a loopback or private network")
    return network


def _inside(network: Network, outer: Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(outer, ipaddress.IPv4Network) and network.subnet_of(outer)
    return isinstance(outer, ipaddress.IPv6Network) and network.subnet_of(outer)


def judge(address: Address, rules: Rules) -> AddressFault | None:
    """Why `address` does not pass, or None."""
    found = {_judge_one(part, rules.listed) for part in (address, *carried(address))}
    return next((fault for fault in (AddressFault.NEVER, AddressFault.PRIVATE) if fault in found), None)


def carried(address: Address) -> tuple[IPv4, ...]:
    """The IPv4 addresses that packets to `address` may end at."""
    if isinstance(address, IPv4):
        return ()
    number, found = int(address), []
    if address in _MAPPED or address in _NAT64:
        found.append(number & _LOW_32)
    if address in _6TO4:
        found.append(number >> 80 & _LOW_32)
    if address in _TEREDO:
        found += [number >> 64 & _LOW_32, ~number & _LOW_32]
    if number >> 32 & _LOW_32 in _ISATAP:
        found.append(number & _LOW_32)
    return tuple(IPv4(inner) for inner in found)


def _judge_one(address: Address, listed: Sequence[Network]) -> AddressFault | None:
    if _within(address, NEVER) or (isinstance(address, IPv6) and address.scope_id is not None):
        return AddressFault.NEVER
    if _within(address, LISTABLE):
        return None if _within(address, listed) else AddressFault.PRIVATE
    if isinstance(address, IPv4) or _within(address, (_MAPPED, _NAT64, _TEREDO)):
        return None
    return None if address in _GLOBAL and address not in _PROTOCOLS else AddressFault.NEVER


def _within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def plain(address: Address) -> Address:
    """`address` as the kernel sees it: a mapped one is IPv4."""
    return carried(address)[0] if isinstance(address, IPv6) and address in _MAPPED else address


async def system_resolver(host: str, port: int) -> list[str]:
    """What this machine says the name means. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def is_here(address: Address) -> bool:
    """Whether `address` is one of this machine's own. Nothing is sent."""
    family = socket.AF_INET if isinstance(address, IPv4) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


async def vet(
    origin: Origin,
    rules: Rules,
    resolver: Resolver = system_resolver,
    here: Callable[[Address], bool] = is_here,
) -> Vetted | AddressFault:
    """Where connections to `origin` may go, or why there are none."""
    found = await _addresses(origin, resolver)
    if isinstance(found, AddressFault):
        return found
    faults = (_judge_for(origin, address, rules, here) for address in found)
    fault = next((fault for fault in faults if fault is not None), None)
    return Vetted(found) if fault is None else fault


async def _addresses(origin: Origin, resolver: Resolver) -> tuple[Address, ...] | AddressFault:
    try:
        return (plain(ipaddress.ip_address(origin.host)),)
    except ValueError:
        pass  # a name
    try:
        async with asyncio.timeout(RESOLVE_S):
            texts = await resolver(origin.host, origin.port)
        found = tuple(dict.fromkeys(_parsed(texts)))
    except (OSError, ValueError, TimeoutError):
        return AddressFault.UNRESOLVED
    if len(found) > ADDRESSES:
        return AddressFault.TOO_MANY
    return found or AddressFault.UNRESOLVED


def _parsed(texts: Sequence[str]) -> Iterator[Address]:
    return (plain(ipaddress.ip_address(text)) for text in texts)


def _judge_for(
    origin: Origin, address: Address, rules: Rules, here: Callable[[Address], bool]
) -> AddressFault | None:
    if (fault := judge(address, rules)) is not None:
        return fault
    if origin.scheme == "http" and not _within(address, LOOPBACK):
        return AddressFault.PLAIN_HTTP
    for listener, port in rules.listeners:
        if port == origin.port and (listener == address or (listener is None and here(address))):
            return AddressFault.OURSELVES
    return None
