"""What a worker claims: never more than its facts and its kind allow, and nothing at all when a required fact is missing."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest

from plimsoll.contract.evidence import evidence_digest
from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Environment, Health, Resources
from providers.host import wall as module
from providers.host.process import set_dumpable
from providers.host.wall import Wall
from providers.seam import Findings, Lost, Observation, Order, ProviderFault, Step


def seen(name: str = "a.fact", value: str = "1") -> Observation:
    return Observation(name, value, "host", "looked", Tier.PROCESS)


class Provider:
    """Finds what it is told to find."""

    environments: Mapping[Kind, Environment] = {}
    policy = "none"
    resources = Resources(memory_mb=1)

    def __init__(self, found: Findings | Exception) -> None:
        self.found = found
        self.open_with: Exception | None = None
        self.looks = 0

    async def open(self, dropped: Callable[[str], None]) -> None:
        if self.open_with:
            raise self.open_with

    async def collect(self) -> Findings:
        self.looks += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def run(self, order: Order) -> AsyncIterator[Step]:
        raise NotImplementedError

    def cancel(self, run_id: str) -> None: ...

    async def close(self) -> None: ...


@pytest.fixture(autouse=True)
def as_a_provider_process() -> Iterator[None]:
    """Not dumpable, as every provider process makes itself."""
    set_dumpable(False)
    yield
    set_dumpable(True)


def wall(found: Findings | Exception, name: str = "wasm", **settings: object) -> tuple[Wall, Provider]:
    provider = Provider(found)
    return Wall(name, provider, unix_ms=lambda: 7, **settings), provider  # type: ignore[arg-type]


GOOD = Findings(Tier.PROCESS, (seen(),))


def test_it_claims_nothing_before_the_first_look() -> None:
    each, _ = wall(GOOD)
    assert (each.tier, each.health, each.faults) == (Tier.NONE, Health.STARTING, ())


def test_it_claims_what_was_found() -> None:
    each, _ = wall(GOOD)
    each.take(GOOD)
    assert (each.tier, each.health) == (Tier.PROCESS, Health.SERVING)
    assert each.evidence_sha256 == evidence_digest("wasm", Tier.PROCESS, each.facts)


@pytest.mark.parametrize("name", ["wasm", "some-other-kind"])
def test_findings_never_lift_a_kind_above_its_ceiling(name: str) -> None:
    each, _ = wall(GOOD, name)
    each.take(Findings(Tier.VM, (seen(),)))
    assert each.tier is Tier.PROCESS


def test_a_fault_takes_the_tier_whatever_else_was_found() -> None:
    each, _ = wall(GOOD)
    each.take(Findings(Tier.PROCESS, (seen(),), ("seccomp_missing",)))
    assert (each.tier, each.health, each.faults) == (Tier.NONE, Health.REFUSING, ("seccomp_missing",))


def test_no_tier_without_a_reason_is_a_fault_too() -> None:
    each, _ = wall(GOOD)
    each.take(Findings(Tier.NONE))
    assert (each.health, each.faults) == (Health.REFUSING, ("no_tier",))


def test_a_drop_counts_at_once() -> None:
    each, _ = wall(GOOD)
    each.take(GOOD)
    changes: list[Tier] = []
    each.changed = lambda: changes.append(each.tier)
    each.dropped("seccomp_missing")
    assert (each.tier, each.health, changes) == (Tier.NONE, Health.REFUSING, [Tier.NONE])


def test_a_debuggable_host_is_a_fault_unless_allowed() -> None:
    set_dumpable(True)
    strict, _ = wall(GOOD)
    strict.take(GOOD)
    assert strict.faults == ("host_dumpable",)
    lax, _ = wall(GOOD, allow_dumpable=True)
    lax.take(GOOD)
    assert lax.health is Health.SERVING


def test_a_fact_keeps_the_time_its_value_was_first_seen() -> None:
    now = [100]
    each = Wall("wasm", Provider(GOOD), unix_ms=lambda: now[0])
    each.take(GOOD)
    first, digest = each.facts, each.evidence_sha256
    now[0] = 200
    each.take(GOOD)
    assert (each.facts, each.evidence_sha256, each.checked_unix_ms) == (first, digest, 200)
    each.take(Findings(Tier.PROCESS, (seen(value="2"),)))
    assert each.facts[0].unix_ms == 200
    assert each.evidence_sha256 != digest


def test_nothing_is_said_when_nothing_changed() -> None:
    each, _ = wall(GOOD)
    each.take(GOOD)
    changes: list[None] = []
    each.changed = lambda: changes.append(None)
    each.take(GOOD)
    assert changes == []


async def watched(each: Wall, until: Callable[[], bool]) -> None:
    task = asyncio.create_task(each.watch())
    try:
        async with asyncio.timeout(5):
            while not until() and not task.done():
                await asyncio.sleep(0.005)
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("problem", "fault"),
    [(ProviderFault("cache_refused"), "cache_refused"), (RuntimeError("secret"), "provider_not_ready")],
)
async def test_a_provider_that_cannot_open_refuses_with_a_code(problem: Exception, fault: str) -> None:
    each, provider = wall(GOOD)
    provider.open_with = problem
    await watched(each, lambda: each.health is Health.REFUSING)
    assert each.faults == (fault,)
    assert provider.looks == 0


async def test_a_look_that_fails_is_a_missing_fact() -> None:
    each, _ = wall(RuntimeError("secret"))
    await watched(each, lambda: each.health is Health.REFUSING)
    assert each.faults == ("evidence_failed",)


async def test_a_look_that_hangs_is_a_missing_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    each, provider = wall(GOOD)

    async def hang() -> Findings:
        await asyncio.sleep(60)
        return GOOD

    monkeypatch.setattr(provider, "collect", hang)
    await watched(each, lambda: each.health is Health.REFUSING)
    assert each.faults == ("evidence_failed",)


async def test_it_looks_again_every_interval_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECOVERY_S", 0.01)
    each, provider = wall(Findings(Tier.NONE, (), ("gone",)), interval_s=0.02)

    def mended() -> bool:
        if each.faults == ("gone",):
            provider.found = GOOD
        return each.health is Health.SERVING

    await watched(each, mended)
    assert each.tier is Tier.PROCESS


async def test_a_look_that_found_a_fault_is_repeated_soon_and_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RECOVERY_S", 0.02)
    each, provider = wall(RuntimeError("once"), interval_s=60)
    start, at = asyncio.get_running_loop().time(), list[float]()
    look = provider.collect

    async def failing() -> Findings:
        at.append(asyncio.get_running_loop().time() - start)
        if len(at) == 5:
            provider.found = GOOD
        return await look()

    monkeypatch.setattr(provider, "collect", failing)
    await watched(each, lambda: each.health is Health.SERVING)
    pauses = [after - before for before, after in itertools.pairwise(at)]
    assert all(pause >= 0.02 * 2**turn for turn, pause in enumerate(pauses)), pauses
    assert len(pauses) == 4
    assert at[-1] < 2


async def test_a_fault_seen_while_a_look_goes_on_is_not_wiped_out_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RECOVERY_S", 0.01)
    each, provider = wall(GOOD, interval_s=0.01)
    said: list[str] = []

    async def dropping() -> Findings:
        provider.looks += 1
        if provider.looks == 2:
            each.dropped("seccomp_missing")
            each.changed = lambda: said.append(f"{each.health.value} after look {provider.looks}")
        return GOOD

    monkeypatch.setattr(provider, "collect", dropping)
    await watched(each, lambda: bool(said))
    assert said == ["serving after look 3"]


async def test_a_lost_provider_ends_the_watch() -> None:
    each, _ = wall(Lost("fork_server_gone"))
    with pytest.raises(Lost):
        await watched(each, lambda: False)
