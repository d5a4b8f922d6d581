"""What a worker may claim about its wall: the provider's findings, cut by the ceiling of its kind, and watched.

Rules:

1. tier = the weaker of what the provider derived from its facts and the constant ceiling of its kind
2. any missing required fact: health `refusing`, tier `none`, and the fault's code is said
3. a look that fails or takes too long is itself a missing fact
4. a drop counts at once, a recovery only after a whole new look, which comes soon: after a second, then two, then four, …
5. a fact keeps the time at which its present value was first seen, so the digest changes only when a value does
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final

from plimsoll.contract.evidence import evidence_digest
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Fact, Health
from providers.host.process import is_dumpable
from providers.seam import (
    CEILINGS,
    LOOK_S,
    LOOKS_S,
    Findings,
    Lost,
    Observation,
    Provider,
    ProviderFault,
    kind_of,
)

OPEN_S: Final = 90.0
"""How long a provider may take to get ready: it may have to compile its guest first."""
RECOVERY_S: Final = 1.0
"""Pause between a drop, or a look that found a fault, and the next look; doubled for every look that finds one again."""
_FAULT = re.compile(r"[a-z0-9_]{1,64}")


class Wall:
    """The present tier with its facts and faults. `changed` is called whenever any of them did."""

    def __init__(
        self,
        name: str,
        provider: Provider,
        *,
        interval_s: float = 60.0,
        allow_dumpable: bool = False,
        unix_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`allow_dumpable`: insecure mode, in which a process that debuggers may attach to still serves."""
        self.provider = name
        self.tier = Tier.NONE
        self.health = Health.STARTING
        self.facts: tuple[Fact, ...] = ()
        self.faults: tuple[str, ...] = ()
        self.shortfalls: tuple[str, ...] = ()
        self.checked_unix_ms = 0
        self.evidence_sha256 = evidence_digest(name, Tier.NONE, ())
        self.changed: Callable[[], None] = lambda: None
        self._from = provider
        self._interval_s = interval_s
        self._allow_dumpable = allow_dumpable
        self._unix_ms = unix_ms
        self._look_s = LOOKS_S.get(kind_of(name), LOOK_S)
        self._look_now = asyncio.Event()

    async def watch(self) -> None:
        """Open the provider, look, and look again every interval, and soon while there is a fault. Raises Lost."""
        fault = await self._open()
        soon_s = RECOVERY_S
        while True:
            self._look_now.clear()
            found = await self._look() if fault is None else Findings(Tier.NONE, (), (fault,))
            if found.faults or not self._look_now.is_set():
                self.take(found)
            pause_s = min(soon_s, self._interval_s) if self.faults else self._interval_s
            soon_s = min(2 * soon_s, self._interval_s) if self.faults else RECOVERY_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._look_now.wait()
                    await asyncio.sleep(RECOVERY_S)
            except TimeoutError:
                continue

    def dropped(self, fault: str) -> None:
        """A required fact is gone: nothing is served until a whole new look says otherwise."""
        if self.health is not Health.STARTING:
            self._settle(Tier.NONE, self.facts, (fault,))
        self._look_now.set()

    def take(self, findings: Findings) -> None:
        """Make one look count."""
        seen = (*findings.observations, self._own())
        faults = _named(findings.faults)
        if seen[-1].value != "0" and not self._allow_dumpable:
            faults = (*faults, "host_dumpable")
        tier = findings.tier.at_most(CEILINGS.get(kind_of(self.provider), Tier.PROCESS))
        if tier is Tier.NONE and not faults:
            faults = ("no_tier",)
        self.checked_unix_ms = self._unix_ms()
        self._settle(Tier.NONE if faults else tier, self._stamp(seen), faults, _named(findings.shortfalls))

    async def _open(self) -> str | None:
        try:
            async with asyncio.timeout(OPEN_S):
                await self._from.open(self.dropped)
        except Lost:
            raise
        except ProviderFault as fault:
            return fault.code
        except Exception:  # noqa: BLE001  # whatever went wrong, the answer is that nothing is served
            return "provider_not_ready"
        return None

    async def _look(self) -> Findings:
        try:
            async with asyncio.timeout(self._look_s):
                return await self._from.collect()
        except Lost:
            raise
        except Exception:  # noqa: BLE001  # a look that fails is a missing fact
            return Findings(Tier.NONE, (), ("evidence_failed",))

    @staticmethod
    def _own() -> Observation:
        value = str(int(is_dumpable()))
        return Observation("host.dumpable", value, "host", "prctl(PR_GET_DUMPABLE)", Tier.PROCESS)

    def _stamp(self, observations: tuple[Observation, ...]) -> tuple[Fact, ...]:
        known = {(fact.name, fact.value, fact.source): fact.unix_ms for fact in self.facts}
        return tuple(
            Fact(
                each.name,
                each.value,
                each.source,
                each.observed,
                known.get((each.name, each.value, each.source), self.checked_unix_ms),
                each.supports,
            )
            for each in observations
        )

    def _settle(
        self, tier: Tier, facts: tuple[Fact, ...], faults: tuple[str, ...], shortfalls: tuple[str, ...] = ()
    ) -> None:
        before = self._said
        self.tier, self.facts, self.faults, self.shortfalls = tier, facts, faults, shortfalls
        self.health = Health.REFUSING if faults else Health.SERVING
        self.evidence_sha256 = evidence_digest(self.provider, tier, facts)
        if before != self._said:
            self.changed()

    @property
    def _said(self) -> tuple[object, ...]:
        return self.tier, self.health, self.facts, self.faults, self.shortfalls


def _named(codes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code if _FAULT.fullmatch(code) else "ill_named_fault" for code in codes)
