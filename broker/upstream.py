"""All outbound HTTP of the broker goes through one function, `Upstream.send`.

What leaves is what is passed in, and a Host, a length and a name of ours: no cookies, redirects, proxies or environment
exist here, and no URL is parsed again on the way. An `Upstream` belongs to one run, so no other run uses its connections.
Every answer is whole, in time, inside the cap and of one possible reading, or it is a fault.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpcore2

from broker.addresses import Address, AddressFault, Resolver, Rules, Vetted, is_here, system_resolver, vet
from broker.message import Answered, Pairs
from broker.pinned import PeerMismatch, PinnedNetwork
from broker.room import Held
from plimsoll.contract.grants import BACK_BYTES, OUT_BYTES, Origin

RESPONSE_HEADERS: Final = frozenset({"content-type", "etag", "last-modified", "retry-after"})
"""What an answer may tell a guest. Neither cookies nor locations: an API's address is not for guests."""
CONNECTIONS: Final = 16
KEEPALIVE_S: Final = 5.0
PARTS: Final = 65_536
"""Chunks of one answer. Smaller ones than 64 bytes, for all of the largest body, are nobody's answer and everybody's time."""
_PARTS_AT_ONCE: Final = 64
"""After so many, whatever else is under way has its turn."""
_USER_AGENT: Final = "plimsoll"
_FINAL: Final = range(200, 600)
_BODYLESS: Final = frozenset({204, 304})
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_VISIBLE: Final = re.compile(r"[!-~](?:[ -~]{0,1022}[!-~])?")

# It says there, at DEBUG, what answers' heads hold.
logging.getLogger("httpcore2").setLevel(logging.CRITICAL + 1)


class UpstreamFault(StrEnum):
    """Why there is no answer; append-only. Whether the API acted on the request is then unknown, but for the first three."""

    UNREACHABLE = "unreachable"
    PEER = "another_peer"
    TLS = "tls"
    TIMEOUT = "timeout"
    FRAMING = "framing"
    ENCODED = "encoded"
    REQUEST_TOO_LARGE = "request_too_large"
    ANSWER_TOO_LARGE = "answer_too_large"
    BROKEN_OFF = "broken_off"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may cost. The first byte and the total are counted from the beginning of `send`."""

    connect_s: float = 5.0
    first_byte_s: float = 20.0
    total_s: float = 30.0
    out_bytes: int = OUT_BYTES
    back_bytes: int = BACK_BYTES


@dataclass(frozen=True, slots=True)
class Sending:
    """One request, built by us. `target` is path and query; `headers` are in addition to those of every request."""

    method: str
    target: str = field(repr=False)
    headers: Pairs = field(default=(), repr=False)
    body: bytes | None = field(default=None, repr=False)


class _Fault(Exception):
    """Carries a fault out of the reading functions."""

    def __init__(self, fault: UpstreamFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


def trust(ca_file: Path | None = None) -> ssl.SSLContext:
    """Who is believed to be an origin: this machine's authorities, or only those in `ca_file`. The environment has no say.

    Reading them takes a while: make one for all runs. It keeps nothing of a connection.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
        return context
    paths = ssl.get_default_verify_paths()
    file, folder = Path(paths.openssl_cafile), Path(paths.openssl_capath)
    context.load_verify_locations(
        cafile=file if file.is_file() else None, capath=folder if folder.is_dir() else None
    )
    return context


