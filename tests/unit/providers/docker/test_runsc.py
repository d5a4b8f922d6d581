"""What gVisor's command line may say: the lines of real sandboxes pass, and every change to one is a fault with a code."""

import re
from pathlib import Path

import pytest

from providers.docker import runsc
from tests.unit.providers.docker.walls import ARGV_2022, ARGV_2024, ID, MEMORY

PLACE = runsc.Place(ID, MEMORY)
FAMILIES = [
    pytest.param(ARGV_2022, runsc.OF_2022, id="2022"),
    pytest.param(ARGV_2024, runsc.OF_2024, id="2024"),
]
LIST = Path(__file__).resolve().parents[4] / "deploy" / "gvisor-releases.txt"

BEFORE_BOOT = [
    "--ignore-cgroups=true",
    "--ignore-cgroups",
    "-ignore-cgroups=true",
    "--host-uds=open",
    "--host-uds=all",
    "--fsgofer-host-uds=true",
    "--host-fifo=open",
    "--overlay=true",
    "--overlay2=all:memory",
    "--overlay2=root:dir=/tmp",
    "--debug=true",
    "--debug-log=/tmp/x/",
    "--debug-log-fd=4",
    "--strace=true",
    "--net-raw=true",
    "--nvproxy=true",
    "--rootless=true",
    "--TESTONLY-unsafe-nonroot=true",
    "--allow-flag-override=true",
    "--oci-seccomp=true",
    "--profile=true",
    "--file-access=shared",
    "--directfs=false",
    "--platform_device_path=/dev/kvm",
    "--a-flag-of-tomorrow=1",
    "--log=/var/log/elsewhere.json",
]
AT_BOOT = [
    "--attached=true",
    "--apply-caps=true",
    "--setup-root=true",
    "--pidns=true",
    "--device-fd=5",
    "--overlay-filestore-fd=5",
    "--gofer-filestore-fds=5",
    "--gofer-mount-confs=lisafs:self",
    "--gofer-mount-confs=lisafs:none,lisafs:memory",
    "--pass-fd=5:5",
    "--exec-fd=5",
    "--dev-io-fd=5",
    "--user-log-fd=5",
    "--pod-init-config-fd=5",
    "--sink-fds=5",
    "--trace-fd=5",
    "--profile-cpu-fd=5",
    "--total-memory=1",
    "--bundle=/elsewhere",
    "--network=none",
]


def faults(argv: list[str], family: runsc.Family) -> tuple[str, ...]:
    return runsc.read(argv, family, PLACE).faults


def before_boot(argv: list[str], *words: str) -> list[str]:
    at = argv.index("boot")
    return [*argv[:at], *words, *argv[at:]]


def at_boot(argv: list[str], *words: str) -> list[str]:
    return [*argv[:-1], *words, argv[-1]]


