"""The first rule that leaves no candidate names the reason, in the fixed order kind, software, floor."""

from typing import Any

import pytest

from app.dispatch.admission import CEILINGS, Candidate, choose, kinds_of
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


# --- three tiers at once -------------------------------------------------------------------------------------------------

SERVED = {
    kind: Environment("image:1", "image:1", 300_000, ())
    for kind in (Kind.JAVASCRIPT, Kind.PYTHON, Kind.PROJECT)
}
REFUSING: dict[str, Any] = {"tier": Tier.NONE, "health": Health.REFUSING, "faults": ("daemon_unreachable",)}
UNREADY: dict[str, Any] = REFUSING | {"environments": {}}


def docker(provider: str = "docker", **changes: Any) -> Candidate:
    values = {"tier": Tier.CONTAINER, "environments": SERVED, **changes}
    return candidate(provider, CEILINGS["docker"], **values)


def gvisor(**changes: object) -> Candidate:
    values: dict[str, Any] = {"tier": Tier.KERNEL, **changes}
    return docker("docker@runsc", **values)


def chosen(*candidates: Candidate, floor: Tier | None, python: bool = False) -> list[str] | Refusal:
    request = RunRequest(Python("1") if python else JavaScript("1"), minimum_isolation=floor)
    found = choose(candidates, request)
    return found if isinstance(found, Refusal) else [each.provider for each in found]


def denied(*candidates: Candidate, floor: Tier | None, python: bool = False) -> tuple[Code, Reason | None]:
    found = chosen(*candidates, floor=floor, python=python)
    assert isinstance(found, Refusal), found
    return found.code, found.reason


STARTING = UNAVAILABLE = (Code.UNAVAILABLE, Reason.ENVIRONMENT)
UNMET = (Code.ISOLATION_UNMET, Reason.ISOLATION)
ANY_FLOOR = (None, Tier.PROCESS, Tier.CONTAINER, Tier.KERNEL)


@pytest.mark.parametrize(
    ("floor", "first"),
    [
        (None, "wasm"),
        (Tier.PROCESS, "wasm"),
        (Tier.CONTAINER, "docker"),
        (Tier.KERNEL, "docker@runsc"),
    ],
)
def test_each_floor_goes_to_the_first_in_the_list_that_meets_it(floor: Tier | None, first: str) -> None:
    found = chosen(candidate(), docker(), gvisor(), floor=floor)
    assert isinstance(found, list)
    assert found[0] == first
    assert chosen(gvisor(), docker(), candidate(), floor=floor) == ["docker@runsc"]


def test_the_kind_narrows_before_the_floor() -> None:
    assert chosen(candidate(), docker(), gvisor(), floor=None, python=True) == ["docker", "docker@runsc"]
    assert chosen(candidate(), docker(), floor=Tier.PROCESS, python=True) == ["docker"]


def test_a_floor_that_needs_gvisor_is_refused_when_gvisor_proves_no_more_than_a_container() -> None:
    unproven = gvisor(tier=Tier.CONTAINER, shortfalls=("gvisor_unproven",))
    assert denied(unproven, docker(), candidate(), floor=Tier.KERNEL) == UNMET
    assert chosen(unproven, docker(), candidate(), floor=None) == ["docker@runsc", "docker"]


def test_a_tier_that_dropped_re_routes_and_a_floor_above_what_is_left_is_refused() -> None:
    dropped = gvisor(**REFUSING)
    assert chosen(dropped, docker(), candidate(), floor=None) == ["docker"]
    assert chosen(dropped, docker(), candidate(), floor=Tier.PROCESS) == ["docker"]
    assert denied(dropped, docker(), candidate(), floor=Tier.KERNEL) == UNMET


