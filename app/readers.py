"""From the text of one setting to its value, or the rule that it breaks; pure."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RUNTIME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
_IMAGE: Final = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]{0,254}")
_UNIX: Final = re.compile(r"unix:///[\x21-\x7e]{1,100}")
_TCP: Final = re.compile(r"tcp://(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,31}")
_BROKER: Final = re.compile(r"http://(127\.0\.0\.1|\[::1\]|localhost):([0-9]{1,5})")
_DECIMAL: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PORTS: Final = range(65536)


class BadValue(ValueError):
    """A setting's rule was broken; the message is the rule without the value."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: `host` and `port`, or a Unix socket `path`."""

    host: str = "127.0.0.1"
    port: int = 8746
    path: Path | None = None

    @property
    def wildcard(self) -> bool:
        """Whether it means every interface."""
        return self.path is None and self.host in {"0.0.0.0", "::"}  # noqa: S104  # compared, not bound

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return (
            self.path is not None or self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        )


DEFAULT_ADDRESS: Final = Address()


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number inside bounds."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not low <= int(text) <= high:
            raise BadValue(f"must be a whole number from {low} to {high}")
        return int(text)

    return read


def decimal(low: float, high: float) -> Callable[[str], float]:
    """A number inside bounds, with at most three decimals."""

    def read(text: str) -> float:
        if not _DECIMAL.fullmatch(text) or not low <= float(text) <= high:
            raise BadValue(f"must be a number from {low:g} to {high:g}")
        return float(text)

    return read


def flag(text: str) -> bool:
    """0 or 1."""
    if text not in {"0", "1"}:
        raise BadValue("must be 0 or 1")
    return text == "1"


def providers(text: str) -> tuple[str, ...]:
    """The entries of a list of providers, none of them twice."""
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        kind, at, runtime = name.partition("@")
        if not (RUNTIME.fullmatch(runtime) if at and kind == "docker" else name in {"wasm", "docker"}):
            raise BadValue("names an unknown provider; known: wasm, docker, docker@RUNTIME")
    if len(set(names)) != len(names):
        raise BadValue("must not name a provider twice")
    return names


def runtime(text: str) -> str:
    """The name of an OCI runtime as a docker daemon knows it."""
    if not RUNTIME.fullmatch(text):
        raise BadValue(
            "must be a runtime's name: lowercase letters, digits, dots, dashes and underscores, at most 32"
        )
    return text


def image(text: str) -> str:
    """The name of an image."""
    if not _IMAGE.fullmatch(text):
        raise BadValue("must be an image's name or content id")
    return text


def docker_host(text: str) -> str:
    """Where a docker daemon listens."""
    found = _TCP.fullmatch(text)
    if not _UNIX.fullmatch(text) and not (found and int(found[2]) in _PORTS):
        raise BadValue("must be unix:///PATH or tcp://HOST:PORT")
    return text


def digests(text: str) -> tuple[str, ...]:
    """SHA-256 digests in lowercase hex."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(map(_SHA256.fullmatch, found)):
        raise BadValue("must be a comma-separated list of SHA-256 digests, 64 lowercase hex digits each")
    return found


def path(text: str) -> Path:
    """An absolute path."""
    found = Path(text)
    if not found.is_absolute():
        raise BadValue("must be an absolute path")
    return found


def database(text: str) -> str:
    """The URL of a database that the store can use."""
    if not text.startswith(("sqlite+aiosqlite:///", "postgresql+asyncpg://")):
        raise BadValue("must start with sqlite+aiosqlite:/// or postgresql+asyncpg://")
    return text


def address(text: str) -> Address:
    """Where to listen."""
    if text.startswith("unix:"):
        return Address(path=path(text.removeprefix("unix:")))
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        if host != "localhost":
            ipaddress.ip_address(host)
    except ValueError:
        raise BadValue("must be IP:PORT, localhost:PORT or unix:/PATH") from None
    return Address(host, whole(0, 65535)(port))


def hosts(text: str) -> tuple[str, ...]:
    """Exact host names, port optional."""
    found = tuple(part.strip().lower() for part in text.split(","))
    if not all(
        host and host.isascii() and host.isprintable() and not set(host) & set(" /@*?#") for host in found
    ):
        raise BadValue("must be a comma-separated list of exact host names, port optional")
    return found


def addresses(text: str) -> tuple[str, ...]:
    """IP addresses."""
    try:
        return tuple(str(ipaddress.ip_address(part.strip())) for part in text.split(","))
    except ValueError:
        raise BadValue("must be a comma-separated list of IP addresses") from None


def user(text: str) -> str:
    """The name of a user of this machine; whether there is one is looked at when it is needed."""
    if not _USER.fullmatch(text):
        raise BadValue("must be a user's name: letters, digits, dots, dashes and underscores, at most 32")
    return text


def networks(text: str) -> str:
    """IP networks, as they are written. That each is loopback or private is for the broker to say."""
    try:
        for part in text.split(","):
            ipaddress.ip_network(part.strip())
    except ValueError:
        raise BadValue("must be a comma-separated list of networks, as in 10.1.0.0/16") from None
    return text


def broker(text: str) -> str:
    """Where a broker listens. Plain http carries its secrets, so it is for loopback alone."""
    url = _BROKER.fullmatch(text)
    if not _UNIX.fullmatch(text) and (url is None or int(url[2]) not in _PORTS):
        raise BadValue("must be unix:///PATH or http://127.0.0.1:PORT")
    return text
