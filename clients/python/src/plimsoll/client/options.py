"""How a client reaches its service; checked once, when the client is made (checks 1, 2 and 3)."""

import ipaddress
import math
import os
import re
import ssl
from dataclasses import dataclass, field
from typing import TypedDict, Unpack
from urllib.parse import SplitResult, urlsplit

from plimsoll.client.errors import InsecureHTTP, InvalidBaseURL, InvalidOption

DEADLINE_S = 360.0
"""Longest whole exchange by default: the service's ceiling of five minutes and a minute for the way."""

SKEW_S = 5.0
"""How far the service's clock may be from ours by default."""

LOCALHOST = "http://localhost"

_VISIBLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Options:
    """A checked set of options. `prefix` is the base URL's path, `origin` the rest of it."""

    origin: str
    prefix: str
    token: str = field(repr=False)
    deadline_s: float
    skew_ms: int
    unix_socket: str | None
    tls: ssl.SSLContext | None


class ClientOptions(TypedDict, total=False):
    """What else a client may be told.

    `unix_socket`: path of a service's socket. `deadline`: longest whole exchange, seconds (360). `clock_skew`: how far the
    service's clock may be from ours, seconds (5). `insecure_http`: allow cleartext to something that is not loopback.
    `tls`: certificate authorities of your own.
    """

    unix_socket: str | os.PathLike[str] | None
    deadline: float
    clock_skew: float
    insecure_http: bool
    tls: ssl.SSLContext | None


def options(base_url: str | None, token: str | None, **how: Unpack[ClientOptions]) -> Options:
    """Options from arguments, then from PLIMSOLL_URL and PLIMSOLL_TOKEN. Raises InvalidOption and its kinds."""
    if unknown := how.keys() - ClientOptions.__annotations__.keys():
        raise TypeError(f"unexpected option: {', '.join(sorted(unknown))}")
    unix_socket = how.get("unix_socket")
    path = None if unix_socket is None else os.fspath(unix_socket)
    url = _base_url(base_url if base_url is not None else _default_url(path))
    if url.scheme == "http" and path is None and not how.get("insecure_http", False):
        _loopback(url.hostname or "")
    secret = token if token is not None else os.environ.get("PLIMSOLL_TOKEN", "")
    return Options(
        origin=f"{url.scheme}://{url.netloc}",
        prefix=url.path.rstrip("/"),
        token=_token(secret),
        deadline_s=_seconds("deadline", how.get("deadline", DEADLINE_S)),
        skew_ms=round(_seconds("clock_skew", how.get("clock_skew", SKEW_S), zero_ok=True) * 1000),
        unix_socket=path,
        tls=how.get("tls"),
    )


def _default_url(unix_socket: str | None) -> str:
    if unix_socket is not None:
        return LOCALHOST
    url = os.environ.get("PLIMSOLL_URL", "")
    if not url:
        raise InvalidBaseURL("no service is named: give its base URL, or set PLIMSOLL_URL")
    return url


def _base_url(text: str) -> SplitResult:  # check 1
    if not _VISIBLE.fullmatch(text) or "\\" in text:
        raise InvalidBaseURL("the base URL must be visible ASCII without spaces and backslashes")
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise InvalidBaseURL("the base URL must be an absolute http or https URL") from None
    if url.scheme not in {"http", "https"} or not url.hostname or port == 0:
        raise InvalidBaseURL("the base URL must be an absolute http or https URL with a host")
    if "@" in url.netloc or "?" in text or "#" in text:
        raise InvalidBaseURL("the base URL must hold no user, query or fragment")
    return url


def _loopback(host: str) -> None:  # check 2
    # By parsed address: a name like 127.example.org only looks like loopback.
    if host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InsecureHTTP("cleartext http is for loopback only: use https, or allow it with insecure_http")


def _token(token: str) -> str:  # check 3; the message never repeats the token
    if token and not _VISIBLE.fullmatch(token):
        raise InvalidOption("the token must be visible ASCII")
    return token


def _seconds(name: str, value: object, *, zero_ok: bool = False) -> float:  # check 3
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidOption(f"{name} must be a finite number of seconds")
    if value < 0 or (value == 0 and not zero_ok):
        raise InvalidOption(f"{name} must be positive")
    return float(value)
