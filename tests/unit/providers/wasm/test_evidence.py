"""Take any required fact away, or change it, and the wasm provider proves nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Health
from providers.host.wall import Wall
from providers.seam import Findings, Observation
from providers.wasm import evidence, seccomp
from providers.wasm.guest.pins import WASM_SHA256
from providers.wasm.smoke import CASES

POLICY = seccomp.policy("x86_64")
REPORT = {
    "machine": "x86_64",
    "policy": POLICY,
    "probes": dict.fromkeys(seccomp.PROBES, "EPERM"),
    "descriptors": evidence.DESCRIPTORS,
    "dumpable": "0",
}
STATUS = "Name:\tx\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(STATUS)
    return tmp_path


@pytest.fixture
def good(proc: Path) -> list[Observation]:
    about = {"engine": "wasmtime 1", "guest": WASM_SHA256, "cache_key": "k"}
    limits = {"memory_bytes": 1, "wasm_stack_bytes": 1, "output_bytes": 1, "kill_grace_ms": 100}
    return [
        *evidence.of_engine(about, limits),
        *evidence.of_report(REPORT),
        *evidence.of_process(7, REPORT, proc),
        *evidence.of_smoke(dict.fromkeys(evidence.SMOKE, evidence.HELD)),
    ]


def test_all_required_facts_prove_the_process_tier_and_no_more(good: list[Observation]) -> None:
    assert evidence.judge(good, POLICY) == Findings(Tier.PROCESS, tuple(good))


@pytest.mark.parametrize("name", evidence.required(POLICY))
def test_without_any_one_required_fact_nothing_is_served(name: str, good: list[Observation]) -> None:
    found = evidence.judge([each for each in good if each.name != name], POLICY)
    assert found.tier is Tier.NONE
    assert found.faults == (evidence.required(POLICY)[name].fault,)
    wall = Wall("wasm", None, allow_dumpable=True)  # type: ignore[arg-type]
    wall.take(found)
    assert (wall.tier, wall.health) == (Tier.NONE, Health.REFUSING)


ANY_VALUE = ("engine", "cache.", "limits.")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in evidence.required(POLICY)
        for value in ("", "allowed")
        if not (value and name.startswith(ANY_VALUE))
    ],
)
def test_a_required_fact_with_a_wrong_value_is_missing(
    name: str, value: str, good: list[Observation]
) -> None:
    changed = [replace(each, value=value) if each.name == name else each for each in good]
    assert evidence.judge(changed, POLICY).tier is Tier.NONE


def test_the_filter_of_another_policy_is_not_this_one(good: list[Observation]) -> None:
    assert evidence.judge(good, seccomp.policy("aarch64")).faults == ("seccomp_missing",)


def test_a_debuggable_runner_is_a_fault_unless_that_was_set(good: list[Observation]) -> None:
    changed = [replace(each, value="1") if each.name == "runner.dumpable" else each for each in good]
    assert evidence.judge(changed, POLICY).faults == ("runner_dumpable",)
    assert evidence.judge(changed, POLICY, dumpable=True).faults == ()


@pytest.mark.parametrize("report", [{}, {"probes": 7}, {"probes": {"openat": 1}}, {"policy": "x" * 1_000}])
def test_a_report_of_nonsense_is_no_evidence(report: dict[str, object]) -> None:
    needs = evidence.runner_needs(POLICY)
    assert "seccomp_missing" in evidence.faults_of(needs, evidence.of_report(report))


def test_a_runner_that_cannot_be_seen_proves_nothing(tmp_path: Path) -> None:
    faults = evidence.faults_of(evidence.runner_needs(POLICY), evidence.of_process(7, REPORT, tmp_path))
    assert {"seccomp_missing", "no_new_privs_missing", "runner_privileged"} <= set(faults)


def test_descriptors_seen_from_outside_count_more_than_what_the_runner_says(proc: Path) -> None:
    (proc / "7" / "fd").mkdir()
    (proc / "7" / "fd" / "0").symlink_to("/etc/passwd")
    found = {each.name: each for each in evidence.of_process(7, REPORT, proc)}
    assert (found["runner.descriptors"].source, found["runner.descriptors"].value) == ("host", "file")


def test_every_limit_that_is_required_to_hold_is_broken_at_start() -> None:
    assert set(evidence.SMOKE) == {*CASES, "random", "fresh"}
