"""Which calls are tried from inside, and that no answer but the filter's counts as a refusal."""

import ctypes
import errno
import json

import pytest

from providers.docker import smoke, syscalls
from providers.docker.recipe import seccomp_profile
from tests.support.seccomp import letting_through

PROFILE = json.loads(seccomp_profile())
ALLOWED = {
    name for rule in PROFILE["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]
}
MACHINES = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEWER = 456
"""No library of 2023 knows newer calls."""
OF_A_KERNEL = (
    "done",
    "EINVAL",
    "EFAULT",
    "EBADF",
    "ESRCH",
    "E2BIG",
    "ENOSYS",
    "EPERM",
    "EACCES",
    "OSError",
    "",
)


def filters(machine: str) -> dict[str, str]:
    """What the filter answers where it may answer in two ways, too: as little as possible."""
    return {label: min(each) for label, each in syscalls.answers(seccomp_profile(), machine).items()}


@MACHINES
def test_every_call_that_the_machine_has_and_the_profile_does_not_allow_is_tried(machine: str) -> None:
    tried = syscalls.refused(seccomp_profile())
    labels = syscalls.answers(seccomp_profile(), machine)
    assert syscalls.NUMBERS[machine].keys() - ALLOWED <= labels.keys()
    by_words = {each.name for label, each in tried.items() if label != each.name}
    with_words = {name for rule in PROFILE["syscalls"] if "args" in rule for name in rule["names"]}
    assert by_words == with_words
    assert len(labels) > 250


@MACHINES
def test_the_filters_answers_are_taken_for_the_filter(machine: str) -> None:
    assert smoke.are_the_filters(filters(machine), machine)
    assert not smoke.are_the_filters({}, machine)


@MACHINES
def test_any_one_call_that_a_kernel_answers_instead_is_noticed(machine: str) -> None:
    said, allowed = filters(machine), syscalls.answers(seccomp_profile(), machine)
    for label in said:
        for answer in OF_A_KERNEL:
            noticed = not smoke.are_the_filters({**said, label: answer}, machine)
            assert noticed == (answer not in allowed[label]), (label, answer)
        assert not smoke.are_the_filters({name: said[name] for name in said if name != label}, machine)


@MACHINES
def test_one_error_counts_for_each_call_but_for_those_newer_than_the_profile(machine: str) -> None:
    numbers = syscalls.NUMBERS[machine]
    tried, allowed = (
        syscalls.refused(seccomp_profile()),
        syscalls.answers(seccomp_profile(), machine),
    )
    twofold = {tried[label].name for label, each in allowed.items() if len(each) > 1}
    assert twofold == {name for name, number in numbers.items() if number > numbers["faccessat2"]}
    assert allowed["clone3"] == {"ENOSYS"}
    assert allowed["ptrace"] == {"EPERM"}


@MACHINES
def test_what_a_kernel_refuses_by_itself_is_refused_in_another_way(machine: str) -> None:
    """Mount is not among them: it fails for its words before anybody asks for a right."""
    other = {
        label for label, each in syscalls.answers(seccomp_profile(), machine).items() if "EACCES" in each
    }
    assert len(other) == 23
    assert {
        "fsopen",
        "fsmount",
        "fspick",
        "move_mount",
        "bpf",
        "io_uring_setup",
        "pivot_root",
        "reboot",
    } <= other


@pytest.mark.parametrize(("machine", "audit"), AUDIT.items())
def test_the_numbers_are_the_librarys(machine: str, audit: int) -> None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("there is no libseccomp")
    resolve = library.seccomp_syscall_resolve_name_arch
    for name, number in syscalls.NUMBERS[machine].items():
        said = resolve(ctypes.c_uint32(audit), name.encode())
        assert said == number or (number > NEWER and said < 0), name


def test_a_profile_that_lets_one_call_more_through_differs_in_that_call_alone() -> None:
    for name in ("fsopen", "ptrace", "mmap", "clone3"):
        before, after = (
            {
                each: [rule for rule in json.loads(profile)["syscalls"] if each in rule["names"]]
                for each in syscalls.NUMBERS["x86_64"]
            }
            for profile in (seccomp_profile(), letting_through(name))
        )
        changed = {
            each
            for each in before
            if [_rule(rule) for rule in before[each]] != [_rule(rule) for rule in after[each]]
        }
        assert changed == {name}


def _rule(rule: dict[str, object]) -> tuple[object, ...]:
    return rule["action"], rule.get("args"), rule.get("errnoRet")


def test_every_error_that_the_profile_gives_has_a_name() -> None:
    given = {rule["errnoRet"] for rule in PROFILE["syscalls"] if "errnoRet" in rule}
    assert given == {errno.EACCES, errno.ENOTSUP, errno.ENOSYS}
