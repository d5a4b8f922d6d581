"""What leaves for an API and what comes back, against real servers on this machine."""

import asyncio
import gzip
import ipaddress
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from broker.addresses import AddressFault, Rules, Vetted
from broker.message import Answered
from broker.pinned import INTERIM
from broker.upstream import PARTS, Limits, Sending, Upstream, UpstreamFault, connect, trust
from plimsoll.contract.grants import Origin
from tests.integration.broker.apis import HOME, Api, Authority, Request, answer, canned, serve

TLS = trust()
LIMITS = Limits(connect_s=10, first_byte_s=30, total_s=30)
GET = Sending("GET", "/v1/x")


@asynccontextmanager
async def speaking(api: Api, limits: Limits = LIMITS) -> AsyncIterator[Upstream]:
    upstream = await connect(api.origin, HOME, TLS, limits)
    assert isinstance(upstream, Upstream), upstream
    async with upstream:
        yield upstream


async def once(raw: bytes, sending: Sending = GET, limits: Limits = LIMITS) -> Answered | UpstreamFault:
    async with serve(canned(raw)) as api, speaking(api, limits) as upstream:
        return await upstream.send(sending)


async def test_the_request_is_exactly_what_we_built() -> None:
    sending = Sending(
        "POST",
        "/v1/x?page=a%2Fb",
        (("authorization", "Bearer secret"), ("content-type", "text/plain")),
        b"hi",
    )
    async with serve(canned(answer())) as api, speaking(api) as upstream:
        assert isinstance(await upstream.send(sending), Answered)
    (request,) = api.requests
    assert request.lines == [
        b"POST /v1/x?page=a%2Fb HTTP/1.1",
        b"host: " + api.origin.authority.encode(),
        b"user-agent: plimsoll",
        b"accept-encoding: identity",
        b"authorization: Bearer secret",
        b"content-type: text/plain",
        b"content-length: 2",
    ]
    assert request.body == b"hi"


@pytest.mark.parametrize("target", ["/v1/..a/~b", "/a.b/", "/", "/v1/x?a=%20&b=%26"])
async def test_the_target_travels_byte_for_byte(target: str) -> None:
    async with serve(canned(answer())) as api, speaking(api) as upstream:
        await upstream.send(Sending("GET", target))
    assert api.requests[0].lines[0] == b"GET " + target.encode() + b" HTTP/1.1"


@pytest.mark.parametrize(
    ("method", "lengths"), [("GET", []), ("DELETE", []), ("POST", [b"0"]), ("PUT", [b"0"])]
)
async def test_a_request_without_a_body_says_so_where_servers_ask(method: str, lengths: list[bytes]) -> None:
    async with serve(canned(answer())) as api, speaking(api) as upstream:
        assert isinstance(await upstream.send(Sending(method, "/")), Answered)
    assert api.requests[0].values("content-length") == lengths
    assert api.requests[0].values("transfer-encoding") == []


async def test_only_a_few_headers_reach_the_guest() -> None:
    raw = answer(
        b"x",
        "Content-Type: text/plain; charset=utf-8",
        'ETag: "7"',
        "Retry-After: 3",
        "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
        "Set-Cookie: a=b",
        "Location: http://10.0.0.1/",
        "X-Request-Id: 1",
        "Server: y",
        "ETag: again",
    )
    found = await once(raw)
    assert isinstance(found, Answered)
    assert dict(found.headers) == {
        "content-type": "text/plain; charset=utf-8",
        "etag": '"7"',
        "retry-after": "3",
        "last-modified": "Sun, 06 Nov 1994 08:49:37 GMT",
    }


async def test_a_cookie_is_never_sent_back() -> None:
    async with serve(canned(answer(b"1", "Set-Cookie: who=first; Path=/"), answer(b"2"))) as api:
        async with speaking(api) as first:
            await first.send(GET)
            await first.send(GET)
        async with speaking(api) as second:
            await second.send(GET)
    assert [request.values("cookie") for request in api.requests] == [[], [], []]