@pytest.mark.parametrize("floor", [Tier.CONTAINER, Tier.KERNEL])
def test_providers_whose_daemon_is_down_are_an_isolation_refusal(floor: Tier) -> None:
    down = (gvisor(**UNREADY), docker(**UNREADY), candidate())
    assert denied(*down, floor=floor) == UNMET
    assert chosen(*down, floor=Tier.PROCESS) == ["wasm"]


@pytest.mark.parametrize("floor", ANY_FLOOR)
def test_a_lost_worker_keeps_its_place_so_nothing_moves_to_a_weaker_wall(floor: Tier | None) -> None:
    assert denied(gvisor(away=True), docker(), candidate(), floor=floor) == STARTING


def test_a_lost_worker_is_replaced_by_an_equal_or_stronger_one() -> None:
    assert chosen(docker(away=True), gvisor(), candidate(), floor=None) == ["docker@runsc"]
    assert chosen(candidate(away=True), docker(), gvisor(), floor=None) == ["docker", "docker@runsc"]


def test_a_lost_worker_that_never_met_the_floor_does_not_promise_to() -> None:
    assert denied(gvisor(**REFUSING), docker(away=True), candidate(), floor=Tier.KERNEL) == UNMET


def test_a_lost_worker_that_refused_last_does_not_keep_a_place() -> None:
    lost = gvisor(away=True, **REFUSING)
    assert chosen(lost, docker(), floor=None) == ["docker"]
    assert denied(lost, docker(), floor=Tier.KERNEL) == STARTING


@pytest.mark.parametrize("floor", ANY_FLOOR)
def test_before_its_first_look_a_provider_keeps_its_place_by_what_its_kind_can_prove(
    floor: Tier | None,
) -> None:
    unknown = Candidate("docker@runsc", Tier.KERNEL, None, away=True, pending=True)
    assert denied(unknown, docker(), candidate(), floor=floor) == STARTING


def test_one_that_died_before_its_first_look_keeps_no_place() -> None:
    dead = Candidate("docker@runsc", Tier.KERNEL, None, away=True)
    assert chosen(dead, docker(), candidate(), floor=None) == ["docker"]
    assert denied(dead, docker(), candidate(), floor=Tier.KERNEL) == STARTING


@pytest.mark.parametrize("floor", ANY_FLOOR)
def test_a_kind_is_not_unsupported_while_the_provider_that_can_run_it_is_not_ready(
    floor: Tier | None,
) -> None:
    unknown = Candidate("docker", Tier.KERNEL, None, away=True, pending=True)
    assert denied(unknown, candidate(), floor=floor, python=True) == STARTING
    refused_for = UNAVAILABLE if floor is None else UNMET
    assert denied(docker(**UNREADY), candidate(), floor=floor, python=True) == refused_for


def test_software_that_is_not_known_yet_is_not_the_reason_that_nothing_runs() -> None:
    nameless = {Kind.JAVASCRIPT: Environment("", "", 300_000, ())}
    unready = docker(**REFUSING | {"environments": nameless})
    rule = SoftwareRule("approved", ("software:1",))
    refusal = refused(unready, request=javascript(software_rule=rule, minimum_isolation=Tier.CONTAINER))
    assert (refusal.code, refusal.reason) == UNMET
    known = docker(**REFUSING)
    assert refused(known, request=javascript(software_rule=rule)).code is Code.SOFTWARE_UNMET


def test_a_kind_that_no_provider_can_ever_run_is_unsupported_from_the_first_moment() -> None:
    unknown = Candidate("wasm", Tier.PROCESS, None, away=True, pending=True)
    assert denied(unknown, floor=None, python=True) == (Code.UNSUPPORTED, Reason.UNSUPPORTED)


def test_bodies_may_be_as_large_as_the_kinds_of_the_configured_providers_need() -> None:
    assert kinds_of(["wasm"]) == {Kind.JAVASCRIPT}
    assert kinds_of(["wasm", "docker@runsc"]) == {Kind.JAVASCRIPT, Kind.PYTHON, Kind.PROJECT}
