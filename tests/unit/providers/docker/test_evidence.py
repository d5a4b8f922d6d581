"""Take any required fact away, or give it another value, and the tier is gone; nothing is believed for its name."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from plimsoll.contract.tiers import Tier
from providers.docker import evidence, recipe
from providers.docker.settings import DockerSettings
from providers.docker.sight import Limits
from providers.seam import Observation
from tests.unit.providers.docker.walls import CONTAINER, GVISOR_2022, GVISOR_2024, MEMORY, observed

HELD = dict.fromkeys(evidence.SMOKE, evidence.HELD)
WALLS = [
    pytest.param(CONTAINER, Tier.CONTAINER, id="container"),
    pytest.param(GVISOR_2024, Tier.KERNEL, id="gvisor-2024"),
    pytest.param(GVISOR_2022, Tier.KERNEL, id="gvisor-2022"),
]
NOT_NEEDED = {
    "container": {"sandbox.release", "namespace.user"},
    "gvisor": {"sandbox.cap_bnd"},
}
"""Said, and required of nobody: under docker's defaults a container is in the host's user namespace, and what a sandbox process
in a user namespace of its own could regain there is worth nothing outside."""


def not_needed(values: Mapping[str, str]) -> set[str]:
    return NOT_NEEDED["gvisor" if values["sandbox.release"] else "container"]


def without(values: dict[str, str], name: str) -> list[Observation]:
    return [each for each in observed(values) if each.name != name]


@pytest.mark.parametrize(("values", "tier"), WALLS)
class TestEveryWall:
    def test_all_facts_prove_the_tier(self, values: dict[str, str], tier: Tier) -> None:
        runtime = "runc" if tier is Tier.CONTAINER else "runsc"
        found = evidence.judge_container(observed(values), runtime=runtime)
        assert (found.tier, found.faults, found.shortfalls) == (tier, (), ())
        whole = evidence.judge([*observed(values), *evidence.of_smoke(HELD)], runtime=runtime)
        assert (whole.tier, whole.faults, whole.shortfalls) == (tier, (), ())
        assert whole.observations[: len(values)] == tuple(observed(values))

    def test_any_fact_taken_away_takes_the_tier(self, values: dict[str, str], tier: Tier) -> None:
        for name in values.keys() - not_needed(values):
            found = evidence.judge_container(without(values, name), runtime="runsc")
            if name == "sandbox.release":  # then it is no gVisor, and no container either
                assert "runsc_unknown" in found.faults
            assert found.tier is Tier.NONE, name
            assert found.faults, name

    @pytest.mark.parametrize("value", ["", "0", "1", "none", "host", "x", "99999999999"])
    def test_any_fact_with_another_value_takes_it_too(
        self, values: dict[str, str], tier: Tier, value: str
    ) -> None:
        for name in values.keys() - not_needed(values):
            if value == values[name] or (name == "sandbox.release" and value):
                continue
            if tier is Tier.KERNEL and name.startswith("sandbox.cap_") and value in {"0", "1"}:
                continue  # less than it may hold
            if name == "sandbox.executable_sha256" and value:
                continue  # it says the release, which is looked at
            found = evidence.judge_container(
                [*without(values, name), *observed({name: value})], runtime="runc"
            )
            assert found.tier is Tier.NONE, name

    def test_any_limit_that_did_not_hold_takes_it(self, values: dict[str, str], tier: Tier) -> None:
        for name in evidence.SMOKE:
            for said in ("failed", "", None):
                results = {key: value for key, value in (HELD | {name: said}).items() if value is not None}
                found = evidence.judge([*observed(values), *evidence.of_smoke(results)], runtime="runc")
                assert (found.tier, found.faults) == (Tier.NONE, (f"smoke_{name}",))

    def test_no_facts_prove_nothing(self, values: dict[str, str], tier: Tier) -> None:
        found = evidence.judge((), runtime="runsc")
        assert found.tier is Tier.NONE

    def test_every_fault_is_a_code(self, values: dict[str, str], tier: Tier) -> None:
        for found in (
            evidence.judge((), runtime="x"),
            evidence.judge(observed(dict.fromkeys(values, "nothing")), runtime="x"),
        ):
            assert all(re.fullmatch(r"[a-z0-9_]{1,64}", code) for code in found.faults)


class TestNamesDecideNothing:
    @pytest.mark.parametrize("runtime", ["runsc", "gvisor", "runc-really", "x"])
    def test_a_container_under_any_name_is_a_container_that_falls_short(self, runtime: str) -> None:
        found = evidence.judge_container(observed(CONTAINER), runtime=runtime)
        assert (found.tier, found.faults) == (Tier.CONTAINER, ())
        assert found.shortfalls == ("gvisor_unproven",)

    def test_gvisor_under_the_name_runc_is_gvisor(self) -> None:
        assert evidence.judge_container(observed(GVISOR_2024), runtime="runc").tier is Tier.KERNEL

    def test_gvisor_with_a_fault_is_not_taken_for_a_container(self) -> None:
        found = evidence.judge_container(observed(GVISOR_2024, cgroup__pids="none"), runtime="runsc")
        assert (found.tier, found.faults) == (Tier.NONE, ("cgroup_pids",))


class TestGvisor:
    def test_each_flag_that_is_not_expected_is_told(self) -> None:
        flags = "runsc_flag_ignore_cgroups runsc_flag_debug"
        found = evidence.judge_container(observed(GVISOR_2024, sandbox__flags=flags), runtime="runsc")
        assert found.faults == ("runsc_flags", "runsc_flag_ignore_cgroups", "runsc_flag_debug")

    def test_an_executable_that_is_changed_by_a_byte_is_unknown(self) -> None:
        changed = observed(GVISOR_2024, sandbox__release="", sandbox__executable_sha256="0" * 64)
        found = evidence.judge_container(changed, runtime="runsc")
        assert found.tier is Tier.NONE
        assert "runsc_unknown" in found.faults

    def test_a_file_that_the_operator_vouches_for_has_the_same_needs(self) -> None:
        vouched = observed(GVISOR_2024, sandbox__release="setting")
        assert evidence.judge_container(vouched, runtime="runsc").tier is Tier.KERNEL
        faulty = observed(GVISOR_2024, sandbox__release="setting", sandbox__network="host")
        assert evidence.judge_container(faulty, runtime="runsc").tier is Tier.NONE

    def test_gvisor_inside_an_image_proves_nothing(self) -> None:
        """A container's program that is a real gVisor, started as the container's first process, beside the code."""
        inside = observed(GVISOR_2024, sandbox__executable="image", namespace__pid="own")
        found = evidence.judge_container(inside, runtime="runc")
        assert found.tier is Tier.NONE
        assert {"runsc_in_image", "namespace_pid"} <= set(found.faults)

    @pytest.mark.parametrize("held", ["1ffffffffff", "280000", "c00ff", ""])
    def test_a_sandbox_process_holds_no_more_than_its_release_does(self, held: str) -> None:
        for name in ("sandbox__cap_eff", "sandbox__cap_prm", "sandbox__cap_amb"):
            found = evidence.judge_container(observed(GVISOR_2024, **{name: held}), runtime="runsc")
            assert found.faults == ("sandbox_capabilities",)

    def test_each_release_has_its_own_user(self) -> None:
        other = observed(GVISOR_2022, sandbox__uids="0 0 0 0")
        assert evidence.judge_container(other, runtime="runsc").faults == ("sandbox_user",)


# --- a container that cannot be seen from here ----------------------------------------------------------------------------

LIMITS = Limits(MEMORY, 128, 1.0, 0x7000_0000)


def inspected(**changes: Any) -> dict[str, Any]:
    """What a daemon answers about a container that was made as we make them; `changes` are of its HostConfig."""
    body = recipe.recipe(
        DockerSettings("docker", "/state"), "sha256:" + "0" * 64, "python", 0x7000_0000, gvisor=False
    )
    told: dict[str, Any] = {
        "PidMode": "",
        "UTSMode": "",
        "UsernsMode": "",
        "Binds": None,
        "VolumesFrom": None,
        "Links": None,
    }
    told |= {"Devices": [], "DeviceRequests": None, "DeviceCgroupRules": None, "OomKillDisable": False}
    return {"State": {"Running": True}, "Mounts": [], "HostConfig": body["HostConfig"] | told | changes}


def word(answer: dict[str, Any], runtime: str = "runc", **smoke: str) -> Any:
    facts = [*evidence.of_daemon(answer, LIMITS, "pid_unknown"), *evidence.of_smoke(HELD | smoke)]
    return evidence.judge(facts, runtime=runtime)


class TestOnTheDaemonsWord:
    def test_it_is_a_container_and_the_facts_say_whose_word_it_is(self) -> None:
        found = word(inspected())
        assert (found.tier, found.faults) == (Tier.CONTAINER, ())
        sources = {each.source for each in found.observations if each.name.startswith("daemon.")}
        assert sources == {"daemon"}
        assert ("local_proof", "pid_unknown") in {(each.name, each.value) for each in found.observations}

    @pytest.mark.parametrize(
        ("changes", "fault"),
        [
            ({"ReadonlyRootfs": False}, "daemon_root"),
            ({"Privileged": True}, "daemon_privileged"),
            ({"CapAdd": ["KILL", "SETGID", "SETUID", "SYS_ADMIN"]}, "daemon_capabilities"),
            ({"CapDrop": None}, "daemon_capabilities"),
            ({"SecurityOpt": ["no-new-privileges:true"]}, "daemon_seccomp"),
            ({"SecurityOpt": ["no-new-privileges:true", "seccomp=unconfined"]}, "daemon_seccomp"),
            (
                {"SecurityOpt": ["no-new-privileges:true", 'seccomp={"defaultAction":"SCMP_ACT_ALLOW"}']},
                "daemon_seccomp",
            ),
            ({"SecurityOpt": None}, "daemon_no_new_privs"),
            ({"NetworkMode": "host"}, "daemon_namespaces"),
            ({"NetworkMode": "bridge"}, "daemon_namespaces"),
            ({"PidMode": "host"}, "daemon_namespaces"),
            ({"IpcMode": "host"}, "daemon_namespaces"),
            ({"UTSMode": "host"}, "daemon_namespaces"),
            ({"UsernsMode": "host"}, "daemon_namespaces"),
            ({"Binds": ["/:/host"]}, "daemon_mounts"),
            ({"Mounts": [{"Type": "bind"}]}, "daemon_mounts"),
            ({"VolumesFrom": ["x"]}, "daemon_mounts"),
            ({"Devices": [{}]}, "daemon_devices"),
            ({"DeviceRequests": [{}]}, "daemon_devices"),
            ({"OomKillDisable": True}, "daemon_oom_kill"),
            ({"Memory": 0}, "daemon_memory_bytes"),
            ({"MemorySwap": -1}, "daemon_memory_and_swap_bytes"),
            ({"PidsLimit": None}, "daemon_pids"),
            ({"NanoCpus": 0}, "daemon_cpus"),
        ],
    )
    def test_any_other_answer_proves_nothing(self, changes: dict[str, Any], fault: str) -> None:
        found = word(inspected(**changes))
        assert found.tier is Tier.NONE
        assert fault in found.faults

    @pytest.mark.parametrize(
        "answer", [{}, {"HostConfig": None}, {"HostConfig": []}, {"State": 1, "HostConfig": {"Memory": {}}}]
    )
    def test_an_answer_of_another_shape_proves_nothing(self, answer: dict[str, Any]) -> None:
        assert word(answer).tier is Tier.NONE

    def test_a_container_that_does_not_run_proves_nothing(self) -> None:
        assert word(inspected() | {"State": {"Running": False}}).faults == ("daemon_running",)

    def test_a_volume_proves_nothing(self) -> None:
        assert word(inspected() | {"Mounts": [{"Type": "volume"}]}).faults == ("daemon_mounts",)

    def test_what_a_program_inside_found_is_needed(self) -> None:
        assert word(inspected(), inside="failed").faults == ("smoke_inside",)

    def test_it_is_never_more_than_a_container(self) -> None:
        """Also when it brings the facts of a sandbox along that would prove gVisor here."""
        facts = [*observed(GVISOR_2024), *evidence.of_daemon(inspected(), LIMITS, "cgroup_other")]
        assert evidence.judge_container(facts, runtime="runsc").tier is Tier.CONTAINER
        assert evidence.wall_of(facts) is Tier.CONTAINER

    def test_a_gvisor_without_limits_proves_nothing_whatever_the_daemon_says_of_them(self) -> None:
        found = evidence.judge_container(
            evidence.of_daemon(inspected(), LIMITS, "cgroup_ignored"), runtime="runsc"
        )
        assert (found.tier, found.faults) == (Tier.NONE, ("runsc_flag_ignore_cgroups",))

    def test_gvisor_is_not_believed(self) -> None:
        found = word(inspected(), "runsc")
        assert (found.tier, found.shortfalls) == (Tier.CONTAINER, ("gvisor_unproven",))

    def test_a_profile_is_ours_however_it_is_spaced(self) -> None:
        spaced = "seccomp=" + json.dumps(json.loads(recipe.seccomp_profile()), indent=3)
        assert word(inspected(SecurityOpt=["no-new-privileges", spaced])).tier is Tier.CONTAINER
