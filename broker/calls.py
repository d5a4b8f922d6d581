"""One run's calls, from the guest's message to the answer.

The steps of a call, in this order (the numbers are in the code); a call that fails at one goes no further:

1. The run has not ended, and has not asked without end.
2. The message is one call.
3. A route of the grant allows it.
4. The API does not ask to be left alone.
5. There is budget left; it is taken here, and never given back.
6. Now the credential is attached, and the request sent, at most once.
7. The answer does not hold the credential.

At the run's end calls in flight are cancelled, connections closed, and the credential let go of.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from broker.circuit import Circuit, Go, Probe, Shed, retry_after_s
from broker.credential import Credential
from broker.message import Answered, Call, Failed, read_call, write_answer
from broker.places import Places, Share
from broker.policy import Allowed, Denied, decide
from broker.room import Held, Room
from broker.scrub import Net, Search
from broker.trace import Entry, Trace, Tracer
from broker.upstream import Sending, Upstream, UpstreamFault
from plimsoll.contract.grants import CALLS_CEILING, CALLS_DEFAULT, IN_FLIGHT, OUT_BYTES, CallCode, Route

ATTEMPTS: Final = CALLS_CEILING
"""Of a run, denied and shed calls included."""
WAITING_BYTES: Final = 16 << 20
CLOSE_S: Final = 2.0
_HEALTHY: Final = range(200, 300)
_ENDED: Final = Failed(CallCode.NO_GRANT, "the run has ended")
_TOO_LARGE: Final = {UpstreamFault.REQUEST_TOO_LARGE, UpstreamFault.ANSWER_TOO_LARGE}


@dataclass(frozen=True, slots=True)
class Grant:
    """What a run may do. `health_check` is a path of the same API, asked without the credential."""

    routes: Sequence[Route]
    max_calls: int = CALLS_DEFAULT
    health_check: str | None = None
    out_bytes: int = OUT_BYTES


@dataclass(frozen=True, slots=True)
class Clocks:
    """`monotonic` for everything that waits, `unix` to read dates with; both in seconds."""

    monotonic: Callable[[], float]
    unix: Callable[[], float]


class Budget:
    """How many calls may still go upstream. Taking is one step of the event loop, so no two take the same."""

    __slots__ = ("left",)

    def __init__(self, calls: int) -> None:
        """So many."""
        self.left = calls

    def take(self) -> bool:
        """Whether one more may go."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True


