"""Real APIs on this machine: raw ones that answer with any bytes, and authorities to make them https with."""

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from broker.addresses import Rules, parse_listed
from plimsoll.contract.grants import Origin

HOME = Rules(listed=parse_listed("127.0.0.0/8,::1/128"))


@dataclass
class Request:
    """One request as it came: its head's lines and its body."""

    lines: list[bytes]
    body: bytes

    def values(self, name: str) -> list[bytes]:
        wanted = name.lower().encode() + b":"
        return [line[len(wanted) :].strip() for line in self.lines[1:] if line.lower().startswith(wanted)]


Reply = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Api:
    """A server that logs every connection and every request, and replies as it is told."""

    origin: Origin
    connections: int = 0
    requests: list[Request] = field(default_factory=list)


async def _read(reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    request = Request(head.split(b"\r\n")[:-2], b"")
    for length in request.values("content-length"):
        request.body = await reader.readexactly(int(length))
    return request


@asynccontextmanager
async def serve(
    reply: Reply, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", name: str | None = None
) -> AsyncIterator[Api]:
    api: Api | None = None
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert api is not None
        api.connections += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                while True:
                    request = await _read(reader)
                    api.requests.append(request)
                    await reply(request, writer)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(talk(reader, writer))
        talks.add(task)

    server = await asyncio.start_server(accept, host, 0, ssl=tls, limit=1 << 20)
    port = server.sockets[0].getsockname()[1]
    api = Api(Origin("https" if tls else "http", name or host, port))
    try:
        yield api
    finally:
        server.close()
        for task in talks:
            task.cancel()
        ends = await asyncio.gather(*talks, return_exceptions=True)
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next turn of the loop
        assert [end for end in ends if end is not None and not isinstance(end, asyncio.CancelledError)] == []


def canned(*answers: bytes) -> Reply:
    """Replies with these bytes, one after the other; the last stays."""
    left = list(answers)

    async def reply(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    return reply


def answer(body: bytes = b"{}", *headers: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class Authority:
    """Signs certificates, and is trusted by whoever is given its file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self._sign(self.name, self.key, [], authority=True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def serving(self, *names: str) -> ssl.SSLContext:
        """A server's context with a certificate for these names or addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        alternatives = [_alternative(name) for name in names]
        certificate = self._sign(subject, key, alternatives, authority=False)
        path = self.folder / f"{names[0].replace(':', '_')}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        names: list[x509.GeneralName],
        *,
        authority: bool,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def _alternative(name: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    return x509.DNSName(name)
