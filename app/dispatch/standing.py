"""How a provider stands, for the log: one line whenever that changes, with what it was, what it is and the codes why."""

import logging
from dataclasses import dataclass

from app.log import event, logger
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import WorkerInfo


@dataclass(frozen=True, slots=True)
class Standing:
    """The wall proven now. `faults` say why nothing is served, `shortfalls` why the wall is not the next stronger one."""

    tier: Tier = Tier.NONE
    health: str = "starting"
    faults: str = ""
    shortfalls: str = ""

    @classmethod
    def of(cls, info: WorkerInfo) -> "Standing":
        """As the provider itself says."""
        return cls(info.tier, info.health.value, ",".join(info.faults), ",".join(info.shortfalls))

    def then(self, now: "Standing", provider: str) -> "Standing":
        """`now`, after a line about the change if it is one; a weaker wall, or none, is a warning."""
        if now != self:
            worse = now.tier is Tier.NONE or now.tier.rank < self.tier.rank
            event(
                logger,
                "provider.changed",
                level=logging.WARNING if worse else logging.INFO,
                provider=provider,
                tier=now.tier.value,
                health=now.health,
                faults=now.faults,
                shortfalls=now.shortfalls,
                was_tier=self.tier.value,
                was_health=self.health,
                was_faults=self.faults,
                was_shortfalls=self.shortfalls,
            )
        return now


STARTING = Standing()
AWAY = Standing(health="away")
"""Its process is gone, or does not answer, and is started again."""
