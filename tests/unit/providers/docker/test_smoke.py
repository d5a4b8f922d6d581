"""The verdicts over the trials: what counts as a limit that held, and that nothing else does."""

import json
from typing import Any

import pytest

from plimsoll.contract.results import EXIT_DEADLINE, EXIT_FLOOD, EXIT_MEMORY
from plimsoll.contract.tiers import Tier
from providers.docker import evidence, smoke, syscalls
from providers.docker.agent.guests import ENVIRONMENT
from providers.docker.recipe import seccomp_profile
from providers.docker.settings import DockerSettings
from providers.docker.smoke import Outcome
from providers.seam import Break, Finish

SETTINGS = DockerSettings("docker", "/state")
DONE = Finish(0)
WALLS = (Tier.CONTAINER, Tier.KERNEL)
NOTHING = [Outcome(Finish(0), b"", 10), Outcome(Break("sandbox_died"), b"", 10), Outcome(Finish(1), b"x", 10)]
CALLS = (
    "mount",
    "umount",
    "pivot_root",
    "chroot",
    "setns",
    "ptrace",
    "process_vm_readv",
    "pidfd_open",
    "bpf",
    "io_uring_setup",
    "userfaultfd",
    "perf_event_open",
    "add_key",
    "keyctl",
    "kexec_load",
    "init_module",
    "open_by_handle_at",
    "swapon",
    "reboot",
    "sethostname",
    "clock_settime",
    "quotactl",
    "syslog",
    "personality",
)
SAID: dict[str, Any] = {
    "kernel": "6.1.0-18-amd64",
    "ids": [0x7000_0003],
    "user": "guest",
    "rights": {
        **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapAmb"), "0" * 16),
        "NoNewPrivs": "1",
        "Seccomp": "2",
    },
    "environment": ENVIRONMENT,
    "writable": ["/dev/shm", "/tmp", "/workspace"],
    "sizes": {"/workspace": 64 << 20, "/tmp": 64 << 20, "/dev/shm": 1 << 20},
    "full": {"/workspace": "ENOSPC", "/tmp": "ENOSPC", "/dev/shm": "ENOSPC"},
    "execute": {"/workspace": "EACCES", "/tmp": "EACCES"},
    "interfaces": ["lo"],
    "network": dict.fromkeys(
        ["metadata", "tcp", "tcp6", "udp", "icmp", "raw", "vsock", "packet", "names"], "ENETUNREACH"
    ),
    "resolver": ["nameserver 127.0.0.1", "options attempts:1", ""],
    "calls": dict.fromkeys(CALLS, "EPERM"),
    "machine": "x86_64",
    "refused": {label: min(each) for label, each in syscalls.answers(seccomp_profile(), "x86_64").items()},
    "namespaces": dict.fromkeys(["mount", "uts", "ipc", "user", "pid", "net", "cgroup"], "EPERM"),
    "device": "EPERM",
    "first_process": dict.fromkeys(["signal", "memory", "descriptor", "root"], "EPERM"),
    "settings": dict.fromkeys(
        ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger"), "EROFS"
    ),
    "owners": [0x7000_0002, 0x7000_0003],
}
GVISOR = {
    **SAID,
    "refused": {},
    "kernel": "4.4.0",
    "rights": {**SAID["rights"], "CapAmb": "", "NoNewPrivs": "", "Seccomp": "0"},
    "calls": {**SAID["calls"], "keyctl": "done", "syslog": "done", "process_vm_readv": "done"},
    "namespaces": {**SAID["namespaces"], "user": "done", "cgroup": "done"},
    "device": "done",
}


def inside(said: Any, wall: Tier = Tier.CONTAINER, finish: Finish | Break = DONE) -> bool:
    case = smoke.cases(wall, SETTINGS)[smoke.INSIDE]
    return case.holds(Outcome(finish, json.dumps(said).encode() + b"\n", 100))


