"""The system calls a runner may still make, as a filter that the kernel enforces on all its threads (S2).

An allow list: everything else answers EPERM, so a hostile guest that took over its runner finds no files, no sockets, no
processes, no new code. The rules with arguments: no mapping becomes executable (the guest's code is there before), none is
shared or grows by itself (RLIMIT_DATA, which bounds a runner's memory, does not count those), and no advice of the privileged
kind. A call under another architecture's numbers kills the process.

Pure but for `install`: the program is bytes, the same for every runner, and their SHA-256 is the provider's policy.
"""

import ctypes
import errno
import hashlib
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _DENY = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_NUMBER, _ARCH = 0, 4
_THIRD_ARGUMENT, _FOURTH_ARGUMENT = 16 + 2 * 8, 16 + 3 * 8  # low halves: both machines are little-endian
_X32_BIT: Final = 0x40000000
_PROT_EXEC: Final = 4
_UNCOUNTED_MAPS: Final = 0x01 | 0x100  # MAP_SHARED (and with it MAP_SHARED_VALIDATE), MAP_GROWSDOWN
_MADV_HWPOISON: Final = 100  # from here on, advice that takes a page from the whole machine

_PR_SET_NO_NEW_PRIVS: Final = 38
_SET_MODE_FILTER: Final = 1
_FLAG_TSYNC: Final = 1

_instruction: Final = struct.Struct("<HBBI")
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Machine:
    """One architecture: the kernel's number for it, and its numbers for the calls this module names."""

    arch: int
    calls: Mapping[str, int]


MACHINES: Final[Mapping[str, Machine]] = {
    "x86_64": Machine(
        0xC000003E,
        {
            "read": 0, "write": 1, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13,
            "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24, "mremap": 25, "madvise": 28, "nanosleep": 35,
            "getpid": 39, "socket": 41, "connect": 42, "sendto": 44, "recvfrom": 45, "clone": 56, "execve": 59, "exit": 60,
            "kill": 62, "gettimeofday": 96, "ptrace": 101, "sigaltstack": 131, "prctl": 157, "gettid": 186, "futex": 202,
            "restart_syscall": 219, "clock_gettime": 228, "clock_nanosleep": 230, "exit_group": 231, "tgkill": 234,
            "openat": 257, "unshare": 272, "prlimit64": 302, "process_vm_readv": 310, "process_vm_writev": 311,
            "seccomp": 317, "getrandom": 318, "memfd_create": 319, "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435,
        },
    ),
    "aarch64": Machine(
        0xC00000B7,
        {
            "read": 63, "write": 64, "mmap": 222, "mprotect": 226, "munmap": 215, "brk": 214, "rt_sigaction": 134,
            "rt_sigprocmask": 135, "rt_sigreturn": 139, "sched_yield": 124, "mremap": 216, "madvise": 233, "nanosleep": 101,
            "getpid": 172, "socket": 198, "connect": 203, "sendto": 206, "recvfrom": 207, "clone": 220, "execve": 221,
            "exit": 93, "kill": 129, "gettimeofday": 169, "ptrace": 117, "sigaltstack": 132, "prctl": 167, "gettid": 178,
            "futex": 98, "restart_syscall": 128, "clock_gettime": 113, "clock_nanosleep": 115, "exit_group": 94,
            "tgkill": 131, "openat": 56, "unshare": 97, "prlimit64": 261, "process_vm_readv": 270, "process_vm_writev": 271,
            "seccomp": 277, "getrandom": 278, "memfd_create": 279, "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435,
        },
    ),
}  # fmt: skip

ALLOWED: Final = (
    "recvfrom", "sendto", "read", "write",  # its one socket, and what is on /dev/null
    "futex", "clock_nanosleep", "nanosleep", "clock_gettime", "gettimeofday", "sched_yield", "restart_syscall",
    "munmap", "mremap", "brk",
    "rt_sigreturn", "rt_sigprocmask", "rt_sigaction", "sigaltstack",  # how the engine catches a guest's traps
    "getrandom", "getpid", "gettid",
    "exit", "exit_group",
)  # fmt: skip
"""Allowed with any arguments. `mmap`, `mprotect` and `madvise` have rules of their own."""


class SeccompMissing(Exception):
    """This kernel or machine cannot have the filter."""


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return _instruction.pack(code, yes, no, value)


