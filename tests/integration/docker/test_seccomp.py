"""deploy/seccomp.json both ways under runc: what it does not name is refused from inside, and ordinary programs do not notice.

gVisor ignores docker's profile and answers system calls itself; the programs must run there as well.
"""

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest

from providers.docker import syscalls
from providers.docker.recipe import seccomp_profile
from tests.integration.docker.conftest import Start
from tests.integration.docker.test_two_uids import steps
from tests.support.docker import ROOT, Daemon, Sandbox
from tests.support.seccomp import UNCONFINED, found_inside, is_noticed, letting_through

INSIDE = Path(__file__).parent / "inside"
PROFILE = json.loads((ROOT / "deploy" / "seccomp.json").read_text())
REFUSED = {"EPERM", "EACCES", "ENOSYS", "ENOTSUP"}

SAMPLE = (
    *("ptrace", "io_uring_setup", "perf_event_open", "fsopen", "mount_setattr", "bpf", "setns"),
    *("clone3", "clone", "socket", "mmap", "fork"),
)

EXEMPT = {"335": "SIGILL", "336": "ENXIO"}
"""uretprobe and uprobe on x86_64: kernels from 6.14 on let them past every filter and answer so, unless they made the call."""


def named() -> set[str]:
    """Those that are let through, with any words or some."""
    allowed = [rule for rule in PROFILE["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"]
    return {name for rule in allowed for name in rule["names"]} | {"clone3"}


def numbers(names: set[str]) -> set[int]:
    """This architecture's numbers, by the library that runc asks; what the architecture does not have is negative there."""
    library = ctypes.CDLL("libseccomp.so.2")
    return {number for name in names if (number := library.seccomp_syscall_resolve_name(name.encode())) >= 0}


@pytest.fixture(scope="module")
def answers(docker: Daemon, image: str) -> dict[str, Any]:
    """What the probe was told inside a container with the profile."""
    sandbox = Sandbox.start(docker, image, "runc")
    try:
        listed = json.dumps(sorted(numbers(named())))
        files = {"probe.py": (INSIDE / "seccomp_probe.py").read_bytes()}
        found: dict[str, Any] = json.loads(steps(sandbox, f"python3 probe.py '{listed}'", files=files))
        return found
    finally:
        sandbox.destroy()


@pytest.mark.component("docker")
class TestRefused:
    def test_every_call_that_is_not_named(self, answers: dict[str, Any]) -> None:
        assert len(answers["unlisted"]) > 250
        let_through = {number: said for number, said in answers["unlisted"].items() if said not in REFUSED}
        assert let_through.items() <= EXEMPT.items()

    def test_every_new_namespace(self, answers: dict[str, Any]) -> None:
        assert set(answers["clone"].values()) == {"EPERM"}
        assert answers["clone3"] == "ENOSYS"

    def test_every_socket_family_but_three(self, answers: dict[str, Any]) -> None:
        let_through = {int(family) for family, said in answers["socket"].items() if said not in REFUSED}
        assert let_through == {1, 2, 10}
        assert {int(family) for family, said in answers["socketpair"].items() if said == "done"} == {1}

    def test_devices_and_nothing_else_by_mknod(self, answers: dict[str, Any]) -> None:
        assert (answers["fifo"], answers["device"]) == ("done", "EPERM")

    def test_calls_by_another_abi(self, answers: dict[str, Any]) -> None:
        assert answers["foreign"].get("i386", "SIGSYS") in {"SIGSYS", "SIGSEGV", *REFUSED}
        assert answers["foreign"].get("x32", "SIGSYS") in {"SIGSYS", *REFUSED}


@pytest.mark.component("docker")
def test_without_the_filter_the_kernel_answers_every_call_in_another_way(docker: Daemon, image: str) -> None:
    """So whichever of them a filter lets through is noticed at the start, but for those that this kernel does not have."""
    found = found_inside(docker, image, UNCONFINED)
    wanted = syscalls.answers(seccomp_profile(), found["machine"])
    assert found["refused"].keys() == wanted.keys()
    alike = {label for label, said in found["refused"].items() if said in wanted[label]}
    assert {found["refused"][label] for label in alike} <= {"ENOSYS"}, alike
    assert "clone3" not in alike


@pytest.mark.component("docker")
def test_under_the_filter_every_answer_is_the_filters(docker: Daemon, image: str) -> None:
    assert not is_noticed(found_inside(docker, image, json.dumps(PROFILE)))


@pytest.mark.component("docker")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_profile_that_lets_one_call_more_through_is_noticed(docker: Daemon, image: str, name: str) -> None:
    """Some of each kind: each error, by words, refused by kernels too, newer than the profile. All of them: tests/soak."""
    assert is_noticed(found_inside(docker, image, letting_through(name)))


@pytest.mark.parametrize(("language", "name"), [("python", "suite.py"), ("javascript", "suite.js")])
def test_ordinary_programs_run(start: Start, language: str, name: str) -> None:
    sandbox = start(language)
    sandbox.receive()
    sandbox.send({"t": "run", "language": language}, (INSIDE / name).read_bytes())
    seen = sandbox.until("result")
    said = b"".join(body for header, body in seen if header["t"] == "out").decode()
    assert (seen[-1][0], said) == ({"t": "result", "exit": 0}, "ok\n")


def test_it_denies_by_default_and_only_allows() -> None:
    assert (PROFILE["defaultAction"], PROFILE["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 1)
    other = [rule for rule in PROFILE["syscalls"] if rule["action"] != "SCMP_ACT_ALLOW"]
    assert {rule["action"] for rule in other} == {"SCMP_ACT_ERRNO"}


def test_no_name_is_allowed_twice_but_by_its_arguments() -> None:
    free = [name for rule in PROFILE["syscalls"] if "args" not in rule for name in rule["names"]]
    assert len(free) == len(set(free))
    bound = {name for rule in PROFILE["syscalls"] if "args" in rule for name in rule["names"]}
    assert bound == {"clone", "mmap", "socket", "socketpair", "mknod", "mknodat"}
    assert not bound & set(free)


DANGEROUS = """ptrace bpf io_uring_setup io_uring_enter keyctl add_key request_key userfaultfd mount umount2 unshare setns
pivot_root chroot perf_event_open process_vm_readv process_vm_writev pidfd_open pidfd_getfd pidfd_send_signal kexec_load
init_module finit_module delete_module reboot swapon open_by_handle_at name_to_handle_at personality fsopen fsmount
move_mount memfd_create memfd_secret mq_open shmget msgget semget settimeofday clock_settime adjtimex syslog acct quotactl
modify_ldt iopl ioperm vmsplice splice tee seccomp fanotify_init kcmp lookup_dcookie mbind migrate_pages vhangup"""


def test_the_usual_ways_out_are_not_named() -> None:
    assert not set(DANGEROUS.split()) & named()