class TestEachLimit:
    def test_the_cases_are_those_that_evidence_asks_for(self) -> None:
        for wall in WALLS:
            assert tuple(smoke.cases(wall, SETTINGS)) == evidence.SMOKE

    @pytest.mark.parametrize("name", evidence.SMOKE)
    def test_a_program_that_just_ends_broke_no_limit(self, name: str) -> None:
        for wall in WALLS:
            for outcome in NOTHING:
                assert not smoke.cases(wall, SETTINGS)[name].holds(outcome)

    @pytest.mark.parametrize("name", ["deadline", "sleeper"])
    def test_a_deadline_holds_when_it_ends_the_run_in_time(self, name: str) -> None:
        case = smoke.cases(Tier.CONTAINER, SETTINGS)[name]
        end = Finish(EXIT_DEADLINE, timed_out=True)
        assert case.holds(Outcome(end, b"", case.timeout_ms + 100))
        assert not case.holds(Outcome(end, b"", case.timeout_ms + 5_000))
        assert not case.holds(Outcome(Finish(EXIT_DEADLINE), b"", case.timeout_ms))
        assert not case.holds(
            Outcome(Finish(EXIT_MEMORY, timed_out=True, oom_killed=True), b"", case.timeout_ms)
        )

    def test_memory_holds_when_it_is_said_to_be_memory(self) -> None:
        case = smoke.cases(Tier.KERNEL, SETTINGS)["memory"]
        assert case.holds(Outcome(Finish(EXIT_MEMORY, oom_killed=True), b"", 1000))
        assert not case.holds(Outcome(Finish(EXIT_MEMORY), b"", 1000))
        assert not case.holds(Outcome(Finish(EXIT_MEMORY, oom_killed=True, timed_out=True), b"", 1000))
        assert not case.holds(Outcome(Finish(EXIT_DEADLINE, timed_out=True), b"", 1000))

    def test_a_flood_is_cut_at_the_cap_and_ended(self) -> None:
        case = smoke.cases(Tier.CONTAINER, SETTINGS)["flood"]
        end = Finish(EXIT_FLOOD, stdout_truncated=True)
        assert case.holds(Outcome(end, bytes(case.output_bytes), 100))
        assert not case.holds(Outcome(end, bytes(case.output_bytes - 1), 100))
        assert not case.holds(Outcome(Finish(0, stdout_truncated=True), bytes(case.output_bytes), 100))

    @pytest.mark.parametrize(
        ("said", "held"),
        [
            (b"120\n", True),
            (b"128\n", True),
            (b"129\n", False),
            (b"513\n", False),
            (b"0\n", False),
            (b"many\n", False),
        ],
    )
    def test_processes_come_to_an_end(self, said: bytes, held: bool) -> None:  # noqa: FBT001  # the expectation
        for wall in WALLS:
            assert smoke.cases(wall, SETTINGS)["processes"].holds(Outcome(Finish(0), said, 100)) is held


class TestInside:
    def test_what_real_walls_let_a_guest_find(self) -> None:
        assert inside(SAID)
        assert inside(GVISOR, Tier.KERNEL)

    def test_one_wall_is_not_taken_for_the_other(self) -> None:
        assert not inside(GVISOR)
        assert not inside(SAID, Tier.KERNEL)

    @pytest.mark.parametrize("name", SAID)
    def test_whatever_is_missing_or_different_is_wrong(self, name: str) -> None:
        for value in (
            None,
            "",
            {},
            [],
            *(() if name in {"kernel", "device"} else ("done", {"x": "done"}, 7)),
        ):
            said = {**SAID, name: value}
            assert not inside(said), (name, value)

    @pytest.mark.parametrize("group", ["network", "calls", "namespaces", "first_process", "settings"])
    def test_every_attempt_that_is_let_through_is_wrong(self, group: str) -> None:
        for name in SAID[group]:
            assert not inside({**SAID, group: {**SAID[group], name: "done"}}), name

    @pytest.mark.parametrize(
        "name", ["mount", "chroot", "ptrace", "bpf", "userfaultfd", "kexec_load", "reboot"]
    )
    def test_so_it_is_in_gvisor_for_what_is_not_its_own(self, name: str) -> None:
        assert not inside({**GVISOR, "calls": {**GVISOR["calls"], name: "done"}}, Tier.KERNEL)

    def test_one_more_variable_place_owner_or_right_is_wrong(self) -> None:
        assert not inside({**SAID, "environment": {**ENVIRONMENT, "TOKEN": "x"}})
        assert not inside({**SAID, "writable": [*SAID["writable"], "/usr"]})
        assert not inside({**SAID, "owners": [0, 0x7000_0002, 0x7000_0003]})
        assert not inside({**SAID, "ids": [0, 0x7000_0003]})
        assert not inside({**SAID, "interfaces": ["eth0", "lo"]})
        for name, value in (
            ("CapEff", "20"),
            ("CapInh", "e0"),
            ("NoNewPrivs", "0"),
            ("Seccomp", "0"),
            ("Seccomp", "1"),
        ):
            assert not inside({**SAID, "rights": {**SAID["rights"], name: value}}), name

    def test_a_place_larger_than_promised_or_never_full_is_wrong(self) -> None:
        assert not inside({**SAID, "sizes": {**SAID["sizes"], "/tmp": (64 << 20) + 1}})
        assert not inside({**SAID, "sizes": {**SAID["sizes"], "/tmp": 0}})
        assert not inside({**SAID, "full": {**SAID["full"], "/tmp": "never full"}})

    @pytest.mark.parametrize("said", [[], "x", 7, None])
    def test_another_answer_is_wrong(self, said: Any) -> None:
        assert not inside(said)

    @pytest.mark.parametrize(
        "finish", [Finish(1), Finish(0, timed_out=True), Finish(0, stdout_truncated=True), Break("x")]
    )
    def test_another_end_is_wrong(self, finish: Finish | Break) -> None:
        assert not inside(SAID, finish=finish)

    def test_large_places_are_not_filled(self) -> None:
        large = DockerSettings("docker", "/state", disk_mb=4096, memory_mb=512)
        code = smoke.cases(Tier.CONTAINER, large)[smoke.INSIDE].payload.code
        assert code.startswith("FILL = ('/dev/shm',)\n")
        assert smoke.cases(Tier.CONTAINER, SETTINGS)[smoke.INSIDE].payload.code.startswith(
            "FILL = ('/tmp', '/workspace', '/dev/shm')\n"
        )