async def test_a_redirect_is_the_answer_and_is_not_followed() -> None:
    async with serve(canned(answer())) as elsewhere:
        raw = answer(b"", f"Location: {elsewhere.origin}/", status="302 Found")
        found = await once(raw, Sending("GET", "/", (("authorization", "Bearer secret"),)))
    assert found == Answered(302, (), b"")
    assert elsewhere.connections == 0


async def test_proxies_and_the_environment_have_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(canned(answer(b"proxy"))) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, str(proxy.origin))
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
        monkeypatch.setenv("NETRC", "/nonexistent")
        found = await once(answer(b"direct"))
    assert isinstance(found, Answered)
    assert found.body == b"direct"
    assert proxy.connections == 0


async def test_a_run_keeps_its_connection_and_shares_it_with_no_other() -> None:
    async with serve(canned(answer())) as api, speaking(api) as first, speaking(api) as second:
        assert isinstance(await first.send(GET), Answered)
        assert isinstance(await first.send(GET), Answered)
        assert api.connections == 1
        assert isinstance(await second.send(GET), Answered)
        assert api.connections == 2


CL = b"content-length: 2\r\n"
TE = b"transfer-encoding: chunked\r\n"
FRAMING = {
    "length and chunked": b"HTTP/1.1 200 OK\r\n" + CL + TE + b"\r\n2\r\nhi\r\n0\r\n\r\n",
    "chunked and length": b"HTTP/1.1 200 OK\r\n" + TE + CL + b"\r\n2\r\nhi\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\n" + CL + b"content-length: 3\r\n\r\nhi!",
    "the same length twice": b"HTTP/1.1 200 OK\r\n" + CL + CL + b"\r\nhi",
    "two lengths in one": b"HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nhi",
    "two lengths after an interim head": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"
    + CL
    + CL
    + b"\r\nhi",
    "two lengths under bare line feeds": b"HTTP/1.1 200 OK\n" + b"content-length: 2\n" * 2 + b"\nhi",
    "a negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nhi",
    "a signed length": b"HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nhi",
    "a length of no number": b"HTTP/1.1 200 OK\r\ncontent-length: 0x2\r\n\r\nhi",
    "two codings": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"HTTP/1.1 200 OK\r\n" + TE + TE + b"\r\n0\r\n\r\n",
    "an unknown coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a bad chunk": b"HTTP/1.1 200 OK\r\n" + TE + b"\r\nzz\r\nhi\r\n0\r\n\r\n",
    "no length": b"HTTP/1.1 200 OK\r\n\r\nhi",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "HTTP/2": b"HTTP/2 200 OK\r\n" + CL + b"\r\nhi",
    "a switch of protocols": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "a status that is none": b"HTTP/1.1 999 What\r\n" + CL + b"\r\nhi",
    "a header without a name": b"HTTP/1.1 200 OK\r\n: x\r\n" + CL + b"\r\nhi",
    "a space before the colon": b"HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nhi",
    "a NUL in a header": b"HTTP/1.1 200 OK\r\netag: a\0b\r\n" + CL + b"\r\nhi",
    "a header bomb of many": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000 + CL + b"\r\nhi",
    "a header bomb of one": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000 + b"\r\n" + CL + b"\r\nhi",
}


@pytest.mark.parametrize("raw", FRAMING.values(), ids=FRAMING.keys())
async def test_an_answer_with_more_than_one_reading_is_a_fault(raw: bytes) -> None:
    assert await once(raw) is UpstreamFault.FRAMING


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "identity, gzip", "GZIP"])
async def test_an_encoded_answer_is_a_fault(coding: str) -> None:
    assert (
        await once(answer(gzip.compress(b"x" * 1000), f"content-encoding: {coding}")) is UpstreamFault.ENCODED
    )


