"""Runs inside a sandbox as a guest would, and says what it finds and what it is let do. Output: one JSON object.

The service never imports it: smoke.py sends this text as a Python snippet, with lines in front that set FILL, the places to
fill, and TRIED, the calls that the filter refuses (syscalls.tried). It decides nothing, and all that it tries is harmless
where it succeeds. It needs Debian's Python and nothing else.
"""
# ruff: noqa: PTH101, PTH108, PTH116, PTH123, PTH208, S108  # the plainest calls are tried, in a /tmp of its own

import ctypes
import errno
import json
import os
import platform
import pwd
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
PLACES = ("/workspace", "/tmp", "/dev/shm")
FILL: tuple[str, ...] = globals().get("FILL", ())
TRIED: dict[str, list[int | None]] = globals().get("TRIED", {})

# Number by name, on x86_64 and aarch64, and words with which each would do little if it were let through.
CALLS: dict[str, tuple[int, int, tuple[bytes | int, ...]]] = {
    "mount": (165, 40, (b"none", b"/tmp", b"tmpfs", 0, 0)),
    "umount": (166, 39, (b"/proc", 0)),
    "pivot_root": (155, 41, (b"/tmp", b"/tmp")),
    "chroot": (161, 51, (b"/tmp",)),
    "setns": (308, 268, (-1, 0)),
    "ptrace": (101, 117, (16, 1, 0, 0)),
    "process_vm_readv": (310, 270, (1, 0, 0, 0, 0, 0)),
    "pidfd_open": (434, 434, (1, 0)),
    "bpf": (321, 280, (0, 0, 0)),
    "io_uring_setup": (425, 425, (1, 0)),
    "userfaultfd": (323, 282, (0,)),
    "perf_event_open": (298, 241, (0, 0, -1, -1, 0)),
    "add_key": (248, 217, (b"user", b"x", b"x", 1, -3)),
    "keyctl": (250, 219, (0, -3, 1)),
    "kexec_load": (246, 104, (0, 0, 0, 0)),
    "init_module": (175, 105, (0, 0, b"")),
    "open_by_handle_at": (304, 265, (-100, 0, 0)),
    "swapon": (167, 224, (b"/tmp/x", 0)),
    "reboot": (169, 142, (0, 0, 0, 0)),
    "sethostname": (170, 161, (b"x", 1)),
    "clock_settime": (227, 112, (0, 0)),
    "quotactl": (179, 60, (0, 0, 0, 0)),
    "syslog": (103, 116, (10, 0, 0)),
    "personality": (135, 92, (0x0040000,)),
}
NAMESPACES = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "pid": 0x20000000, "net": 0x40000000}
NAMESPACES |= {
    "cgroup": 0x2000000,
    "user": 0x10000000,
}  # that one last: it would give the right to the others
UNSHARE = (272, 97)
ARM = platform.machine() != "x86_64"


def attempt(work: Callable[[], object]) -> str:
    """The name of the error, or `done`."""
    try:
        work()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "done"


def call(number: int, *words: bytes | int) -> None:
    if (
        LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(w) if isinstance(w, int) else w for w in words))
        < 0
    ):
        raise OSError(ctypes.get_errno(), "")


def in_child(work: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What `work` says in a process of its own; nothing when that was killed for it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, json.dumps(work()).encode())
        os._exit(0)
    os.close(write)
    said = b""
    while part := os.read(read, 4096):
        said += part
    os.close(read)
    os.waitpid(pid, 0)
    return dict(json.loads(said)) if said else {}


def calls() -> dict[str, str]:
    return {
        name: attempt(partial(call, arm if ARM else x86, *words)) for name, (x86, arm, words) in CALLS.items()
    }


def refused() -> dict[str, str]:
    """What each of TRIED is answered; without those that this machine does not have."""
    me, found = os.getpid(), {}
    for label, (x86, arm, *words) in TRIED.items():
        number = arm if ARM else x86
        if number is not None:
            found[label] = attempt(
                partial(call, number, *(word or 0 for word in words), *[-1] * (6 - len(words)))
            )
        if os.getpid() != me:
            os._exit(0)  # a fork was let through
    return found


def namespaces() -> dict[str, str]:
    return {name: attempt(partial(call, UNSHARE[ARM], flag)) for name, flag in NAMESPACES.items()}


def rights() -> dict[str, str]:
    lines = (line.partition(":") for line in Path("/proc/self/status").read_text().splitlines())
    status = {name: " ".join(value.split()) for name, _, value in lines}
    return {
        name: status.get(name, "")
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp")
    }


