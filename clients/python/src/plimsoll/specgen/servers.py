"""Where the API is: its origin, and the path below which all of its paths are."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from plimsoll.contract.grants import SEGMENT, GrantFault, Origin, parse_origin
from plimsoll.specgen.document import Node, SpecFault, shown
from plimsoll.specgen.model import Finding

SERVERS: Final = 64
_DEFAULT_PORTS: Final = {"https": ":443", "http": ":80"}


@dataclass(frozen=True, slots=True)
class Server:
    """An origin, if it is known, and the segments before every path."""

    origin: Origin | None
    base: tuple[str, ...]


def parse_server(url: str) -> Server:
    """The server that an operator names: an origin, perhaps with a path. Raises GrantFault."""
    server = _server(url)
    if server.origin is None:
        raise GrantFault(
            f"server {url[:200]!r} must be an origin, perhaps with a path, as in https://hr.example.com/api"
        )
    if not _is_safe(server.origin):
        raise GrantFault(f"server {url[:200]!r} must be https off this machine")
    return server


def _server(url: str) -> Server:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise GrantFault(f"server {url[:200]!r} is no URL") from None
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise GrantFault(f"server {url[:200]!r} must have no query and no fragment")
    if not parts.scheme and (parts.netloc or not url.startswith("/")) and url:
        raise GrantFault(f"server {url[:200]!r} must be an absolute URL or an absolute path")
    path = parts.path.strip("/")
    base = tuple(path.split("/")) if path else ()
    if not all(map(SEGMENT.fullmatch, base)):
        raise GrantFault(f"server {url[:200]!r} must have a path of segments of 1 to 128 of [A-Za-z0-9._~-]")
    if not parts.scheme:
        return Server(None, base)
    scheme = parts.scheme.lower()
    authority = parts.netloc.lower().removesuffix(_DEFAULT_PORTS.get(scheme, "\0"))
    return Server(parse_origin(f"{scheme}://{authority}"), base)


def _is_safe(origin: Origin) -> bool:
    """Whether the broker would speak to it at all: plain http is for loopback."""
    if origin.scheme == "https" or origin.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(origin.host).is_loopback
    except ValueError:
        return False


def read(document: Node, findings: list[Finding]) -> Server:
    """The first server that a grant can name; the others are findings. None listed means one at `/`."""
    listed = document.get("servers")
    nodes = list(listed.items(SERVERS)) if listed else []
    usable = [server for node in nodes if (server := _usable(node, findings))]
    if not usable:
        findings.append(_no_origin(listed.pointer if listed else "#"))
        return Server(None, ())
    first = usable[0]
    findings.extend(_unused(nodes, len(usable)))
    if any(each.base != first.base for each in usable):
        raise SpecFault(
            listed.pointer if listed else "#", "servers have different paths: choose one with --server"
        )
    if first.origin is None:
        findings.append(_no_origin(listed.pointer if listed else "#"))
    return first


def _no_origin(pointer: str) -> Finding:
    return Finding(
        "partial",
        pointer,
        "server",
        "no server with an absolute URL: the origin is left open, or give --server",
    )


def _unused(nodes: list[Node], usable: int) -> Iterator[Finding]:
    if usable > 1:
        yield Finding(
            "partial",
            nodes[0].pointer.rpartition("/")[0],
            "server",
            "a grant has one origin: the first is used",
        )


def _usable(node: Node, findings: list[Finding]) -> Server | None:
    url = node.text("url")
    rule = ""
    if node.members().get("variables") or "{" in url:
        rule = f"server {shown(url)} has variables"
    else:
        try:
            server = _server(url)
        except GrantFault as fault:
            rule = str(fault)
        else:
            if server.origin is None or _is_safe(server.origin):
                return server
            rule = f"server {shown(url)} must be https off this machine"
    findings.append(Finding("partial", node.pointer, "server", rule))
    return None
