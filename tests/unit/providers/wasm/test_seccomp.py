"""The filter's program, run here by an interpreter of the few instructions it uses, for both machines."""

import struct

import pytest

from providers.wasm import seccomp
from providers.wasm.seccomp import ALLOWED, MACHINES, PROBES

ALLOW, DENY, KILL = 0x7FFF0000, 0x00050001, 0x80000000
MACHINE_NAMES = sorted(MACHINES)


def decide(code: bytes, *, arch: int, number: int, third: int = 0, fourth: int = 0) -> int:
    """What the kernel would answer to one system call."""
    data = struct.pack("<IIQ6Q", number, arch, 0, 0, 0, third, fourth, 0, 0)
    steps = list(struct.iter_unpack("<HBBI", code))
    at, accumulator = 0, 0
    while True:
        operation, yes, no, value = steps[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return int(value)
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
            at += yes if test[operation] else no


@pytest.fixture(params=MACHINE_NAMES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(machine: str, number: int, third: int = 0, fourth: int = 0) -> int:
    return decide(
        seccomp.program(machine), arch=MACHINES[machine].arch, number=number, third=third, fourth=fourth
    )


def test_what_a_runner_needs_is_allowed(machine: str) -> None:
    assert {ask(machine, MACHINES[machine].calls[name]) for name in ALLOWED} == {ALLOW}


def test_everything_else_is_denied(machine: str) -> None:
    calls = MACHINES[machine].calls
    open_ones = {calls[name] for name in (*ALLOWED, "mmap", "mprotect", "madvise")}
    denied = [number for number in range(600) if number not in open_ones]
    assert {ask(machine, number) for number in denied} == {DENY}


@pytest.mark.parametrize("name", ["mmap", "mprotect"])
def test_memory_may_be_mapped_but_never_made_executable(machine: str, name: str) -> None:
    number = MACHINES[machine].calls[name]
    for protection in range(8):
        assert ask(machine, number, protection) == (DENY if protection & 4 else ALLOW)
    assert ask(machine, number, 0x1_0000_0003) == ALLOW  # the kernel takes the low half


def test_no_memory_is_mapped_that_the_limit_does_not_count(machine: str) -> None:
    number = MACHINES[machine].calls["mmap"]
    private, shared, validated, grows, anonymous, fixed, stack = 0x02, 0x01, 0x03, 0x100, 0x20, 0x10, 0x20000
    for extra in (0, anonymous, fixed, anonymous | stack):
        assert ask(machine, number, 3, private | extra) == ALLOW
        for kind in (shared, validated, private | grows):
            assert ask(machine, number, 3, kind | extra) == DENY
            assert ask(machine, number, 0, kind | extra | 1 << 32) == DENY
    assert ask(machine, MACHINES[machine].calls["mprotect"], 3, shared) == ALLOW  # it has no fourth argument


def test_only_ordinary_advice_about_memory_is_allowed(machine: str) -> None:
    number = MACHINES[machine].calls["madvise"]
    assert ask(machine, number, 4) == ALLOW
    assert {ask(machine, number, advice) for advice in (100, 101, 0xFFFFFFFF)} == {DENY}


def test_numbers_of_another_architecture_end_the_process(machine: str) -> None:
    for arch in (0x40000003, 0, *(each.arch for name, each in MACHINES.items() if name != machine)):
        assert decide(seccomp.program(machine), arch=arch, number=0) == KILL


def test_the_x32_numbers_are_denied() -> None:
    assert {ask("x86_64", 0x40000000 + number) for number in range(600)} == {DENY}


def test_every_probe_is_of_something_denied(machine: str) -> None:
    third = {"mmap": 5, "mprotect": 4}
    fourth = {"mmap_shared": 0x21, "mmap_growing": 0x122}
    for name in PROBES:
        number = MACHINES[machine].calls[seccomp.call_of(name)]
        assert ask(machine, number, third.get(name, 0), fourth.get(name, 0)) == DENY


def test_a_machine_we_do_not_know_has_no_filter() -> None:
    with pytest.raises(seccomp.SeccompMissing):
        seccomp.program("riscv64")


def test_the_policy_names_the_programs_bytes() -> None:
    assert seccomp.policy("x86_64") != seccomp.policy("aarch64")
    assert seccomp.policy("x86_64").startswith("seccomp:sha256:")


@pytest.mark.component("seccomp")
def test_probes_succeed_or_fail_otherwise_where_there_is_no_filter() -> None:
    """So that EPERM can only come from the filter. `openat` and the like leave a descriptor; this is a test process."""
    answers = seccomp.probes(seccomp.this_machine())
    assert set(answers) == set(PROBES)
    assert "EPERM" not in {answers[name] for name in PROBES if name != "io_uring_setup"}
