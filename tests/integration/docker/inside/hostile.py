"""Runs inside a sandbox as the guest: tries everything it can on the process with the number in argv[1]; prints what it got.

Each line is `attempt: outcome`; an outcome that does not begin with `refused` is a hole. Standard library only.
"""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

TARGET = int(sys.argv[1])
LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_OPEN, PIDFD_GETFD, PROCESS_VM_READV = 434, 438, 310 if os.uname().machine == "x86_64" else 270


def system(*words: int | None) -> int:
    result = LIBC.syscall(*(ctypes.c_long(word or 0) for word in words))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


def first(attempt: Callable[[int], object]) -> object:
    """What `attempt` gives for the first descriptor number where it is not refused."""
    refusal = OSError(2, "none")
    for number in range(64):
        try:
            return attempt(number)
        except OSError as error:
            refusal = error
    raise refusal


def open_descriptor(flags: int) -> object:
    """One of the target's descriptors by its number, whether or not they can be listed.

    /dev/null is worth nothing, and neither is the other end of our own output, which gVisor lets its owner open.
    """
    own = {(os.fstat(number).st_dev, os.fstat(number).st_ino) for number in (1, 2)}

    def attempt(number: int) -> object:
        found = os.open(f"/proc/{TARGET}/fd/{number}", flags | os.O_NONBLOCK)
        about = os.fstat(found)
        if about.st_rdev == os.makedev(1, 3) or (about.st_dev, about.st_ino) in own:
            raise OSError(6, "worthless")
        return found

    return first(attempt)


def descriptor_to_write() -> object:
    return open_descriptor(os.O_WRONLY)


def descriptor_to_read() -> object:
    return open_descriptor(os.O_RDONLY)


def memory() -> object:
    return os.open(f"/proc/{TARGET}/mem", os.O_RDWR)


def memory_map() -> object:
    content = Path(f"/proc/{TARGET}/maps").read_text()
    if not content:
        raise PermissionError(13, "empty")
    return len(content)


def read_memory() -> object:
    space = ctypes.create_string_buffer(8)
    vector = (ctypes.c_ulong * 2)(ctypes.addressof(space), 8)
    return system(PROCESS_VM_READV, TARGET, ctypes.addressof(vector), 1, ctypes.addressof(vector), 1, 0)


def take_descriptor() -> object:
    pidfd = system(PIDFD_OPEN, TARGET, 0)
    return first(lambda number: system(PIDFD_GETFD, pidfd, number, 0))


def limits() -> object:
    resource.prlimit(TARGET, resource.RLIMIT_NOFILE, (3, 3))
    return "set"


def stop() -> object:
    os.kill(TARGET, signal.SIGSTOP)
    return "sent"


def kill() -> object:
    os.kill(TARGET, signal.SIGKILL)
    return "sent"


def hang_up() -> object:
    os.kill(TARGET, signal.SIGHUP)
    return "sent"


def trace() -> object:
    attach, seize = 16, 0x4206
    try:
        return system(101 if os.uname().machine == "x86_64" else 117, seize, TARGET, 0, 0)
    except OSError:
        return system(101 if os.uname().machine == "x86_64" else 117, attach, TARGET, 0, 0)


def priority() -> object:
    os.setpriority(os.PRIO_PROCESS, TARGET, 19)
    return "set"


def become_it() -> object:
    agent = os.getuid() - 1  # the owner of /proc/1 is another while the agent makes files of the guest's
    os.setresuid(agent, agent, agent)
    return os.getresuid()


def become_root() -> object:
    os.setuid(0)
    return os.getresuid()


def working_directory() -> object:
    return str(Path(f"/proc/{TARGET}/cwd").readlink())


ATTEMPTS = [
    descriptor_to_write,
    descriptor_to_read,
    memory,
    memory_map,
    working_directory,
    read_memory,
    take_descriptor,
    limits,
    stop,
    kill,
    hang_up,
    trace,
    priority,
    become_it,
    become_root,
]

for attempt in ATTEMPTS:
    try:
        print(f"{attempt.__name__}: {attempt()!r}", flush=True)
    except OSError as failure:
        print(f"{attempt.__name__}: refused {failure.errno}", flush=True)
