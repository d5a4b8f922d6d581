"""The Worker protocol, the same for every provider: what a ticket is worth, and what each refusal proves."""

import asyncio
import random
from dataclasses import replace

import pytest

from plimsoll.contract.bounds import INSTANCE, RUN_ID
from plimsoll.contract.evidence import evidence_digest
from plimsoll.contract.refusals import Code, Reason, Refusal
from plimsoll.contract.requests import Kind, Python, SoftwareRule
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import TICKET_TTL_MS, Ended, Health, Job, Out, TicketRefused
from tests.integration.providers.conftest import SLOTS, Running
from tests.support.layers import sized
from tests.support.runs import Seen, follow, job, new_id, refused, reserved, run, spec

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_it_says_what_its_wall_is_and_on_what_evidence(provider: Running) -> None:
    info = await provider.worker.info()
    assert (info.provider, info.health, info.faults) == (provider.subject.name, Health.SERVING, ())
    assert info.tier is provider.subject.tier
    assert info.evidence_sha256 == evidence_digest(info.provider, info.tier, info.facts)
    assert RUN_ID.fullmatch(info.boot_id)
    assert info.slots == info.free == SLOTS


async def test_a_ticket_runs_code_once_and_says_how_it_ended(provider: Running) -> None:
    wanted = spec(floor=Tier.PROCESS)
    ticket = await reserved(provider.worker, wanted)
    seen = await follow(provider.worker, ticket, job(wanted, provider.subject.hello))
    assert seen.order == ["Accepted", "Out", "Ended"]
    assert seen.stdout.strip() == b"hello"
    assert seen.ended.exit_code == 0
    assert seen.accepted
    assert seen.accepted.tier == seen.ended.tier == ticket.tier
    assert seen.accepted.evidence_sha256 == seen.ended.evidence_sha256 == ticket.evidence_sha256
    assert INSTANCE.fullmatch(seen.accepted.instance)


async def test_a_programs_own_failure_is_a_result(provider: Running) -> None:
    seen = await run(provider.worker, provider.subject.failing)
    assert seen.ended.exit_code == 1
    assert not (seen.ended.timed_out)
    assert not (seen.ended.oom_killed)
    assert not (seen.ended.cancelled)


@pytest.mark.sized
async def test_instances_never_repeat(provider: Running) -> None:
    number = sized(6, 20)
    seen = [await run(provider.worker, provider.subject.hello) for _ in range(number)]
    assert len({each.accepted.instance for each in seen if each.accepted}) == number


async def test_a_spent_ticket_is_refused(provider: Running) -> None:
    wanted = spec()
    ticket = await reserved(provider.worker, wanted)
    await follow(provider.worker, ticket, job(wanted, provider.subject.hello))
    with pytest.raises(TicketRefused, match="unknown"):
        await follow(provider.worker, ticket, job(wanted, provider.subject.hello))
    assert (await provider.worker.query(wanted.run_id, void=True)).state == "finished"


async def test_a_ticket_with_another_secret_is_refused_and_spends_nothing(provider: Running) -> None:
    wanted = spec()
    ticket = await reserved(provider.worker, wanted)
    with pytest.raises(TicketRefused, match="unknown"):
        await follow(provider.worker, replace(ticket, secret="0" * 32), job(wanted, provider.subject.hello))
    assert (await follow(provider.worker, ticket, job(wanted, provider.subject.hello))).ended.exit_code == 0


async def test_an_expired_ticket_is_refused_and_its_slot_is_free_again(provider: Running) -> None:
    wanted = spec()
    ticket = await reserved(provider.worker, wanted)
    await asyncio.sleep(TICKET_TTL_MS / 1000 + 0.1)
    with pytest.raises(TicketRefused, match="expired"):
        await follow(provider.worker, ticket, job(wanted, provider.subject.hello))
    state = await provider.worker.query(wanted.run_id, void=False)
    assert state.state == "void"
    assert (await provider.worker.info()).free == SLOTS


async def test_a_query_with_void_fences_an_unspent_ticket(provider: Running) -> None:
    wanted = spec()
    ticket = await reserved(provider.worker, wanted)
    assert (await provider.worker.query(wanted.run_id, void=False)).state == "reserved"
    state = await provider.worker.query(wanted.run_id, void=True)
    assert (state.state, state.boot_id) == ("void", ticket.boot_id)
    with pytest.raises(TicketRefused):
        await follow(provider.worker, ticket, job(wanted, provider.subject.hello))
    again = await refused(provider.worker, wanted)
    assert again.reason is None  # a used id proves nothing


async def test_cancel_voids_an_unspent_ticket(provider: Running) -> None:
    wanted = spec()
    ticket = await reserved(provider.worker, wanted)
    await provider.worker.cancel(wanted.run_id)
    with pytest.raises(TicketRefused):
        await follow(provider.worker, ticket, job(wanted, provider.subject.hello))


async def test_a_run_id_it_never_saw_is_unknown(provider: Running) -> None:
    assert (await provider.worker.query(new_id(), void=True)).state == "unknown"


async def test_a_floor_above_the_wall_is_refused(provider: Running) -> None:
    above = [tier for tier in Tier if tier is not Tier.NONE and not provider.subject.tier.meets(tier)]
    assert Tier.VM in above
    for floor in above:
        refusal = await refused(provider.worker, spec(floor=floor))
        assert (refusal.code, refusal.reason) == (Code.ISOLATION_UNMET, Reason.ISOLATION)


