"""A run's calls from the pass to the API and back, against real APIs on this machine."""

import asyncio
import base64
import json
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from typing_extensions import override

from broker.addresses import AddressFault, Rules
from broker.calls import Calls, Clocks, Grant
from broker.credential import Credential, Place
from broker.desk import told
from broker.lease import GRACE_S, LeaseFault, Leases, Terms
from broker.message import Call, Pairs
from broker.mint import Minter, MintFault, Order, StaticMinter
from broker.policy import Allowed, decide
from broker.trace import Trace
from broker.upstream import Limits, Upstream, connect, trust
from plimsoll.contract import codec
from plimsoll.contract.grants import CallCode, parse_route
from tests.integration.broker.apis import HOME, Api, Request, answer, canned, serve
from tests.unit.broker.test_policy import (
    HOSTILE_HEADERS,
    HOSTILE_METHODS,
    HOSTILE_PATHS,
    HOSTILE_QUERIES,
    ROUTES,
)

SECRET = b"canary-of-a-credential"
TLS = trust()
RUN, WORKER = "a" * 32, "worker-1"
TERMS = Terms(RUN, "hr-read", "caller-7", WORKER, budget_s=60)
GRANT = Grant([parse_route("GET /v1/x/*?page"), parse_route("PUT /v1/x/*"), parse_route("GET /v1/list")])
LIMITS = Limits(connect_s=10, first_byte_s=30, total_s=30)


@dataclass
class Time:
    """Time that the test moves."""

    now: float = 1000.0

    def clocks(self) -> Clocks:
        return Clocks(lambda: self.now, lambda: self.now)


UNKNOWN = b'{"error": {"code": "no_grant"}}'


@dataclass
class Run:
    """A worker's host side with a pass."""

    leases: Leases
    shown: bytes = field(repr=False)

    async def raw(self, message: bytes, run_id: str = RUN, worker: str = WORKER) -> bytes:
        """The answer; `UNKNOWN` where the pass opens nothing."""
        calls = self.leases.calls_of(self.shown, run_id, worker)
        if calls is None:
            return UNKNOWN
        async with calls.call(message) as answer:
            return answer

    async def call(self, method: str = "GET", path: str = "/v1/x/7", **more: object) -> dict[str, Any]:
        message = json.dumps({"method": method, "path": path} | more).encode()
        answered: dict[str, Any] = json.loads(await self.raw(message))
        return answered

    async def code(self, method: str = "GET", path: str = "/v1/x/7", **more: object) -> str:
        code: str = (await self.call(method, path, **more))["error"]["code"]
        return code

    async def close(self) -> Trace:
        trace = await self.leases.close(RUN)
        assert trace is not None
        return trace


@asynccontextmanager
async def running(
    api: Api,
    grant: Grant = GRANT,
    minter: Minter | None = None,
    limits: Limits = LIMITS,
    moved: Time | None = None,
) -> AsyncIterator[Run]:
    clocks = moved.clocks() if moved else Clocks(time.monotonic, time.time)
    async with Leases(clocks, os.urandom) as leases:
        minter = minter or StaticMinter(SECRET, Place())
        shown = await leases.register(TERMS, grant, minter, lambda: connect(api.origin, HOME, TLS, limits))
        assert isinstance(shown, bytes), shown
        yield Run(leases, shown)


def failed(trace: Trace) -> Mapping[CallCode, int]:
    return dict(trace.failed)


