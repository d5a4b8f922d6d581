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


class PrivateSocket(str):
    """Path of the socket of a service that this process started for itself."""

    __slots__ = ()


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
    path = _socket_path(how.get("unix_socket"))
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
        tls=_tls(how.get("tls")),
    )


def _socket_path(path: object) -> str | None:
    found = os.fspath(path) if isinstance(path, os.PathLike) else path
    if found is not None and not isinstance(found, str):
        raise InvalidOption("unix_socket must be a path")
    return found


def _tls(context: object) -> ssl.SSLContext | None:
    if context is not None and not isinstance(context, ssl.SSLContext):
        raise InvalidOption("tls must be an ssl.SSLContext")
    return context


def _default_url(unix_socket: str | None) -> str:
    if unix_socket is not None:
        return LOCALHOST
    url = os.environ.get("PLIMSOLL_URL", "")
    if not url:
        raise InvalidBaseURL("no service is named: give its base URL, or set PLIMSOLL_URL")
    return url


def _base_url(text: object) -> SplitResult:  # check 1
    if not isinstance(text, str) or not _VISIBLE.fullmatch(text) or "\\" in text:
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


def _token(token: object) -> str:  # check 3; the message never repeats the token
    if not isinstance(token, str) or (token and not _VISIBLE.fullmatch(token)):
        raise InvalidOption("the token must be visible ASCII")
    return token


def _seconds(name: str, value: object, *, zero_ok: bool = False) -> float:  # check 3
    try:
        seconds = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an integer beyond every float
        seconds = math.inf
    if not math.isfinite(seconds):
        raise InvalidOption(f"{name} must be a finite number of seconds")
    if seconds < 0 or (seconds == 0 and not zero_ok):
        raise InvalidOption(f"{name} must be positive")
    return seconds