@pytest.mark.parametrize(("argv", "family"), FAMILIES)
class TestEachFamily:
    def test_the_line_of_a_real_sandbox_is_expected(self, argv: list[str], family: runsc.Family) -> None:
        said = runsc.read(argv, family, PLACE)
        assert said == runsc.Boot(family.unprinted_platform, "none", ())

    @pytest.mark.parametrize("flag", BEFORE_BOOT)
    def test_any_other_flag_is_a_fault_of_its_own(
        self, argv: list[str], family: runsc.Family, flag: str
    ) -> None:
        name = flag.lstrip("-").partition("=")[0].lower().replace("-", "_").replace("__", "_")
        assert f"runsc_flag_{name}" in faults(before_boot(argv, flag), family)

    @pytest.mark.parametrize("flag", AT_BOOT)
    def test_so_it_is_after_boot(self, argv: list[str], family: runsc.Family, flag: str) -> None:
        name = flag.lstrip("-").partition("=")[0].replace("-", "_")
        assert f"runsc_flag_{name}" in faults(at_boot(argv, flag), family)

    def test_a_second_value_is_a_fault_whatever_it_is(self, argv: list[str], family: runsc.Family) -> None:
        assert faults(before_boot(argv, "--network=host"), family) == ("runsc_flag_network",)
        assert faults(before_boot(argv, "--network=none"), family) == ("runsc_flag_network",)

    @pytest.mark.parametrize("network", ["host", "sandbox", "plugin", ""])
    def test_any_other_network_is_a_fault(self, argv: list[str], family: runsc.Family, network: str) -> None:
        changed = [f"--network={network}" if word == "--network=none" else word for word in argv]
        said = runsc.read(changed, family, PLACE)
        assert (said.network, said.faults) == (network, ("runsc_flag_network",))

    def test_no_network_flag_means_the_default_which_is_a_fault(
        self, argv: list[str], family: runsc.Family
    ) -> None:
        assert faults([word for word in argv if word != "--network=none"], family) == ("runsc_flag_network",)

    @pytest.mark.parametrize("platform", ["kvm", "PTRACE", ""])
    def test_any_other_platform_is_a_fault(
        self, argv: list[str], family: runsc.Family, platform: str
    ) -> None:
        rest = [word for word in argv if not word.startswith("--platform")]
        assert "runsc_flag_platform" in faults(before_boot(rest, f"--platform={platform}"), family)

    def test_another_containers_line_is_a_fault(self, argv: list[str], family: runsc.Family) -> None:
        other = runsc.Place("0" * 64, MEMORY)
        assert {"runsc_argv", "runsc_flag_bundle"} <= set(runsc.read(argv, family, other).faults)

    def test_another_memory_is_a_fault(self, argv: list[str], family: runsc.Family) -> None:
        said = runsc.read(argv, family, runsc.Place(ID, MEMORY + 1))
        assert said.faults == ("runsc_flag_total_memory",)

    @pytest.mark.parametrize("words", [[], ["runsc-sandbox"], ["runsc-sandbox", "boot"], ["boot"], [ID]])
    def test_what_is_no_sandbox_is_a_fault(
        self, argv: list[str], family: runsc.Family, words: list[str]
    ) -> None:
        assert "runsc_argv" in faults(words, family)

    @pytest.mark.parametrize("name", ["runsc", "runsc-gofer", "/usr/bin/runsc"])
    def test_another_role_is_a_fault(self, argv: list[str], family: runsc.Family, name: str) -> None:
        assert faults([name, *argv[1:]], family) == ("runsc_argv",)

    def test_a_stray_word_is_a_fault(self, argv: list[str], family: runsc.Family) -> None:
        assert "runsc_argv" in faults(at_boot(argv, "--", "x"), family)

    def test_what_differs_from_machine_to_machine_is_expected(
        self, argv: list[str], family: runsc.Family
    ) -> None:
        there = at_boot(
            before_boot(argv, "--systemd-cgroup=true"), "--product-name=Standard PC (Q35 + ICH9, 2009)"
        )
        assert not faults(there, family)


def test_a_platform_belongs_to_its_family() -> None:
    assert faults(before_boot(ARGV_2022, "--platform=systrap"), runsc.OF_2022) == ("runsc_flag_platform",)
    assert not faults(before_boot(ARGV_2022, "--platform=ptrace"), runsc.OF_2022)
    old = ["--platform=ptrace" if word.startswith("--platform") else word for word in ARGV_2024]
    assert faults(old, runsc.OF_2024) == ("runsc_flag_platform",)


def test_every_fault_is_a_code() -> None:
    odd = before_boot(ARGV_2024, "--" + "x" * 200, "--Ünicode", "---", "--a.b_C=1", "\n")
    found = faults(odd, runsc.OF_2024)
    assert len(found) >= 3
    assert all(re.fullmatch(r"[a-z0-9_]{1,64}", code) for code in found)


def test_releases_are_those_of_the_installer() -> None:
    lines = [line.split() for line in LIST.read_text().splitlines() if not line.startswith("#")]
    ours = [
        [each.sha256, each.version, each.platform, each.architecture, each.package] for each in runsc.RELEASES
    ]
    assert ours == lines


def test_a_release_is_known_by_its_bytes_only() -> None:
    (newest, oldest) = runsc.RELEASES
    assert runsc.release_of(newest.sha256) == newest.version
    assert runsc.release_of(oldest.sha256) == oldest.version
    assert runsc.release_of("") == runsc.release_of("0" * 64) == runsc.release_of(newest.version) == ""
    assert runsc.release_of("0" * 64, frozenset({"0" * 64})) == runsc.SETTING


@pytest.mark.parametrize("release", runsc.RELEASES, ids=lambda release: release.version)
def test_a_releases_platform_is_its_familys(release: runsc.Release) -> None:
    assert runsc.family_of(release.version).platforms == {release.platform}


def test_a_file_that_the_operator_vouches_for_is_judged_as_the_newest() -> None:
    assert runsc.family_of(runsc.SETTING) is runsc.OF_2024