async def test_a_permitted_call_carries_the_credential_and_brings_the_answer() -> None:
    raw = answer(b'{"id": 7}', "content-type: application/json", "set-cookie: a=b", status="200 OK")
    async with serve(canned(raw)) as api, running(api) as run:
        found = await run.call(query={"page": "a b"}, headers={"Accept": "application/json"})
        trace = await run.close()
    assert found == {
        "status": 200,
        "headers": {"content-type": "application/json"},
        "body": '{"id": 7}',
        "body_encoding": "utf-8",
    }
    assert api.requests[0].lines[0] == b"GET /v1/x/7?page=a%20b HTTP/1.1"
    assert api.requests[0].values("authorization") == [b"Bearer " + SECRET]
    assert api.requests[0].values("accept") == [b"application/json"]
    (entry,) = trace.entries
    assert (entry.route, entry.method, entry.status) == ("GET /v1/x/*?page", "GET", 200)
    assert (entry.delivered, entry.bytes_back) == (True, 9)
    assert (trace.sent, trace.delivered, failed(trace)) == (1, 1, {})


async def test_a_repeated_read_is_told_by_nothing_but_its_being_one() -> None:
    pages = [{"page": "canary-1"}, {"page": "canary-2"}, {"page": "canary-1"}]
    async with serve(canned(answer(b"[]"))) as api, running(api) as run:
        for query in pages:
            assert (await run.call(path="/v1/x/canary-7", query=query))["status"] == 200
        assert (await run.call("PUT", path="/v1/x/canary-7", body="x"))["status"] == 200
        assert (await run.call(path="/v1/x/canary-7", query=pages[0]))["status"] == 200
        trace = await run.close()
    assert [entry.repeat for entry in trace.entries] == [False, False, True, False, False]
    kept = codec.dumps(told(trace))
    assert b"canary" not in kept
    assert kept.count(b'"repeat":true') == 1


async def test_two_runs_that_read_the_same_remember_nothing_alike() -> None:
    remembered: list[set[bytes]] = []
    async with serve(canned(answer(b"[]"))) as api:
        for _ in range(2):
            async with running(api) as run:
                calls = run.leases.calls_of(run.shown, RUN, WORKER)
                assert calls is not None
                assert (await run.call())["status"] == 200
                remembered.append(set(calls._tracer._read._seen))
    assert [len(each) for each in remembered] == [1, 1]
    assert not remembered[0] & remembered[1]


async def test_bodies_go_both_ways_byte_for_byte() -> None:
    every = bytes(range(256)) * 40

    async def echo(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(request.body))

    async with serve(echo) as api, running(api) as run:
        sent = base64.b64encode(every).decode()
        found = await run.call("PUT", body=sent, body_encoding="base64", headers={"content-type": "x/y"})
        text = await run.call("PUT", body="é\r\n\ufeff")
        trace = await run.close()
    assert base64.b64decode(found["body"]) == every
    assert text["body"] == "é\r\n\ufeff"
    assert (trace.bytes_out, trace.bytes_back) == (len(every) + 7, len(every) + 7)


class Watched(Credential):
    """Counts how often it is looked at."""

    touched = 0

    @override
    def __getattribute__(self, name: str) -> Any:
        if name == "value":
            type(self).touched += 1
        return super().__getattribute__(name)


class WatchedMinter(Minter):
    """Mints a credential that tells."""

    @override
    async def mint(self, order: Order) -> Credential:
        return Watched("authorization", "Bearer x", (SECRET,))


HOSTILE: list[tuple[str, str, Pairs, Pairs]] = [
    *(
        (method, path, (), ())
        for path in HOSTILE_PATHS
        for method in ("GET", "DELETE")
        if (method, path) != ("DELETE", "/")
    ),
    *((method, "/v1/employees", (), ()) for method in HOSTILE_METHODS),
    *(("GET", "/v1/employees", (), headers) for headers in HOSTILE_HEADERS),
    *(("GET", "/v1/employees", query, ()) for query in HOSTILE_QUERIES),
]