class Calls:
    """An async context manager: at its exit nothing of the run is left here."""

    def __init__(
        self,
        grant: Grant,
        credential: Credential,
        upstream: Upstream,
        clocks: Clocks,
        place: Share | None = None,
        searches: Executor | None = None,
        *,
        trace_key: bytes,
    ) -> None:
        """Nothing is sent yet. `place` bounds the requests of all runs together that are on their way.

        `searches`: where long answers are searched for the credential.
        `trace_key`: random bytes for this run alone.
        """
        self._place = place or Places().share("", "")
        self._grant, self._upstream, self._clocks = grant, upstream, clocks
        self._credential: Credential | None = credential
        self._search = Search(Net(credential.secrets), searches)
        # One text for each route, however many entries of the trace name it.
        self._names = {route: str(route) for route in grant.routes}
        self._budget = Budget(grant.max_calls)
        self._circuit = Circuit(has_probe=grant.health_check is not None)
        self._tracer = Tracer(trace_key)
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._room = Room()
        self._tasks: set[asyncio.Task[Answered | Failed]] = set()
        self._waiting_bytes = 0
        self._attempts = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def trace(self) -> Trace:
        """What is kept of the calls so far."""
        return self._tracer.so_far()

    @asynccontextmanager
    async def call(self, message: bytes) -> AsyncIterator[bytes]:
        """The answer to one message of the guest. It has its part of the run's room as long as the block lasts."""
        async with self._room.hold() as held:
            written = self._written(await self._counted(message, held))
            held.becomes(len(written))
            yield written

    def _written(self, answer: Answered | Failed) -> bytes:
        if isinstance(answer, Failed):
            self._tracer.failed(answer.code)
        return write_answer(answer)

    async def close(self) -> Trace:
        """End the run's calls, and say what they were. A call in flight is answered with `no_grant`."""
        self._credential = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        async with self._upstream:
            return self.trace

    async def _counted(self, message: bytes, held: Held) -> Answered | Failed:
        # 1. The run goes on, and asks within bounds.
        if self._credential is None:
            return _ENDED
        self._attempts += 1
        if self._attempts > ATTEMPTS:
            return Failed(CallCode.BUDGET, f"a run may ask {ATTEMPTS} times, denied and shed calls included")
        if self._waiting_bytes + len(message) > WAITING_BYTES:
            return Failed(CallCode.SHED, "too much is waiting", 1)
        self._waiting_bytes += len(message)
        try:
            return await self._as_task(message, held)
        finally:
            self._waiting_bytes -= len(message)

    async def _as_task(self, message: bytes, held: Held) -> Answered | Failed:
        task = asyncio.create_task(self._judged(message, held))
        self._tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if self._credential is not None or (asking is not None and asking.cancelling()):
                raise  # whoever asked went away
            return _ENDED
        finally:
            self._tasks.discard(task)

    async def _judged(self, message: bytes, held: Held) -> Answered | Failed:
        # 2. One call.
        call = read_call(message, self._grant.out_bytes)
        if isinstance(call, Failed):
            return call
        # 3. An approved one.
        allowed = decide(self._grant.routes, call)
        if isinstance(allowed, Denied):
            return Failed(CallCode.DENIED, allowed.reason)
        async with self._slots, self._place:
            # 4. When the API can take it.
            going = await self._going()
            if isinstance(going, Shed):
                return Failed(CallCode.SHED, "the API asked to be left alone", going.retry_after_s)
            # 5. Within the budget.
            if not self._budget.take():
                self._circuit.ended(first=going.first)
                return Failed(CallCode.BUDGET, f"the grant allows {self._grant.max_calls} calls in a run")
            return await self._sent(call, allowed, going, held)

    async def _going(self) -> Go | Shed:
        verdict = self._circuit.ask(self._clocks.monotonic())
        if isinstance(verdict, Probe):
            await self._look()
            verdict = self._circuit.ask(self._clocks.monotonic())
        if isinstance(verdict, Probe):
            # The look took so long that another is due. One call looks once.
            self._circuit.probed(healthy=False)
            return Shed(1)
        return verdict

    async def _look(self) -> None:
        healthy = False
        try:
            self._tracer.probed()
            answer = await self._upstream.send(Sending("GET", self._grant.health_check or "/"))
            healthy = isinstance(answer, Answered) and answer.status in _HEALTHY
            self._tell_circuit(self._clocks.monotonic(), answer, Go())
        finally:
            self._circuit.probed(healthy=healthy)

    async def _sent(self, call: Call, allowed: Allowed, going: Go, held: Held) -> Answered | Failed:
        begun = self._clocks.monotonic()
        found: Answered | UpstreamFault | None = None
        answer: Answered | Failed | None = None
        try:
            # 6. The credential, for the first time.
            found = await self._upstream.send(self._sending(call, allowed), held)
            answer = await self._clean(found)
            return answer
        finally:
            now = self._clocks.monotonic()
            self._tell_circuit(now, found, going)
            entry = Entry(
                route=self._names[allowed.route],
                method=call.method,
                status=found.status if isinstance(found, Answered) else 0,
                delivered=isinstance(answer, Answered),
                bytes_back=len(found.body) if isinstance(found, Answered) else 0,
                ms=round((now - begun) * 1000),
            )
            self._tracer.went(entry, len(call.body or b""), allowed.target)

    def _sending(self, call: Call, allowed: Allowed) -> Sending:
        credential = self._credential
        if credential is None:
            raise asyncio.CancelledError  # the run ended in this very moment
        headers = (*allowed.headers, (credential.header, credential.value))
        return Sending(call.method, allowed.target, headers, call.body)

    async def _clean(self, found: Answered | UpstreamFault) -> Answered | Failed:
        if isinstance(found, UpstreamFault):
            code = CallCode.TOO_LARGE if found in _TOO_LARGE else CallCode.UPSTREAM
            return Failed(code, f"there is no answer of the API: {found.value}")
        # 7. Without the credential.
        said = b"\n".join([found.body, *(value.encode("latin-1") for _, value in found.headers)])
        if await self._search.catches(said):
            return Failed(CallCode.CREDENTIAL_ECHOED, "the answer held the credential")
        return found

    def _tell_circuit(self, now: float, found: Answered | UpstreamFault | None, going: Go) -> None:
        if not isinstance(found, Answered):
            self._circuit.ended(first=going.first)
            return
        asked = dict(found.headers).get("retry-after")
        wait = None if asked is None else retry_after_s(asked, self._clocks.unix())
        self._circuit.answered(now, found.status, wait, first=going.first)