def writable() -> list[str]:
    """The folders near the root, and the usual places, in which a file can be made."""
    near = [f"/{name}" for name in os.listdir("/")]
    usual = (
        "/",
        "/usr/lib/plimsoll",
        "/usr/local",
        "/usr/bin",
        "/var/tmp",
        "/var/lib",
        "/run/lock",
        "/run/shm",
    )
    kernel = ("/dev/mqueue", "/dev/shm", "/sys/fs/cgroup", "/proc/self", "/proc/sys/kernel")
    return sorted(
        {folder for folder in (*near, *usual, *kernel) if attempt(partial(make_in, folder)) == "done"}
    )


def make_in(folder: str) -> None:
    path = f"{folder}/.probe"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(path)


def size(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def fill(folder: str) -> str:
    """With several files, so that no limit on one file is what ends it."""
    block, made = bytes(1 << 20), []
    try:
        for number in range(4):
            made.append(f"{folder}/.fill{number}")
            with open(made[-1], "wb", buffering=0) as file:
                while file.write(block):
                    pass
    except OSError as error:
        if error.errno == errno.EFBIG:
            return fill_on(folder, made)
        return errno.errorcode.get(error.errno or 0, "?")
    finally:
        for path in made:
            os.unlink(path)
    return "never full"


def fill_on(folder: str, made: list[str]) -> str:
    """One file came to a limit of its own: what the place says to another."""
    made.append(f"{folder}/.more")
    return attempt(lambda: Path(made[-1]).write_bytes(bytes(1 << 20)))


def execute(folder: str) -> str:
    path = f"{folder}/.true"
    try:
        shutil.copyfile("/bin/true", path)
        os.chmod(path, 0o700)
        return attempt(lambda: subprocess.run([path], check=False))  # noqa: S603  # our own copy
    finally:
        os.unlink(path)


def connect(family: int, address: tuple[str, int]) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(2)
        one.connect(address)


def send(kind: int, protocol: int, address: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET, kind, protocol) as one:
        one.sendto(b"x" * 8, address)


def opened(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        file.read(1)


def network() -> dict[str, str]:
    return {
        "metadata": attempt(lambda: connect(socket.AF_INET, ("169.254.169.254", 80))),
        "tcp": attempt(lambda: connect(socket.AF_INET, ("192.0.2.1", 80))),
        "tcp6": attempt(lambda: connect(socket.AF_INET6, ("2001:db8::1", 80))),
        "udp": attempt(lambda: send(socket.SOCK_DGRAM, 0, ("192.0.2.1", 53))),
        "icmp": attempt(lambda: send(socket.SOCK_DGRAM, 1, ("192.0.2.1", 0))),
        "raw": attempt(lambda: send(socket.SOCK_RAW, 1, ("192.0.2.1", 0))),
        "vsock": attempt(lambda: socket.socket(40, socket.SOCK_STREAM).close()),
        "packet": attempt(lambda: socket.socket(17, socket.SOCK_RAW).close()),
        "names": attempt(lambda: socket.getaddrinfo("example.org", 80)),
    }


def first_process() -> dict[str, str]:
    return {
        "signal": attempt(lambda: os.kill(1, 0)),
        "memory": attempt(lambda: opened("/proc/1/mem")),
        "descriptor": attempt(lambda: opened("/proc/1/fd/10")),
        "root": attempt(lambda: os.listdir("/proc/1/root")),
    }


def open_to_write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY))


def settings() -> dict[str, str]:
    """The kernel's own, opened for writing and left as they are."""
    paths = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger")
    return {path: attempt(partial(open_to_write, path)) for path in paths}


def owners() -> list[int]:
    """Of every process that can be seen."""
    seen = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            seen.add(os.stat(f"/proc/{name}").st_uid)
    return sorted(seen)


if __name__ == "__main__":
    print(  # noqa: T201  # this is how it answers
        json.dumps(
            {
                "kernel": platform.release(),
                "user": pwd.getpwuid(os.getuid()).pw_name,
                "ids": sorted({*os.getresuid(), *os.getresgid(), *os.getgroups()}),
                "rights": rights(),
                "environment": dict(os.environ),
                "writable": writable(),
                "sizes": {place: size(place) for place in PLACES},
                "full": {place: fill(place) for place in FILL},
                "execute": {place: execute(place) for place in PLACES[:2]},
                "interfaces": [
                    line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]
                ],
                "network": network(),
                "resolver": Path("/etc/resolv.conf").read_text().split("\n"),
                "calls": in_child(calls),
                "machine": platform.machine(),
                "refused": in_child(refused),
                "namespaces": in_child(namespaces),
                "device": attempt(lambda: os.mknod("/tmp/.device", stat.S_IFCHR | 0o600, os.makedev(1, 3))),
                "first_process": first_process(),
                "settings": settings(),
                "owners": owners(),
            }
        )
    )