@pytest.mark.parametrize("timeout_ms", [300_001, 0])
async def test_a_timeout_out_of_bounds_is_unsupported(provider: Running, timeout_ms: int) -> None:
    refusal = await refused(provider.worker, spec(timeout_ms=timeout_ms))
    assert (refusal.code, refusal.reason) == (Code.UNSUPPORTED, Reason.UNSUPPORTED)


async def test_what_it_does_not_run_is_unsupported(provider: Running) -> None:
    refusal = await refused(provider.worker, spec(kind=provider.subject.unserved))
    assert (refusal.code, refusal.reason) == (Code.UNSUPPORTED, Reason.UNSUPPORTED)


async def test_software_rules_are_kept(provider: Running) -> None:
    software = (await provider.worker.info()).environments[Kind.JAVASCRIPT].software_identity
    other = await refused(provider.worker, spec(software_rule=SoftwareRule("exact", ("other:v1",))))
    assert (other.code, other.reason) == (Code.SOFTWARE_UNMET, Reason.ENVIRONMENT)
    ticket = await reserved(
        provider.worker, spec(software_rule=SoftwareRule("approved", ("other:v1", software)))
    )
    assert ticket.software_identity == software
    await provider.worker.cancel(ticket.run_id)


async def test_full_slots_are_capacity_at_once_and_tickets_count(provider: Running) -> None:
    tickets = [await reserved(provider.worker, spec()) for _ in range(SLOTS)]
    refusal = await refused(provider.worker, spec())
    assert (refusal.code, refusal.reason, refusal.retry_after_s) == (Code.CAPACITY, Reason.CAPACITY, 1)
    for ticket in tickets:
        await provider.worker.cancel(ticket.run_id)
    assert (await run(provider.worker, provider.subject.hello)).ended.exit_code == 0


async def test_a_floor_is_refused_before_a_full_house(provider: Running) -> None:
    tickets = [await reserved(provider.worker, spec()) for _ in range(SLOTS)]
    assert (await refused(provider.worker, spec(floor=Tier.VM))).reason is Reason.ISOLATION
    for ticket in tickets:
        await provider.worker.cancel(ticket.run_id)


async def test_a_job_that_is_not_what_was_reserved_is_refused(provider: Running) -> None:
    wanted = spec(timeout_ms=1_000)
    longer = job(replace(wanted, timeout_ms=2_000), provider.subject.hello)
    other_kind = Job(wanted.run_id, Python("print()"), wanted.timeout_ms, wanted.output_bytes)
    for wrong in (longer, other_kind):
        fresh = replace(wanted, run_id=new_id())
        ticket = await reserved(provider.worker, fresh)
        with pytest.raises(TicketRefused, match="mismatch"):
            await follow(provider.worker, ticket, replace(wrong, run_id=fresh.run_id))
        assert (await provider.worker.query(fresh.run_id, void=False)).state == "void"


async def test_a_running_run_can_be_asked_about_and_cancelled(provider: Running) -> None:
    wanted = spec(timeout_ms=20_000)
    ticket = await reserved(provider.worker, wanted)
    events = provider.worker.start(ticket, job(wanted, provider.subject.endless))
    accepted = await anext(events)
    state = await provider.worker.query(wanted.run_id, void=True)
    assert (state.state, state.accepted) == ("running", accepted)
    await provider.worker.cancel(wanted.run_id)
    ended = await anext(events)
    assert isinstance(ended, Ended)
    assert (ended.exit_code, ended.cancelled, ended.timed_out) == (130, True, False)
    state = await provider.worker.query(wanted.run_id, void=False)
    assert (state.state, state.ended) == ("finished", ended)


async def test_an_end_is_kept_with_its_output(provider: Running) -> None:
    wanted = spec()
    ticket = await reserved(provider.worker, wanted)
    seen = await follow(provider.worker, ticket, job(wanted, provider.subject.hello))
    state = await provider.worker.query(wanted.run_id, void=False)
    assert (state.state, state.accepted, state.ended) == ("finished", seen.accepted, seen.ended)
    assert state.output == (Out("stdout", bytes(seen.stdout)),)


async def test_slots_all_come_back_when_runs_are_cancelled_anywhere(provider: Running) -> None:
    dice = random.Random(7)

    async def one() -> None:
        wanted = spec(timeout_ms=10_000)
        ticket = await provider.worker.reserve(wanted)
        if isinstance(ticket, Refusal):
            assert ticket.code is Code.CAPACITY
            return
        seen = Seen()
        following = asyncio.create_task(
            follow(provider.worker, ticket, job(wanted, provider.subject.endless), seen)
        )
        await asyncio.sleep(dice.random() / 50)
        await provider.worker.cancel(wanted.run_id)
        try:
            assert (await following).ended.cancelled
        except TicketRefused:
            assert seen.order == []

    for _ in range(5):
        await asyncio.gather(*(one() for _ in range(10)))
    assert (await provider.worker.query(new_id(), void=False)).state == "unknown"
    assert (await provider.worker.info()).free == SLOTS


async def test_streams_of_runs_at_once_are_never_mixed(provider: Running) -> None:
    seen = await asyncio.gather(
        *(run(provider.worker, provider.subject.hello, tenant=f"{n:032x}") for n in range(SLOTS))
    )
    assert [each.stdout.strip() for each in seen] == [b"hello"] * SLOTS
