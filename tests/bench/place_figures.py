"""Figure 18: what a call costs while another caller has as many under way as it may, to an API that does not answer.

A broker of its own, asked as a worker asks it: no guest, so that what is measured is the broker and nothing else.
"""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import httpx2

from app.dispatch.brokerlink import BrokerLink
from plimsoll.contract.profiles import CredentialTerms, CredentialType, Profile
from tests.bench import call_servers
from tests.bench.report import Figure, Report
from tests.bench.sampling import Series
from tests.support import broker_place
from tests.support.broker_place import Place, placed

TIMES_ALONE: Final = 2.0
_RUNS: Final = 17
_CALLS_EACH: Final = 16
_HELD: Final = 128
"""Half of the broker's places: as many as one caller may have while they are free."""
_SECRET: Final = b"bench-credential-of-nobody"
_PATIENCE_S: Final = 60.0
_CALL: Final = json.dumps({"method": "GET", "path": "/v1/employees/7"}).encode()


@dataclass(slots=True)
class Slow:
    """An API that answers nobody until it is let go."""

    waiting: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.waiting += 1
                if self.waiting == _HELD:
                    self.enough.set()
                await self.let_go.wait()
                self.waiting -= 1
                writer.write(call_servers.API)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def figures(report: Report, *, rounds: int, calls: int) -> None:
    """The figure, in its own event loop."""
    title = "A call while 17 runs of another caller have 272 calls to an API that does not answer"
    with report.measuring(18, title) as figure, placed() as place:
        asyncio.run(_measured(figure, place, rounds, calls))


async def _measured(figure: Figure, place: Place, rounds: int, calls: int) -> None:
    alone, beside = Series(), Series()
    quick = await asyncio.start_server(call_servers.serving(call_servers.API), "127.0.0.1", 0)
    async with quick, broker_place.serving(place) as (link, _):
        origin = _origin(quick)
        for _ in range(rounds):
            async with _run(place, link, origin, "caller-8") as client:
                await _series(client, calls)
                alone.values += await _series(client, calls)
                async with _slow_calls(place, link):
                    beside.values += await _series(client, calls)
    figure.line("alone", alone)
    figure.line("beside them", beside)
    figure.value("beside them against alone, p50", beside.p50 / alone.p50, at_most=TIMES_ALONE)


@asynccontextmanager
async def _slow_calls(place: Place, link: BrokerLink) -> AsyncIterator[None]:
    """Inside, one caller has as many calls under way as it may, and more that wait; behind it all are over."""
    slow = Slow()
    server = await asyncio.start_server(slow.serve, "127.0.0.1", 0, backlog=1024)
    async with server, AsyncExitStack() as stack:
        runs = [
            await stack.enter_async_context(_run(place, link, _origin(server), "caller-7"))
            for _ in range(_RUNS)
        ]
        async with asyncio.TaskGroup() as group:
            for client in runs:
                for _ in range(_CALLS_EACH):
                    group.create_task(_called(client))
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await slow.enough.wait()
                yield
            finally:
                slow.let_go.set()


@asynccontextmanager
async def _run(place: Place, link: BrokerLink, origin: str, caller: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A lease of this caller for calls of this API, and the connections of the worker that uses it."""
    run_id = secrets.token_hex(16)
    terms = CredentialTerms(CredentialType.STATIC)
    profile = Profile("bench", origin, ("GET /v1/employees/*",), ("reporting",), terms, 100_000)
    given = await link.register(replace(place.registration(profile, _SECRET, run_id), caller_id=caller))
    transport = httpx2.AsyncHTTPTransport(uds=str(place.path), verify=False)
    headers = place.worker(given.secret, run_id)
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://broker", headers=headers, timeout=_PATIENCE_S
    ) as client:
        yield client
    await link.close(run_id)


async def _series(client: httpx2.AsyncClient, calls: int) -> list[float]:
    """So many calls, one after the other: milliseconds each."""
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        await _called(client)
        took.append(1000 * (time.perf_counter() - began))
    return took


async def _called(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/calls", content=_CALL)
    if answer.json().get("status") != 200:
        raise RuntimeError(f"the broker answered {answer.status_code}: {answer.text[:500]}")


def _origin(server: asyncio.Server) -> str:
    return "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