class Upstream:
    """One run's connections to one origin. An async context manager; on exit every connection is closed."""

    def __init__(self, origin: Origin, vetted: Vetted, tls: ssl.SSLContext, limits: Limits) -> None:
        """Speak to `origin` at these addresses."""
        self._origin = origin
        self._limits = limits
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=CONNECTIONS,
            max_keepalive_connections=CONNECTIONS,
            keepalive_expiry=KEEPALIVE_S,
            network_backend=PinnedNetwork(vetted.addresses),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.aclose()

    async def send(self, sending: Sending, held: Held | None = None) -> Answered | UpstreamFault:
        """The whole answer to `sending`, or why there is none. It is sent at most once.

        With `held`, its answer is read as there is room for it.
        """
        if len(sending.body or b"") > self._limits.out_bytes:
            return UpstreamFault.REQUEST_TOO_LARGE
        try:
            async with asyncio.timeout(self._limits.total_s):
                return await self._exchange(sending, held)
        except TimeoutError:
            return UpstreamFault.TIMEOUT
        except _Fault as broken:
            return broken.fault
        except ssl.SSLError:  # behind the handshake, the library lets it through
            return UpstreamFault.TLS
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            # The cause is named by its kind alone: the library's words may repeat headers.
            return _fault_of(error)

    async def _exchange(self, sending: Sending, held: Held | None) -> Answered:
        async with asyncio.timeout(self._limits.first_byte_s):
            response = await self._pool.handle_async_request(self._request(sending))
        try:
            headers = [
                (name.decode("ascii").lower(), value.decode("latin-1")) for name, value in response.headers
            ]
            _check_head(sending.method, response.status, headers)
            body = await self._body(response, held)
        finally:
            await response.aclose()
        return Answered(response.status, _for_guest(headers), body)

    async def _body(self, response: httpcore2.Response, held: Held | None) -> bytes:
        body, parts = bytearray(), 0
        async for part in response.aiter_stream():
            if held is not None:
                await held.take(len(part))
            body += part
            parts += 1
            if len(body) > self._limits.back_bytes or parts > PARTS:
                raise _Fault(UpstreamFault.ANSWER_TOO_LARGE)
            if parts % _PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)  # those that have come already are given without a wait
        return bytes(body)

    def _request(self, sending: Sending) -> httpcore2.Request:
        origin, limits = self._origin, self._limits
        url = httpcore2.URL(
            scheme=origin.scheme.encode(),
            host=origin.host.encode(),
            port=origin.port,
            target=sending.target.encode(),
        )
        waits = {
            "connect": limits.connect_s,
            "read": limits.total_s,
            "write": limits.total_s,
            "pool": limits.total_s,
        }
        return httpcore2.Request(
            sending.method.encode(),
            url,
            headers=[(name.encode(), value.encode()) for name, value in self._headers(sending)],
            content=sending.body or b"",
            extensions={"timeout": waits},
        )

    def _headers(self, sending: Sending) -> Pairs:
        ours = (
            ("host", self._origin.authority),
            ("user-agent", _USER_AGENT),
            ("accept-encoding", "identity"),
        )
        has_body = sending.body is not None or sending.method in _WITH_BODY
        length = (("content-length", str(len(sending.body or b""))),) if has_body else ()
        return ours + sending.headers + length


def _check_head(method: str, status: int, headers: list[tuple[str, str]]) -> None:
    """Refuse an answer that is no final one, is encoded, or says its length twice or not at all."""
    names = {name for name, _ in headers}
    lengths = names & {"content-length", "transfer-encoding"}
    bodyless = method == "HEAD" or status in _BODYLESS
    # Without a length, an answer that was cut looks like one that ended.
    if status not in _FINAL or len(lengths) > 1 or (not lengths and not bodyless):
        raise _Fault(UpstreamFault.FRAMING)
    if any(name == "content-encoding" and value.strip().lower() != "identity" for name, value in headers):
        raise _Fault(UpstreamFault.ENCODED)


def _for_guest(headers: list[tuple[str, str]]) -> Pairs:
    kept: dict[str, str] = {}
    for name, value in headers:
        if name in RESPONSE_HEADERS and _VISIBLE.fullmatch(value):
            kept.setdefault(name, value)
    return tuple(kept.items())


def _fault_of(error: Exception) -> UpstreamFault:
    if isinstance(error, httpcore2.ConnectError):
        causes = {type(error), type(error.__cause__), type(error.__context__)}
        if PeerMismatch in causes:
            return UpstreamFault.PEER
        return (
            UpstreamFault.TLS
            if any(issubclass(cause, ssl.SSLError) for cause in causes)
            else UpstreamFault.UNREACHABLE
        )
    if isinstance(error, httpcore2.TimeoutException):
        return UpstreamFault.TIMEOUT
    return UpstreamFault.FRAMING if isinstance(error, httpcore2.ProtocolError) else UpstreamFault.BROKEN_OFF


async def connect(
    origin: Origin,
    rules: Rules,
    tls: ssl.SSLContext,
    limits: Limits,
    resolver: Resolver = system_resolver,
    here: Callable[[Address], bool] = is_here,
) -> Upstream | AddressFault:
    """One run's way to `origin`, its addresses judged and pinned. Nothing is sent yet."""
    vetted = await vet(origin, rules, resolver, here)
    return Upstream(origin, vetted, tls, limits) if isinstance(vetted, Vetted) else vetted
