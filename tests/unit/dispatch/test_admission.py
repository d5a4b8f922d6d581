"""The first rule that leaves no candidate names the reason, in the fixed order kind, software, floor."""

import pytest

from app.dispatch.admission import Candidate, choose
from plimsoll.contract.refusals import Code, Reason, Refusal
from plimsoll.contract.requests import JavaScript, Kind, Python, RunRequest, SoftwareRule
from plimsoll.contract.tiers import FLOORS, Tier
from plimsoll.contract.worker import Environment, Health
from tests.support.fakes import info, javascript


def candidate(provider: str = "wasm", ceiling: Tier = Tier.PROCESS, **changes: object) -> Candidate:
    away = bool(changes.pop("away", False))
    return Candidate(provider, ceiling, info(provider=provider, **changes), away)


def refused(*candidates: Candidate, request: RunRequest) -> Refusal:
    chosen = choose(candidates, request)
    assert isinstance(chosen, Refusal)
    return chosen


def test_without_a_provider_execution_is_off_whatever_the_request_says() -> None:
    refusal = refused(request=javascript(minimum_isolation=Tier.VM))
    assert (refusal.code, refusal.reason) == (Code.EXECUTION_DISABLED, Reason.UNSUPPORTED)


def test_a_grant_without_a_broker_is_unsupported() -> None:
    request = RunRequest(JavaScript("1", grant_profile="hr-read"))
    assert refused(candidate(), request=request).reason is Reason.UNSUPPORTED


def test_a_kind_nobody_serves_is_unsupported_even_under_a_floor_nobody_meets() -> None:
    refusal = refused(candidate(), request=RunRequest(Python("1"), minimum_isolation=Tier.VM))
    assert (refusal.code, refusal.reason) == (Code.UNSUPPORTED, Reason.UNSUPPORTED)


def test_software_outside_the_rule_is_an_environment_refusal_before_the_floor_is_looked_at() -> None:
    rule = SoftwareRule("exact", ("other:1",))
    refusal = refused(candidate(), request=javascript(software_rule=rule, minimum_isolation=Tier.VM))
    assert (refusal.code, refusal.reason) == (Code.SOFTWARE_UNMET, Reason.ENVIRONMENT)


@pytest.mark.parametrize("mode", ["exact", "approved"])
def test_software_inside_the_rule_is_admitted(mode: str) -> None:
    rule = SoftwareRule("exact" if mode == "exact" else "approved", ("software:1",))
    assert not isinstance(choose([candidate()], javascript(software_rule=rule)), Refusal)


def test_unknown_software_meets_no_rule() -> None:
    nameless = {Kind.JAVASCRIPT: Environment("guest:1", "", 300_000, ())}
    rule = SoftwareRule("approved", ("software:1",))
    refusal = refused(candidate(environments=nameless), request=javascript(software_rule=rule))
    assert refusal.code is Code.SOFTWARE_UNMET


@pytest.mark.parametrize("floor", FLOORS[1:])
def test_a_floor_above_the_wall_is_an_isolation_refusal(floor: Tier) -> None:
    refusal = refused(candidate(), request=javascript(minimum_isolation=floor))
    assert (refusal.code, refusal.reason) == (Code.ISOLATION_UNMET, Reason.ISOLATION)


@pytest.mark.parametrize("floor", FLOORS[1:])
def test_a_floor_the_kind_of_wall_can_never_meet_is_isolation_even_while_the_worker_is_away(
    floor: Tier,
) -> None:
    assert (
        refused(candidate(away=True), request=javascript(minimum_isolation=floor)).reason is Reason.ISOLATION
    )


@pytest.mark.parametrize("floor", [None, Tier.PROCESS])
def test_a_worker_that_is_merely_away_is_unavailable(floor: Tier | None) -> None:
    refusal = refused(candidate(away=True), request=javascript(minimum_isolation=floor))
    assert (refusal.code, refusal.reason) == (Code.UNAVAILABLE, Reason.ENVIRONMENT)


def test_a_worker_that_cannot_prove_its_wall_meets_no_floor_and_takes_no_run() -> None:
    bare = candidate(tier=Tier.NONE, health=Health.REFUSING, faults=("seccomp_missing",))
    assert refused(bare, request=javascript(minimum_isolation=Tier.PROCESS)).reason is Reason.ISOLATION
    assert refused(bare, request=javascript()).reason is Reason.ENVIRONMENT


def test_a_worker_that_claims_more_than_its_kind_can_prove_is_cut_to_the_ceiling() -> None:
    liar = candidate(tier=Tier.VM)
    assert liar.tier is Tier.PROCESS
    assert refused(liar, request=javascript(minimum_isolation=Tier.KERNEL)).reason is Reason.ISOLATION


def test_a_run_goes_to_the_first_that_meets_its_floor_and_never_to_a_weaker_wall_than_that() -> None:
    kernel = candidate("runsc", Tier.KERNEL, tier=Tier.KERNEL)
    container = candidate("docker", Tier.CONTAINER, tier=Tier.CONTAINER)
    second_kernel = candidate("runsc2", Tier.KERNEL, tier=Tier.KERNEL)
    process = candidate()
    chosen = choose([container, process, kernel, second_kernel], javascript())
    assert [each.provider for each in chosen] == ["docker", "runsc", "runsc2"]  # type: ignore[union-attr]
    chosen = choose([process, kernel, container], javascript(minimum_isolation=Tier.CONTAINER))
    assert [each.provider for each in chosen] == ["runsc"]  # type: ignore[union-attr]


def test_a_timeout_over_every_worker_s_ceiling_is_a_request_fault_naming_the_field() -> None:
    short = {Kind.JAVASCRIPT: Environment("guest:1", "software:1", 1_000, ())}
    refusal = refused(candidate(environments=short), request=javascript(timeout_ms=1_001))
    assert refusal.reason is Reason.REQUEST
    assert refusal.faults[0].field == "timeout_ms"
