"""The wasm provider's host side inside the test's own process, so that a test can see and harm its runners."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.contract.requests import JavaScript
from plimsoll.contract.worker import Out
from providers.seam import Begun, Break, Findings, Finish, Order
from providers.wasm.handle import Runner
from providers.wasm.pool import Pool
from providers.wasm.provider import WasmProvider
from tests.support.runs import TENANT, new_id


@dataclass
class Steps:
    """Everything one run said."""

    begun: Begun | None = None
    last: Finish | Break | None = None
    stdout: bytes = b""
    stderr: bytes = b""

    @property
    def finish(self) -> Finish:
        assert isinstance(self.last, Finish), self.last
        return self.last


@dataclass
class InProcess:
    """An open provider. `dropped` collects the faults it was told of."""

    provider: WasmProvider
    findings: Findings
    dropped: list[str] = field(default_factory=list)

    @property
    def pool(self) -> Pool:
        assert self.provider._pool
        return self.provider._pool

    def runner_of(self, tenant: str) -> Runner:
        (runner,) = (each for each in self.pool.runners if each.tenant == tenant)
        return runner

    async def run(
        self, code: str, *, tenant: str = TENANT, timeout_ms: int = 2_000, cap: int = 65_536
    ) -> Steps:
        steps = Steps()
        order = Order(new_id(), tenant, JavaScript(code), timeout_ms, cap)
        async for step in self.provider.run(order):
            match step:
                case Begun():
                    steps.begun = step
                case Out(stream="stdout", data=data):
                    steps.stdout += data
                case Out(data=data):
                    steps.stderr += data
                case Finish() | Break():
                    steps.last = step
                case _:
                    raise AssertionError(step)
        return steps


@asynccontextmanager
async def opened(provider: WasmProvider) -> AsyncIterator[InProcess]:
    """Open it, look once, close it. Make it before the loop runs: `WasmProvider.from_settings`."""
    dropped: list[str] = []
    try:
        await provider.open(dropped.append)
        yield InProcess(provider, await provider.collect(), dropped)
    finally:
        await provider.close()


def unopened(cache_dir: Path, *, slots: int = 4, memory_mb: int = 64) -> WasmProvider:
    """Forks the fork server; call it in a synchronous fixture."""
    return WasmProvider.from_settings({"cache_dir": str(cache_dir), "slots": slots, "memory_mb": memory_mb})
