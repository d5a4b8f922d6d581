"""Evidence by digest: what a worker observed about its wall, kept so that an answer's `evidence_sha256` can be looked up."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from app.store.database import Database
from app.store.schema import evidence
from app.store.values import StoredEvidence
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Fact

_GET = sa.select(evidence.c.provider, evidence.c.tier, evidence.c.facts).where(
    evidence.c.sha256 == sa.bindparam("sha256")
)


class Evidence:
    """The repository of evidence."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        """Rows live in `database`; `clock` gives Unix milliseconds."""
        self._database = database
        self._clock = clock

    async def put(self, sha256: str, provider: str, tier: Tier, facts: Sequence[Fact]) -> None:
        """Keep it; durable when this returns. Again with the same digest changes nothing. Raises StoreUnavailable."""
        row = {"sha256": sha256, "provider": provider, "tier": tier.value, "created_unix_ms": self._clock()}
        row["facts"] = json.dumps([asdict(fact) for fact in facts], separators=(",", ":"))
        await self._database.write(lambda connection: _put(connection, row))

    async def get(self, sha256: str) -> StoredEvidence | None:
        """The facts behind a digest, or None."""
        rows = await self._database.fetch(_GET, {"sha256": sha256})
        if not rows:
            return None
        provider, tier, facts = rows[0]
        return StoredEvidence(sha256, provider, Tier(tier), tuple(map(_fact, json.loads(facts))))


def _put(connection: sa.Connection, row: dict[str, Any]) -> None:
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(insert(evidence).on_conflict_do_nothing(), row)


def _fact(kept: dict[str, Any]) -> Fact:
    return Fact(**kept | {"supports": Tier(kept["supports"])})