async def test_no_hostile_call_sends_a_byte_or_touches_the_credential() -> None:
    Watched.touched = 0
    async with serve(canned(answer())) as api, running(api, Grant(ROUTES), WatchedMinter()) as run:
        for method, path, query, headers in HOSTILE:
            grouped: dict[str, list[str]] = {}
            for key, value in query:
                grouped.setdefault(key, []).append(value)
            code = await run.code(method, path, query=grouped, headers=dict(headers))
            assert code == CallCode.DENIED, (method, path)
        for message in (b"", b"{", b'{"method":"GET","path":"/v1/employees","path":"/v1/secrets"}'):
            assert json.loads(await run.raw(message))["error"]["code"] == CallCode.DENIED
        assert (api.connections, Watched.touched) == (0, 0)
        assert (await run.call("GET", "/v1/employees"))["status"] == 200
        assert (api.connections, Watched.touched) == (1, 1)
        trace = await run.close()
    assert trace.sent == 1
    assert failed(trace) == {CallCode.DENIED: len(HOSTILE) + 3}


async def test_of_a_thousand_calls_at_once_exactly_the_budget_goes_upstream() -> None:
    async with serve(canned(answer())) as api, running(api) as run:
        found = await asyncio.gather(*(run.call() for _ in range(1000)))
        trace = await run.close()
    assert len(api.requests) == 256
    assert sum("status" in one for one in found) == 256
    assert sum(one.get("error", {}).get("code") == "budget" for one in found) == 744
    assert (trace.sent, trace.delivered, failed(trace)) == (256, 256, {CallCode.BUDGET: 744})


async def test_a_pass_is_for_one_run_of_one_worker() -> None:
    async with serve(canned(answer())) as api, running(api) as run:
        message = b'{"method":"GET","path":"/v1/x/7"}'
        other = Run(run.leases, os.urandom(32))
        flipped = Run(run.leases, bytes([run.shown[0] ^ 1]) + run.shown[1:])
        for found in (
            await run.raw(message, worker="worker-2"),
            await run.raw(message, run_id="b" * 32),
            await other.raw(message),
            await flipped.raw(message),
            await Run(run.leases, b"").raw(message),
            await Run(run.leases, run.shown + b"x").raw(message),
        ):
            assert json.loads(found)["error"]["code"] == CallCode.NO_GRANT
        assert api.connections == 0
        assert (await run.call())["status"] == 200


async def test_after_the_end_and_after_a_restart_a_pass_opens_nothing() -> None:
    async with serve(canned(answer())) as api:
        async with running(api) as run:
            await run.close()
            assert await run.code() == CallCode.NO_GRANT
            assert await run.leases.close(RUN) is None
        async with Leases(Clocks(time.monotonic, time.time), os.urandom) as restarted:
            assert await Run(restarted, run.shown).code() == CallCode.NO_GRANT
        assert api.connections == 0


async def test_a_lease_ends_by_itself_when_nobody_closes_it() -> None:
    moved = Time()
    async with serve(canned(answer())) as api, running(api, moved=moved) as run:
        moved.now += TERMS.budget_s + GRACE_S - 1
        assert await run.leases.sweep() == 0
        assert (await run.call())["status"] == 200
        moved.now += 1
        assert await run.code() == CallCode.NO_GRANT
        assert await run.leases.sweep() == 1
        assert await run.leases.close(RUN) is None


async def test_the_end_of_the_run_cancels_calls_in_flight() -> None:
    arrived = asyncio.Event()
    gone = asyncio.Event()

    async def hanging(_: Request, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        try:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    async with serve(hanging) as api, running(api) as run:
        flying = [asyncio.create_task(run.code()) for _ in range(3)]
        await asyncio.wait_for(arrived.wait(), 30)
        trace = await run.close()
        assert await asyncio.gather(*flying) == [CallCode.NO_GRANT] * 3
        await asyncio.wait_for(gone.wait(), 30)
        assert await run.code() == CallCode.NO_GRANT
    assert trace.delivered == 0
    assert trace.sent >= 1
    assert all(entry.status == 0 and not entry.delivered for entry in trace.entries)


async def test_whoever_asks_and_goes_away_ends_the_call_and_nothing_else() -> None:
    arrived = asyncio.Event()

    async def first_hangs(_: Request, writer: asyncio.StreamWriter) -> None:
        if not arrived.is_set():
            arrived.set()
            await asyncio.Event().wait()
        writer.write(answer())

    async with serve(first_hangs) as api, running(api) as run:
        asking = asyncio.create_task(run.call())
        await asyncio.wait_for(arrived.wait(), 30)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await run.call())["status"] == 200
        trace = await run.close()
    assert [entry.delivered for entry in trace.entries] == [False, True]