def program(machine: str) -> bytes:
    """The filter for `machine` (a key of MACHINES). Raises SeccompMissing for any other."""
    if machine not in MACHINES:
        raise SeccompMissing(machine)
    known = MACHINES[machine]
    steps = [_step(_LD, _ARCH), _step(_JEQ, known.arch, yes=1), _step(_RET, _KILL), _step(_LD, _NUMBER)]
    if machine == "x86_64":
        steps += [_step(_JGE, _X32_BIT, no=1), _step(_RET, _DENY)]
    for name in ALLOWED:
        steps += [_step(_JEQ, known.calls[name], no=1), _step(_RET, _ALLOW)]
    executable, uncounted = (_THIRD_ARGUMENT, _JSET, _PROT_EXEC), (_FOURTH_ARGUMENT, _JSET, _UNCOUNTED_MAPS)
    steps += _unless(known.calls["mmap"], executable, uncounted)
    steps += _unless(known.calls["mprotect"], executable)
    steps += _unless(known.calls["madvise"], (_THIRD_ARGUMENT, _JGE, _MADV_HWPOISON))
    return b"".join([*steps, _step(_RET, _DENY)])


def _unless(number: int, *tests: tuple[int, int, int]) -> list[bytes]:
    """Allow one call unless an argument passes a test: (where it is, how it is compared, with what)."""
    denials = [
        step
        for place, test, value in tests
        for step in (_step(_LD, place), _step(test, value, no=1), _step(_RET, _DENY))
    ]
    return [_step(_JEQ, number, no=len(denials) + 1), *denials, _step(_RET, _ALLOW)]


def policy(machine: str) -> str:
    """Content address of the filter."""
    return f"seccomp:sha256:{hashlib.sha256(program(machine)).hexdigest()}"


def this_machine() -> str:
    """The key of MACHINES for this process. Raises SeccompMissing."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in MACHINES or sys.byteorder != "little":
        raise SeccompMissing(f"{sys.platform} {machine}")
    return machine


class _Program(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def install(machine: str) -> None:
    """Put all threads of this process under the filter, for good. Raises SeccompMissing."""
    code = program(machine)
    whole = _Program(len(code) // _instruction.size, code)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0):
        raise SeccompMissing("no_new_privs")
    number = MACHINES[machine].calls["seccomp"]
    if _libc.syscall(number, _SET_MODE_FILTER, _FLAG_TSYNC, ctypes.byref(whole)):
        raise SeccompMissing(errno.errorcode.get(ctypes.get_errno(), "thread"))


def probes(machine: str) -> dict[str, str]:
    """Try what the filter forbids, and say how each attempt ended: the errno's name, or `allowed`.

    Every attempt is one that would succeed, or fail with another errno than EPERM, in an unfiltered process of any user, and
    does no harm there. So EPERM says that the filter is in force.
    """
    calls, own = MACHINES[machine].calls, _libc.getpid()
    page = 4096
    attempts: dict[str, tuple[object, ...]] = {
        "openat": (-100, b"/dev/null", 0, 0),
        "socket": (1, 1, 0),
        "connect": (-1, None, 0),
        "execve": (b"", None, None),
        "ptrace": (16, 0, None, None),
        "process_vm_readv": (own, None, 0, None, 0, 0),
        "process_vm_writev": (own, None, 0, None, 0, 0),
        "pidfd_open": (own, 0),
        "kill": (own, 0),
        "tgkill": (own, own, 0),
        "clone": (0x00010000, None, None, None, None),
        "clone3": (None, 0),
        "unshare": (0,),
        "memfd_create": (None, 0),
        "io_uring_setup": (0, None),
        "prctl": (3, 0, 0, 0, 0),
        "prlimit64": (0, 7, None, None),
        "mmap": (None, page, 1 | _PROT_EXEC, 0x22, -1, 0),
        "mprotect": (None, 0, _PROT_EXEC),
        "mmap_shared": (None, page, 1, 0x21, -1, 0),
        "mmap_growing": (None, page, 1, 0x122, -1, 0),
    }
    return {name: _attempt(calls[call_of(name)], arguments) for name, arguments in attempts.items()}


def call_of(probe: str) -> str:
    """The call that a probe tries."""
    return "mmap" if probe.startswith("mmap_") else probe


PROBES: Final = (
    "openat", "socket", "connect", "execve", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_open", "kill", "tgkill",
    "clone", "clone3", "unshare", "memfd_create", "io_uring_setup", "prctl", "prlimit64", "mmap", "mprotect",
    "mmap_shared", "mmap_growing",
)  # fmt: skip
"""The names of all probes; each must answer EPERM. `mmap` and `mprotect` ask for executable memory, the last two for
memory that no limit counts."""


def _attempt(number: int, arguments: tuple[object, ...]) -> str:
    widened = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    if _libc.syscall(ctypes.c_long(number), *widened) >= 0:
        return "allowed"
    return errno.errorcode.get(ctypes.get_errno(), "unknown")
