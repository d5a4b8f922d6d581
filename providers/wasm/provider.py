"""The wasm provider: the seam's three methods over a fork server, a pool of confined runners, and what was seen of them."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, Self

from plimsoll.contract.bounds import OUTPUT_CAP_BYTES, TIMEOUT_CEILING_MS
from plimsoll.contract.requests import JavaScript, Kind
from plimsoll.contract.worker import Environment, Out, Resources
from providers.seam import (
    Begun,
    Break,
    Findings,
    Lost,
    NotStarted,
    Observation,
    Order,
    ProviderFault,
    Step,
    nothing_sent,
)
from providers.wasm import evidence, seccomp
from providers.wasm.forks import ForkFailed, ForkServer
from providers.wasm.guest.pins import WASM_SHA256
from providers.wasm.handle import KILL_GRACE_S, Course, Runner, RunnerGone, State
from providers.wasm.pool import Pool, Unconfined
from providers.wasm.smoke import Outcome, Try, smoke
from providers.wasm.zygote import ZygoteSettings

_MIB: Final = 1 << 20
_LOOKS: Final = 3
"""How many new runners may die before a look at the wall has failed."""
_SMOKES: Final = 3
"""How often the limits are tried before one counts as missing: a busy machine may end a runner late, and another is tried then.
A limit that is not there never bites.
"""


class WasmProvider:
    """JavaScript in a fresh VM a run. Make it with `from_settings`, before there is an event loop."""

    def __init__(
        self,
        forks: ForkServer | None,
        *,
        slots: int,
        memory_mb: int,
        output_bytes: int,
        policy: str,
        dumpable: bool = False,
    ) -> None:
        """Without a fork server (a machine that cannot have the filter) it opens with a fault and serves nothing."""
        self.environments: Mapping[Kind, Environment] = {
            Kind.JAVASCRIPT: Environment(
                f"wasm-guest:sha256:{WASM_SHA256}",
                f"wasm:sha256:{WASM_SHA256}",
                TIMEOUT_CEILING_MS,
                ("javascript",),
                grants=True,
            )
        }
        self.policy = policy
        self.resources = Resources(memory_mb=memory_mb, output_bytes=output_bytes)
        self._forks = forks
        self._slots = slots
        self._dumpable = dumpable
        self._stack = AsyncExitStack()
        self._pool: Pool | None = None
        self._about: Mapping[str, str] = {}
        self._smoke: Mapping[str, str] = {}
        self._numbers = itertools.count(1)
        self._courses: dict[str, tuple[Runner, Course] | None] = {}
        self._cancelled: set[str] = set()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Fork the fork server and be its provider. Raises KeyError, ValueError, TypeError for bad settings."""
        memory_mb = int(settings.get("memory_mb", 64))
        slots, output_bytes = (
            int(settings.get("slots", 32)),
            int(settings.get("output_bytes", OUTPUT_CAP_BYTES)),
        )
        if not (8 <= memory_mb <= 1024 and 1 <= output_bytes <= OUTPUT_CAP_BYTES):  # noqa: PLR2004  # bounds of settings
            raise ValueError("memory_mb or output_bytes")
        dumpable = settings.get("debug_dumpable") is True
        try:
            policy = seccomp.policy(seccomp.this_machine())
            forks = ForkServer(ZygoteSettings(str(settings["cache_dir"]), memory_mb, dumpable))
        except seccomp.SeccompMissing:
            policy, forks = "none", None
        return cls(
            forks,
            slots=slots,
            memory_mb=memory_mb,
            output_bytes=output_bytes,
            policy=policy,
            dumpable=dumpable,
        )

    # --- the wall -------------------------------------------------------------------------------------------------

    async def open(self, dropped: Callable[[str], None]) -> None:
        """Wait for the engine and keep runners ready."""
        if self._forks is None:
            raise ProviderFault("seccomp_missing")
        self._stack.push_async_callback(self._forks.close)
        self._about = await self._forks.ready()
        if "fault" in self._about:
            raise ProviderFault(self._about["fault"])
        self._forks.on_gone = lambda: dropped("fork_server_gone")
        self._pool = await self._stack.enter_async_context(
            Pool(self._forks, slots=self._slots, check=self._confined, dropped=dropped)
        )

    async def collect(self) -> Findings:
        """Look at a runner made for it; the first time, break every limit in it."""
        if self._pool is None or self._forks is None or self._forks.gone:
            raise Lost("fork_server_gone")
        seen: Iterable[Observation] = ()
        for _ in range(_SMOKES):
            try:
                runner = await self._fork(self._pool)
            except Unconfined as unconfined:
                return self._judge(unconfined.seen, {})
            except (ForkFailed, RunnerGone, TimeoutError):
                return self._judge((), {})
            seen = runner.seen
            try:
                if not self._holds():
                    self._smoke = await smoke(partial(self._try, runner))
            finally:
                runner.kill("looked_at")
            if self._holds():
                break
        return self._judge(seen, self._smoke)

    def _holds(self) -> bool:
        return set(self._smoke.values()) == {evidence.HELD}

    @staticmethod
    async def _fork(pool: Pool) -> Runner:
        """A runner to look at. One that dies proves nothing, so another is looked at then. Raises what `Pool.fork` does."""
        for _ in range(_LOOKS - 1):
            try:
                return await pool.fork()
            except Unconfined:
                raise
            except RunnerGone:
                continue
        return await pool.fork()

    def _judge(self, seen: Iterable[Observation], smoke_results: Mapping[str, str]) -> Findings:
        found = [*self._of_engine(), *seen, *evidence.of_smoke(smoke_results)]
        return evidence.judge(found, self.policy, dumpable=self._dumpable)

    def _of_engine(self) -> list[Observation]:
        limits = {
            "memory_bytes": self.resources.memory_mb * _MIB,
            "wasm_stack_bytes": int(self._about.get("wasm_stack_bytes", 0)),
            "output_bytes": self.resources.output_bytes,
            "kill_grace_ms": int(KILL_GRACE_S * 1000),
        }
        return evidence.of_engine(self._about, limits)

    def _confined(self, runner: Runner, report: Mapping[str, Any]) -> str | None:
        """The fault of one runner; every runner is looked at before it is used."""
        runner.seen = (*evidence.of_report(report), *evidence.of_process(runner.pid, report))
        needs = evidence.runner_needs(self.policy, dumpable=self._dumpable)
        return next(iter(evidence.faults_of(needs, runner.seen)), None)

    async def _try(self, runner: Runner, case: Try) -> Outcome:
        try:
            course = runner.begin(
                next(self._numbers),
                case.source.encode(),
                timeout_ms=case.timeout_ms,
                memory_bytes=min(case.memory_bytes, self.resources.memory_mb * _MIB),
                cap=case.cap,
            )
        except RunnerGone:
            return Outcome(Break("runner_died"), b"", alive=False)
        stdout = bytearray()
        while isinstance(step := await course.next(), Out):
            if step.stream == "stdout":
                stdout += step.data
        return Outcome(step, bytes(stdout), alive=runner.state is State.IDLE)

    # --- runs -----------------------------------------------------------------------------------------------------

    async def run(self, order: Order) -> AsyncIterator[Step]:
        """One program in a fresh VM, in a runner that only this tenant uses."""
        began = time.monotonic_ns()
        if self._pool is None or not isinstance(order.payload, JavaScript):
            raise NotStarted
        self._courses[order.run_id] = None
        try:
            with nothing_sent():
                source, instance = order.payload.code.encode(), f"wasm-vm:{os.urandom(16).hex()}"
            runner, course = await self._begin(self._pool, order, source)
            try:
                yield Begun(instance, (time.monotonic_ns() - began) // 1_000_000)
                while isinstance(step := await course.next(), Out):
                    yield step
            finally:
                self._pool.release(runner)
            yield step
        finally:
            del self._courses[order.run_id]
            self._cancelled.discard(order.run_id)

    async def _acquire(self, pool: Pool, order: Order) -> Runner:
        """A runner that waits for this run's code. Raises NotStarted, also when the run was cancelled meanwhile."""
        runner = await pool.acquire(order.tenant)
        try:
            if order.run_id in self._cancelled:
                raise NotStarted  # noqa: TRY301  # the runner goes back for this as for whatever else breaks
            order.confirm()
        except BaseException:
            pool.release(runner)
            raise
        return runner

    async def _begin(self, pool: Pool, order: Order, source: bytes) -> tuple[Runner, Course]:
        """Hand the code to a runner; a runner found dead before a byte left is replaced once."""
        for _ in range(2):
            with nothing_sent():
                runner = await self._acquire(pool, order)
            try:
                course = runner.begin(
                    next(self._numbers),
                    source,
                    timeout_ms=order.timeout_ms,
                    memory_bytes=self.resources.memory_mb * _MIB,
                    cap=order.output_bytes,
                    watched=order.stream,
                    call=order.call,
                )
            except RunnerGone:
                continue
            self._courses[order.run_id] = (runner, course)
            return runner, course
        raise NotStarted

    def cancel(self, run_id: str) -> None:
        """Have the runner end that run, or kill it; before it has one, the run never starts."""
        if run_id not in self._courses:
            return
        under_way = self._courses[run_id]
        if under_way is None:
            self._cancelled.add(run_id)
        else:
            runner, course = under_way
            runner.cancel(course)

    async def close(self) -> None:
        """End the runners, then the fork server."""
        await asyncio.shield(self._stack.aclose())