ECHOES = {
    "in the body": answer(b'{"you": "Bearer ' + SECRET + b'"}'),
    "in base64": answer(base64.b64encode(b"x" + SECRET)),
    "escaped": answer("".join(f"\\u00{byte:02x}" for byte in SECRET).encode()),
    "in a header": answer(b"{}", f'etag: "{SECRET.decode()}"'),
    "in a large body": answer(b"x" * 1_000_000 + SECRET + b"x" * 1_000_000),
    "in an error": answer(SECRET, status="401 Unauthorized"),
}


@pytest.mark.parametrize("raw", ECHOES.values(), ids=ECHOES.keys())
async def test_an_answer_that_echoes_the_credential_is_not_delivered(raw: bytes) -> None:
    async with serve(canned(raw)) as api, running(api) as run:
        found = await run.raw(b'{"method":"GET","path":"/v1/x/7"}')
        trace = await run.close()
    assert json.loads(found) == {
        "error": {"code": "credential_echoed", "reason": "the answer held the credential"}
    }
    assert (trace.sent, trace.delivered, failed(trace)) == (1, 0, {CallCode.CREDENTIAL_ECHOED: 1})


async def test_a_long_answer_waits_for_no_name_server() -> None:
    """Questions for names are asked in the loop's own threads, and kept there for as long as nobody answers."""
    silent = threading.Event()
    loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    loop.set_default_executor(threads)
    raw = answer(b"x" * 1_000_000)
    async with serve(canned(raw)) as api, running(api) as run:
        asking = loop.run_in_executor(None, silent.wait)
        try:
            async with asyncio.timeout(30):
                assert (await run.call())["status"] == 200
        finally:
            silent.set()
            await asking


async def test_a_part_of_the_credential_is_delivered() -> None:
    async with serve(canned(answer(SECRET[:-1]))) as api, running(api) as run:
        assert (await run.call())["body"] == SECRET[:-1].decode()