GOOD = {
    "a length": (answer(b"hi"), b"hi"),
    "chunks": (b"HTTP/1.1 200 OK\r\n" + TE + b"\r\n2;x=y\r\nhi\r\n1\r\n!\r\n0\r\nx: y\r\n\r\n", b"hi!"),
    "an interim head": (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + answer(b"hi"), b"hi"),
    "HTTP/1.0 with a length": (b"HTTP/1.0 200 OK\r\n" + CL + b"\r\nhi", b"hi"),
    "an encoding that is none": (answer(b"hi", "content-encoding: identity"), b"hi"),
    "nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
}


@pytest.mark.parametrize(("raw", "body"), GOOD.values(), ids=GOOD.keys())
async def test_a_plain_answer_comes_whole(raw: bytes, body: bytes) -> None:
    found = await once(raw)
    assert isinstance(found, Answered)
    assert found.body == body


async def test_a_head_alone_has_no_body() -> None:
    found = await once(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", Sending("HEAD", "/"))
    assert found == Answered(200, (), b"")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\n" + TE + b"\r\n5\r\nhi",
    ],
)
async def test_an_answer_that_was_cut_is_a_fault_and_never_an_end(raw: bytes) -> None:
    async def cut(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        writer.close()

    async with serve(cut) as api, speaking(api) as upstream:
        assert await upstream.send(GET) is UpstreamFault.BROKEN_OFF


CHUNKED = b"HTTP/1.1 200 OK\r\n" + TE + b"\r\n1\r\n1\r\n0\r\n\r\n"


@pytest.mark.parametrize("first", [answer(b"1"), CHUNKED], ids=["length", "chunks"])
async def test_what_a_server_says_behind_its_answer_is_no_answer_to_the_next_request(first: bytes) -> None:
    """Both arrive at once, so the library has read both before the second request."""
    async with serve(canned(first + answer(b"smuggled"), answer(b"2"))) as api, speaking(api) as upstream:
        found = [await upstream.send(GET), await upstream.send(GET)]
    assert [one.body for one in found if isinstance(one, Answered)] == [b"1", b"2"]


async def test_the_cap_counts_the_body_as_the_guest_would_get_it() -> None:
    small = replace(LIMITS, back_bytes=10)
    at = await once(answer(b"x" * 10), limits=small)
    assert isinstance(at, Answered)
    assert at.body == b"x" * 10
    assert await once(answer(b"x" * 11), limits=small) is UpstreamFault.ANSWER_TOO_LARGE
    chunked = b"HTTP/1.1 200 OK\r\n" + TE + b"\r\n" + b"1\r\nx\r\n" * 11 + b"0\r\n\r\n"
    assert await once(chunked, limits=small) is UpstreamFault.ANSWER_TOO_LARGE


async def test_a_request_over_the_cap_is_not_sent() -> None:
    async with serve(canned(answer())) as api, speaking(api, replace(LIMITS, out_bytes=10)) as upstream:
        assert await upstream.send(Sending("PUT", "/", (), b"x" * 11)) is UpstreamFault.REQUEST_TOO_LARGE
        assert api.connections == 0
        assert isinstance(await upstream.send(Sending("PUT", "/", (), b"x" * 10)), Answered)


async def test_the_largest_bodies_pass_both_ways() -> None:
    raw = answer(b"y" * LIMITS.back_bytes)
    async with serve(canned(raw)) as api, speaking(api) as upstream:
        found = await upstream.send(Sending("PUT", "/", (), b"x" * LIMITS.out_bytes))
    assert isinstance(found, Answered)
    assert (len(found.body), len(api.requests[0].body)) == (LIMITS.back_bytes, LIMITS.out_bytes)


async def test_an_endless_body_ends_at_the_cap() -> None:
    async def endless(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + TE + b"\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()

    async with serve(endless) as api, speaking(api) as upstream:
        assert await upstream.send(GET) is UpstreamFault.ANSWER_TOO_LARGE


async def test_only_so_many_interim_heads_are_read() -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert isinstance(await once(head * INTERIM + answer(b"hi")), Answered)
    assert await once(head * (INTERIM + 1) + answer(b"hi")) is UpstreamFault.FRAMING


async def test_an_answer_of_more_chunks_than_anybody_needs_is_too_large() -> None:
    raw = b"HTTP/1.1 200 OK\r\n" + TE + b"\r\n" + b"1\r\nx\r\n" * (PARTS + 1) + b"0\r\n\r\n"
    assert await once(raw) is UpstreamFault.ANSWER_TOO_LARGE


async def test_an_answer_of_many_chunks_does_not_keep_other_calls_waiting() -> None:
    raw = b"HTTP/1.1 200 OK\r\n" + TE + b"\r\n" + b"1\r\nx\r\n" * (PARTS - 1) + b"0\r\n\r\n"
    longest = 0.0

    async def others() -> None:
        """What else is under way: the longest it had to wait, in processor time, so that a busy machine counts for nothing."""
        nonlocal longest
        while True:
            begun = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - begun)

    begun = time.thread_time()
    beside = asyncio.create_task(others())
    found = await once(raw)
    beside.cancel()
    assert isinstance(found, Answered)
    assert len(found.body) == PARTS - 1
    assert longest < (time.thread_time() - begun) / 15


async def dripping(_: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silent(_: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def interim(_: Request, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.1)


async def test_a_slow_body_ends_at_the_total_deadline() -> None:
    async with serve(dripping) as api, speaking(api, Limits(10, 30, 0.5)) as upstream:
        assert await upstream.send(GET) is UpstreamFault.TIMEOUT


@pytest.mark.parametrize("reply", [silent, interim])
async def test_an_answer_that_does_not_begin_ends_at_the_first_deadline(reply: object) -> None:
    assert callable(reply)
    async with serve(reply) as api, speaking(api, Limits(10, 0.5, 60)) as upstream:
        assert await upstream.send(GET) is UpstreamFault.TIMEOUT


async def test_a_server_that_never_reads_ends_at_the_deadline() -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        api = Api(Origin("http", "127.0.0.1", listener.getsockname()[1]))
        async with speaking(api, Limits(10, 0.5, 0.5)) as upstream:
            found = await upstream.send(Sending("PUT", "/", (), b"x" * LIMITS.out_bytes))
    assert found is UpstreamFault.TIMEOUT


async def test_nobody_there_is_a_fault() -> None:
    async with serve(canned(answer())) as api:
        pass
    async with speaking(api) as upstream:
        assert await upstream.send(GET) is UpstreamFault.UNREACHABLE


async def test_a_second_address_is_tried_when_the_first_takes_no_connection() -> None:
    async with serve(canned(answer(b"hi"))) as api:
        nobody, home = ipaddress.ip_address("127.7.7.7"), ipaddress.ip_address("127.0.0.1")
        async with Upstream(api.origin, Vetted((nobody, home)), TLS, LIMITS) as upstream:
            assert isinstance(await upstream.send(GET), Answered)


async def test_an_ipv6_origin_is_spoken_to_and_named_in_brackets() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 loopback: {error}")
    async with serve(canned(answer(b"hi")), host="::1") as api, speaking(api) as upstream:
        assert isinstance(await upstream.send(GET), Answered)
    assert api.requests[0].values("host") == [f"[::1]:{api.origin.port}".encode()]


class Names:
    """A resolver whose answer changes each time."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return self.answers.pop(0)


async def test_a_name_that_changes_its_mind_changes_nothing() -> None:
    async with serve(canned(answer(b"vetted")), host="127.0.0.1") as api:
        origin = Origin("http", "api.example", api.origin.port)
        names = Names(["127.0.0.1"], ["169.254.169.254"])
        upstream = await connect(origin, HOME, TLS, LIMITS, names)
        assert isinstance(upstream, Upstream)
        async with upstream:
            assert isinstance(await upstream.send(GET), Answered)
            assert isinstance(await upstream.send(GET), Answered)
        assert api.requests[0].values("host") == [f"api.example:{origin.port}".encode()]
        assert await connect(origin, HOME, TLS, LIMITS, names) is AddressFault.NEVER


async def test_an_unlisted_address_gets_no_connection() -> None:
    async with serve(canned(answer())) as api:
        assert await connect(api.origin, Rules(), TLS, LIMITS) is AddressFault.PRIVATE
        ours = Rules(HOME.listed, ((None, api.origin.port),))
        assert await connect(api.origin, ours, TLS, LIMITS) is AddressFault.OURSELVES
    assert api.connections == 0


async def test_another_peer_than_the_vetted_one_gets_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the kernel had been told to send the connection elsewhere."""
    async with serve(canned(answer())) as api:
        upstream = Upstream(api.origin, Vetted((ipaddress.ip_address("127.0.0.2"),)), TLS, LIMITS)
        network = upstream._pool._network_backend._network  # type: ignore[attr-defined]
        honest = network.connect_tcp

        async def diverted(_: str, port: int, **options: Any) -> object:
            return await honest("127.0.0.1", port, **options)

        monkeypatch.setattr(network, "connect_tcp", diverted)
        async with upstream:
            assert await upstream.send(GET) is UpstreamFault.PEER
    assert api.requests == []


async def test_https_is_verified_by_the_name_of_the_origin(authority: Authority) -> None:
    """The connection goes to an address; the certificate must be for the name, and from an authority we trust."""
    home = Vetted((ipaddress.ip_address("127.0.0.1"),))
    async with serve(canned(answer(b"hi")), tls=authority.serving("api.example"), name="api.example") as api:
        async with Upstream(api.origin, home, trust(authority.file), LIMITS) as upstream:
            assert isinstance(await upstream.send(GET), Answered)
        other = replace(api.origin, host="other.example")
        async with Upstream(other, home, trust(authority.file), LIMITS) as upstream:
            assert await upstream.send(GET) is UpstreamFault.TLS
        async with Upstream(api.origin, home, TLS, LIMITS) as upstream:
            assert await upstream.send(GET) is UpstreamFault.TLS
    assert len(api.requests) == 1


async def test_a_record_that_is_not_the_peers_is_a_fault(authority: Authority) -> None:
    forged = b"\x17\x03\x03\x00\x20" + b"x" * 32

    async def half(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhi")
        await writer.drain()
        await asyncio.sleep(0.1)  # what was written is with the kernel, and this comes behind it
        os.write(writer.get_extra_info("socket").fileno(), forged)

    async with (
        serve(half, tls=authority.serving("127.0.0.1")) as api,
        speaking_tls(api, authority) as upstream,
    ):
        assert await upstream.send(GET) is UpstreamFault.TLS


async def test_an_address_as_origin_needs_a_certificate_for_it(authority: Authority) -> None:
    async with (
        serve(canned(answer()), tls=authority.serving("127.0.0.1")) as api,
        speaking_tls(api, authority) as upstream,
    ):
        assert isinstance(await upstream.send(GET), Answered)
    async with (
        serve(canned(answer()), tls=authority.serving("127.0.0.2")) as api,
        speaking_tls(api, authority) as upstream,
    ):
        assert await upstream.send(GET) is UpstreamFault.TLS


@asynccontextmanager
async def speaking_tls(api: Api, authority: Authority) -> AsyncIterator[Upstream]:
    upstream = await connect(api.origin, HOME, trust(authority.file), LIMITS)
    assert isinstance(upstream, Upstream), upstream
    async with upstream:
        yield upstream


async def test_plain_http_where_https_was_asked_for_is_a_fault(authority: Authority) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer())
        await reader.read(1)
        writer.transport.abort()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    api = Api(Origin("https", "127.0.0.1", server.sockets[0].getsockname()[1]))
    async with server, speaking_tls(api, authority) as upstream:
        assert await upstream.send(GET) is UpstreamFault.TLS


async def test_nothing_that_was_said_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sending = Sending("GET", "/canary", (("authorization", "Bearer canary"),))
    found = await once(answer(b"canary", 'etag: "canary"'), sending)
    assert isinstance(found, Answered)
    assert "canary" not in caplog.text
    assert "canary" not in repr((found, sending))
