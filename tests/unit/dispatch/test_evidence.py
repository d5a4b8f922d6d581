"""Evidence that an answer refers to is stored, also when the worker has said something newer since."""

from app.dispatch.evidence import EvidenceKeeper
from plimsoll.contract.tiers import Tier
from tests.support.fakes import EVIDENCE, FakeEvidence, FakeWorker, info

DROPPED = "d" * 64


async def test_what_a_worker_said_in_between_is_what_is_stored_under_its_digest() -> None:
    kept = FakeEvidence()
    keeper = EvidenceKeeper(kept)
    keeper.hear(info(tier=Tier.NONE, evidence_sha256=DROPPED))
    keeper.hear(info())
    learnt = await keeper.learn(FakeWorker(), DROPPED)
    assert (learnt.tier, keeper.knows(DROPPED), set(kept.kept)) == (Tier.NONE, True, {DROPPED})


async def test_a_digest_nobody_stated_is_not_made_up() -> None:
    keeper = EvidenceKeeper(FakeEvidence())
    await keeper.learn(FakeWorker(), DROPPED)
    assert keeper.known == {EVIDENCE}


async def test_only_so_much_of_what_was_said_is_remembered() -> None:
    keeper = EvidenceKeeper(FakeEvidence())
    for number in range(1_000):
        keeper.hear(info(evidence_sha256=f"{number:064x}"))
    assert len(keeper._heard) < 100