async def test_what_the_api_cannot_answer_has_a_code_and_costs_budget() -> None:
    async with (
        serve(canned(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n")) as api,
        running(api, replace(GRANT, max_calls=2)) as run,
    ):
        assert [await run.code() for _ in range(3)] == [
            CallCode.UPSTREAM,
            CallCode.UPSTREAM,
            CallCode.BUDGET,
        ]


async def test_what_is_too_large_either_way_has_a_code() -> None:
    small = replace(LIMITS, back_bytes=10)
    async with (
        serve(canned(answer(b"x" * 11))) as api,
        running(api, replace(GRANT, out_bytes=10), limits=small) as run,
    ):
        assert await run.code("PUT", body="x" * 11) == CallCode.TOO_LARGE
        assert api.connections == 0
        assert await run.code("PUT", body="x" * 10) == CallCode.TOO_LARGE
        assert len(api.requests) == 1


async def test_after_a_429_the_api_is_left_alone_and_the_guest_told_how_long() -> None:
    moved = Time()
    turned = answer(b"", "retry-after: 7", status="429 Too Many Requests")
    async with serve(canned(turned, answer())) as api, running(api, moved=moved) as run:
        assert (await run.call())["status"] == 429
        shed = await run.call()
        assert (shed["error"]["code"], shed["error"]["retry_after_s"]) == ("shed", 7)
        assert await run.code("GET", "/v1/y") == CallCode.DENIED
        moved.now += 7
        assert (await run.call())["status"] == 200
        trace = await run.close()
    assert len(api.requests) == 2
    assert (trace.sent, failed(trace)) == (2, {CallCode.SHED: 1, CallCode.DENIED: 1})


async def test_after_a_503_one_call_a_second_looks_at_the_health_check_without_the_credential() -> None:
    moved, healthy = Time(), False

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        checked = request.lines[0].startswith(b"GET /healthz ")
        status = "200 OK" if healthy else "503 Service Unavailable"
        writer.write(answer(b"", "retry-after: 20", status="500 No" if checked and not healthy else status))

    grant = replace(GRANT, health_check="/healthz")
    async with serve(reply) as api, running(api, grant, moved=moved) as run:
        assert (await run.call())["status"] == 503
        assert [await run.code() for _ in range(3)] == [CallCode.SHED] * 3
        assert [request.lines[0] for request in api.requests[1:]] == [b"GET /healthz HTTP/1.1"]
        healthy = True
        assert await run.code() == CallCode.SHED
        moved.now += 1
        assert (await run.call())["status"] == 200
        trace = await run.close()
    looks = [request for request in api.requests if request.lines[0] == b"GET /healthz HTTP/1.1"]
    assert [request.values("authorization") for request in looks] == [[], []]
    assert (trace.sent, trace.probes, failed(trace)) == (2, 2, {CallCode.SHED: 4})


async def test_a_health_check_that_is_turned_away_is_left_alone_too() -> None:
    moved = Time()

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        checked = request.lines[0].startswith(b"GET /healthz ")
        turned = answer(b"", "retry-after: 9", status="429 Too Many Requests")
        writer.write(turned if checked else answer(b"", "retry-after: 20", status="503 Service Unavailable"))

    grant = replace(GRANT, health_check="/healthz")
    async with serve(reply) as api, running(api, grant, moved=moved) as run:
        assert (await run.call())["status"] == 503
        for _ in range(8):
            assert await run.code() == CallCode.SHED
            moved.now += 1
    assert len(api.requests) == 2


class Failing(Minter):
    """A minter that cannot."""

    @override
    async def mint(self, order: Order) -> MintFault:
        return MintFault.HOOK_TIMEOUT


async def test_without_a_credential_or_an_address_there_is_no_lease() -> None:
    async with (
        serve(canned(answer())) as api,
        Leases(Clocks(time.monotonic, time.time), os.urandom) as leases,
    ):
        static = StaticMinter(SECRET, Place())

        async def listed() -> Upstream | AddressFault:
            return await connect(api.origin, HOME, TLS, LIMITS)

        async def unlisted() -> Upstream | AddressFault:
            return await connect(api.origin, Rules(), TLS, LIMITS)

        assert await leases.register(TERMS, GRANT, Failing(), listed) is MintFault.HOOK_TIMEOUT
        assert await leases.register(TERMS, GRANT, static, unlisted) is AddressFault.PRIVATE
        assert await leases.close(RUN) is None
        # What failed holds no place.
        assert isinstance(await leases.register(TERMS, GRANT, static, listed), bytes)
        assert await leases.register(TERMS, GRANT, static, listed) is LeaseFault.TWICE
        assert api.connections == 0


class Slow(Minter):
    """A minter that others overtake."""

    @override
    async def mint(self, order: Order) -> Credential | MintFault:
        await asyncio.sleep(0.1)
        return await StaticMinter(SECRET, Place()).mint(order)


async def test_leases_are_bounded_also_while_they_are_made() -> None:
    clocks = Clocks(time.monotonic, time.time)
    async with serve(canned(answer())) as api, Leases(clocks, os.urandom, most=2) as leases:

        async def register(name: str) -> object:
            terms = replace(TERMS, run_id=name * 32)
            return await leases.register(terms, GRANT, Slow(), lambda: connect(api.origin, HOME, TLS, LIMITS))

        found = await asyncio.gather(*(register(name) for name in "aabcd"))
        assert [type(one) is bytes for one in found] == [True, False, True, False, False]
        assert found[1] is LeaseFault.TWICE
        assert {found[3], found[4]} == {LeaseFault.FULL}
        await leases.close(RUN)
        assert isinstance(await register("e"), bytes)
        for name in "be":
            await leases.close(name * 32)
        assert not leases._by_run
        assert not leases._by_digest


class Waiting:
    """A minter that mints once it is let go."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def mint(self, order: Order) -> Credential | MintFault:
        self.asked.set()
        await self.go.wait()
        return await StaticMinter(SECRET, Place()).mint(order)


async def test_a_lease_that_is_closed_while_it_is_made_never_opens() -> None:
    """Whoever asked for it had no answer in time and said so; a place is free again."""
    async with (
        serve(canned(answer())) as api,
        Leases(Clocks(time.monotonic, time.time), os.urandom, 1) as leases,
    ):
        minter = Waiting()
        making = asyncio.create_task(
            leases.register(TERMS, GRANT, minter, lambda: connect(api.origin, HOME, TLS, LIMITS))
        )
        await asyncio.wait_for(minter.asked.wait(), 20)
        assert await leases.close(RUN) is None
        minter.go.set()
        assert await asyncio.wait_for(making, 20) is LeaseFault.CLOSED
        assert await leases.close(RUN) is None
        again = await leases.register(
            TERMS, GRANT, StaticMinter(SECRET, Place()), lambda: connect(api.origin, HOME, TLS, LIMITS)
        )
        assert isinstance(again, bytes)


async def test_many_runs_at_once_lose_nothing_and_share_nothing() -> None:
    async def tell(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(request.lines[0].split()[1]))

    async with serve(tell) as api, Leases(Clocks(time.monotonic, time.time), os.urandom) as leases:

        async def one(number: int) -> tuple[list[str], Trace | None]:
            run_id = f"{number:032x}"
            shown = await leases.register(
                replace(TERMS, run_id=run_id),
                GRANT,
                StaticMinter(f"canary-of-run-{number:04}".encode(), Place()),
                lambda: connect(api.origin, HOME, TLS, LIMITS),
            )
            assert isinstance(shown, bytes)
            messages = (f'{{"method":"GET","path":"/v1/x/{number}-{call}"}}'.encode() for call in range(50))
            run = Run(leases, shown)
            found = [json.loads(await run.raw(message, run_id)) for message in messages]
            return [answered["body"] for answered in found], await leases.close(run_id)

        runs = await asyncio.gather(*(one(number) for number in range(64)))
    for number, (bodies, trace) in enumerate(runs):
        assert bodies == [f"/v1/x/{number}-{call}" for call in range(50)]
        assert trace is not None
        assert (trace.sent, trace.delivered, trace.failed) == (50, 50, ())
    assert (len(api.requests), api.connections) == (64 * 50, 64)
    for request in api.requests:
        number = int(request.lines[0].split()[1].split(b"/")[-1].split(b"-")[0])
        assert request.values("authorization") == [b"Bearer canary-of-run-%04d" % number]


async def test_the_credential_is_in_no_log_and_no_text_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve(canned(answer(SECRET), answer())) as api, running(api) as run:
        found = [await run.raw(b'{"method":"GET","path":"/v1/x/7"}') for _ in range(2)]
        lease = run.leases._by_run[RUN]
        shown = repr(lease) + repr(lease.calls) + repr(run.leases) + repr(found) + repr(await run.close())
        assert "canary" not in shown
        assert repr(run.shown) not in shown
        assert lease.calls._credential is None
    assert "canary" not in caplog.text


def test_the_hostile_calls_are_as_many_as_promised() -> None:
    assert len(HOSTILE) >= 60
    assert not [
        case
        for case in HOSTILE
        if isinstance(decide(ROUTES, Call(case[0], case[1], case[2], case[3])), Allowed)
    ]
    assert Calls.__doc__
