"""The digest of a worker's evidence: what `evidence_sha256` on a result covers."""

from collections.abc import Sequence

from plimsoll.contract.encoding import Digest
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Fact

DOMAIN = "plimsoll.evidence.v1"


def evidence_digest(provider: str, tier: Tier, facts: Sequence[Fact]) -> str:
    """Lowercase hex SHA-256 over `provider`, `tier`, `facts` (count), then per fact its six fields in order."""
    digest = Digest(DOMAIN).field("provider", provider).field("tier", tier.value).field("facts", len(facts))
    for fact in facts:
        digest.field("fact_name", fact.name).field("fact_value", fact.value).field("fact_source", fact.source)
        digest.field("fact_observed", fact.observed).field("fact_unix_ms", fact.unix_ms)
        digest.field("fact_supports", fact.supports.value)
    return digest.hexdigest()
