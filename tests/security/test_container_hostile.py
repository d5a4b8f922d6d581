"""Hostile programs through the real service, under runc and under gVisor: at most their own result is affected.

After every program its container is surely gone, and the next run finds nothing of it; at the end the service's processes are
no larger than they were. No program here sends anything to an address outside of its sandbox, even if it were let.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pytest

import plimsoll
from plimsoll.client import errors
from plimsoll.client.results import ProjectRun, Run
from plimsoll.contract.results import Outcome
from tests.support.docker import Daemon
from tests.support.runs import children, rss_mb
from tests.support.service import Running, environment, started

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

MEMORY_MB: Final = 192
LATE_S: Final = 15.0
MANY_TCP_PAGES: Final = 160_000
"""640 MB of what all TCP of the machine shares: one sandbox may hold less."""


@dataclass
class Wall:
    """A served runtime."""

    runtime: str
    running: Running
    client: plimsoll.Client
    docker: Daemon
    before: dict[int, float] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def sizes(self) -> dict[int, float]:
        pid = self.running.process.pid
        return {each: rss_mb(each) for each in (pid, *children(pid))}

    @property
    def is_gvisor(self) -> bool:
        return self.runtime == "runsc"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("runc", marks=pytest.mark.component("docker")),
        pytest.param("runsc", marks=pytest.mark.component("runsc")),
    ],
)
def wall(
    request: pytest.FixtureRequest, docker: Daemon, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Wall]:
    place = tmp_path_factory.mktemp("hostile")
    environ = environment(
        place / "data",
        SANDBOX_PROVIDER=f"docker@{request.param}",
        **docker.settings(image),
        SANDBOX_MEMORY_MB=str(MEMORY_MB),
        SANDBOX_RATE_PER_MIN="0",
        PLIMSOLL_INSECURE="1",
    )
    with started(environ, place / "log", start_s=240) as running:
        with plimsoll.Client(running.url, "", deadline=120) as client:
            made = Wall(str(request.param), running, client, docker)
            assert clean(made) == CLEAN
            made.before = made.sizes()
            yield made
            sizes = made.sizes()
            until(lambda: not is_known(made, *made.ran), 180)
        assert sizes.keys() == made.before.keys()  # none was started anew
        assert all(sizes[pid] - made.before[pid] < 100 for pid in sizes), (made.before, sizes)
        assert not [line for line in running.lines() if line.get("level") == "error"]


LOOK: Final = """
import json, os
rows = {}
for name in filter(str.isdigit, os.listdir("/proc")):
    try: rows[name] = open(f"/proc/{name}/cmdline").read().split("\\0")[0]
    except OSError: pass
own = str(os.getpid())
print(json.dumps({
    "others": sorted(row for name, row in rows.items() if name not in ("1", own)),
    "files": sorted(f"{place}/{name}"
        for place in ("/workspace", "/tmp", "/dev/shm", "/dev/mqueue") if os.path.isdir(place) for name in os.listdir(place)),
    "sockets": sorted(line.split()[-1] for line in open("/proc/net/unix").readlines()[1:] if "@" in line),
    "listening": len(open("/proc/net/tcp").readlines()) - 1,
}))
"""
CLEAN: Final = {"others": [], "files": ["/workspace/main.py"], "sockets": [], "listening": 0}


def clean(wall: Wall) -> Any:
    """What the next run finds."""
    run = wall.client.run_python(LOOK, timeout=60)
    assert run.ok, run.stderr
    return json.loads(run.stdout)


def processes(instance: str) -> list[str]:
    """All that run in its control groups, whatever the daemon says of it."""
    name = instance.partition(":")[2]
    groups = {*Path("/sys/fs/cgroup").glob(f"*/*/{name}"), *Path("/sys/fs/cgroup").glob(f"*/*{name}*")}
    found: list[str] = []
    for group in groups:
        with suppress(OSError):  # it goes
            found += (group / "cgroup.procs").read_text().split()
    return found


def is_known(wall: Wall, *instances: str) -> bool:
    """Whether the daemon has any of them."""
    known = {each["Id"] for each in wall.docker.call("GET", "/containers/json?all=1")}
    return any(instance.partition(":")[2] in known for instance in instances)


def until(holds: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def after(wall: Wall, run: Run | ProjectRun) -> None:
    until(lambda: not processes(run.instance), 30)
    assert clean(wall) == CLEAN


def forgotten(wall: Wall, run: Run, name: str) -> None:
    """To be looked at in the end. A daemon may take minutes to forget a gVisor that died of a bomb, with nothing in it."""
    if not (wall.is_gvisor and "bomb" in name):
        wall.ran.append(run.instance)


Expect = Callable[[Run, Wall], object]
PYTHON: Final[dict[str, tuple[str, Expect]]] = {}
JAVASCRIPT: Final[dict[str, tuple[str, Expect]]] = {}


def ends(*codes: int, **flags: bool) -> Expect:
    """By itself with one of these codes, or as the flags say."""

    def holds(run: Run, _: Wall) -> None:
        told = {name: getattr(run, name) for name in ("timed_out", "oom_killed", "cancelled")}
        assert run.exit_code in codes, (run.exit_code, run.stderr[-500:])
        assert told == {name: flags.get(name, False) for name in told}

    return holds


def is_bounded(run: Run, _: Wall) -> None:
    """However it ends, it is one of the ways there are."""
    assert run.exit_code in {0, 1, 2, 124, 137, 153} | {128 + number for number in range(1, 32)}
    assert run.timed_out == (run.exit_code == 124)


def prints(expected: bytes) -> Expect:
    def holds(run: Run, _: Wall) -> None:
        assert (run.exit_code, run.stdout) == (0, expected), run.stderr[-500:]

    return holds


def refused_but(*let: str, gvisor: tuple[str, ...] = ()) -> Expect:
    """It prints what each attempt came to; only these may be `done`."""

    def holds(run: Run, wall: Wall) -> None:
        assert run.exit_code == 0, run.stderr[-800:]
        said = json.loads(run.stdout)
        done = {name for name, came_to in said.items() if came_to == "done"}
        assert len(said) > len(done)
        assert done - set(let) <= (set(gvisor) if wall.is_gvisor else set()), done

    return holds


ATTEMPT: Final = """
import ctypes, errno, json, os, signal, socket, stat, sys, resource
LIBC = ctypes.CDLL(None, use_errno=True)
said = {}
def attempt(name, work):
    try: work(); said[str(name)] = "done"
    except OSError as error: said[str(name)] = errno.errorcode.get(error.errno or 0, type(error).__name__)
    except Exception as error: said[str(name)] = type(error).__name__
def call(number, *words):
    if LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(w) if isinstance(w, int) else w for w in words)) < 0:
        raise OSError(ctypes.get_errno(), "")
def write(path, text):
    with open(path, "wb", buffering=0) as file: file.write(text)
def read(path):
    with open(path, "rb", buffering=0) as file:
        if not file.read(16): raise OSError(errno.ENODATA, "nothing")
"""
SAY: Final = "\nprint(json.dumps(said))\n"

# --- the network ----------------------------------------------------------------------------------------------------------

PYTHON["every socket family"] = (
    ATTEMPT
    + """
for family in range(46):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        attempt(f"{family} {kind}", lambda: socket.socket(family, kind).close())
let = {name.split()[0] for name, came_to in said.items() if came_to == "done"}
said = {**dict.fromkeys(let, "done"), "none": "refused"}
"""
    + SAY,
    refused_but("1", "2", "10", gvisor=("16",)),  # netlink of gVisor's own kernel
)
PYTHON["every way out"] = (
    ATTEMPT
    + """
def route(family, *address):  # for a datagram socket the kernel only looks for a way, it sends nothing
    with socket.socket(family, socket.SOCK_DGRAM) as one: one.connect(address)
for name, address in {"metadata": "169.254.169.254", "outside": "192.0.2.1", "bridge": "172.17.0.1",
                      "broadcast": "255.255.255.255", "multicast": "224.0.0.1", "private": "10.0.0.1"}.items():
    attempt(name, lambda: route(socket.AF_INET, address, 53))
for name, address in {"outside6": "2001:db8::1", "metadata6": "fd00:ec2::254",
                      "link6": "fe80::1", "multicast6": "ff02::1"}.items():
    attempt(name, lambda: route(socket.AF_INET6, address, 53))
attempt("names", lambda: socket.getaddrinfo("example.invalid", 80))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("icmp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1).bind(("0.0.0.0", 0)))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, 1)))
attempt("docker", lambda: socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock"))
"""
    + SAY,
    refused_but(gvisor=("icmp",)),  # a socket of gVisor's own network, which has nobody in it
)


def are_filtered(run: Run, wall: Wall) -> None:
    said = json.loads(run.stdout)
    assert len(said) == 20
    if not wall.is_gvisor:  # there it is gVisor that knows none of them
        assert set(said.values()) == {"EPERM"}


PYTHON["protocols that the kernel would load a module for"] = (
    ATTEMPT
    + """
for words in ((1, 132), (5, 132), (6, 33), (6, 0), (2, 115), (1, 262), (2, 136), (4, 0), (2, 1), (2, 58)):
    for family in (2, 10):
        attempt(f"{words[1]} {words[0]} {family}", lambda: socket.socket(family, *words))
"""
    + SAY,
    are_filtered,
)
PYTHON["its own loopback"] = (
    """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.sendall(b"here"); print(server.accept()[0].recv(9))
""",
    prints(b"b'here'\n"),
)

# --- the kernel's files, devices and calls ----------------------------------------------------------------------------------

PYTHON["the kernel's files"] = (
    ATTEMPT
    + r"""
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
             "/proc/sys/net/ipv4/ip_forward", "/proc/sys/fs/pipe-user-pages-soft", "/proc/self/uid_map", "/proc/self/gid_map",
             "/proc/1/oom_score_adj", "/proc/1/mem", "/proc/1/clear_refs", "/sys/kernel/uevent_helper", "/sys/power/state",
             "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
             "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cgroup.procs",
             "/sys/fs/cgroup/memory/cgroup.procs", "/dev/mem", "/dev/kmsg", "/dev/port", "/dev/sda", "/dev/vda", "/dev/fuse",
             "/dev/kvm", "/dev/net/tun", "/dev/ptmx.x", "/dev/shm/../new", "/etc/passwd", "/usr/bin/python3",
             "/usr/lib/plimsoll/__main__.py", "/etc/ld.so.preload", "/srv/x", "/run/x", "/var/tmp/x", "/var/lib/x"):
    attempt("write " + path, lambda: write(path, b"1"))
attempt("score", lambda: write("/proc/self/oom_score_adj", b"-1000"))
for path in ("/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/timer_list", "/proc/1/environ", "/proc/1/maps",
             "/proc/1/mem", "/proc/1/fd/10", "/proc/1/root/etc/passwd", "/proc/1/cwd/x", "/proc/1/stack", "/dev/mem",
             "/dev/kmsg", "/sys/firmware/acpi", "/etc/shadow", "/sys/kernel/debug/x", "/proc/acpi/x", "/proc/scsi/x"):
    attempt("read " + path, lambda: read(path))
for name, made in {"null": (1, 3), "mem": (1, 1), "disk": (254, 0), "loop": (7, 0), "fuse": (10, 229)}.items():
    path = "/tmp/" + name
    attempt("device " + name, lambda: (os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*made)), write(path, b"x")))
for place in ("/tmp", "/workspace", "/dev/shm"):
    path = place + "/tool"
    write(path, open("/bin/true", "rb").read()); os.chmod(path, 0o6777)
    attempt("execute " + path, lambda: os.posix_spawn(path, [path], {}))
own = ("/proc", "/sys", "/tmp", "/workspace", "/dev")
found = [os.path.join(top, name) for top, _, names in os.walk("/") if not top.startswith(own) for name in names
         if os.lstat(os.path.join(top, name)).st_mode & 0o6000]
attempt("setuid", lambda: None if found else read("/nothing"))
"""
    + SAY,
    refused_but(
        gvisor=(
            "device null",  # a device of gVisor's own
            "read /proc/1/environ",  # empty of anything, and open in gVisor of 2022
            "read /proc/1/maps",
            "write /proc/1/oom_score_adj",  # gVisor keeps a number that nobody reads
            "write /proc/self/oom_score_adj",
            "score",
            *(f"execute {place}/tool" for place in ("/tmp", "/workspace", "/dev/shm")),
        )
    ),
)
CALLS: Final = {
    "mount": (165, (b"none", b"/tmp", b"tmpfs", 0, 0)),
    "bind": (165, (b"/", b"/tmp", b"", 4096, 0)),
    "pivot_root": (155, (b"/tmp", b"/tmp")),
    "chroot": (161, (b"/tmp",)),
    "fsopen": (430, (b"tmpfs", 0)),
    "open_tree": (428, (-100, b"/", 1)),
    "ptrace": (101, (16, 1, 0, 0)),
    "bpf": (321, (0, 0, 0)),
    "io_uring": (425, (8, b"\0" * 120)),
    "keyctl": (250, (0, -3, 1)),
    "add_key": (248, (b"user", b"x", b"x", 1, -3)),
    "request_key": (249, (b"user", b"x", 0, -3)),
    "userfaultfd": (323, (1,)),
    "perf": (298, (b"\0" * 128, 0, -1, -1, 0)),
    "pidfd_getfd": (438, (3, 0, 0)),
    "process_vm_readv": (310, (1, b"\0" * 16, 1, b"\0" * 16, 1, 0)),
    "process_vm_writev": (311, (1, b"\0" * 16, 1, b"\0" * 16, 1, 0)),
    "kcmp": (312, (1, 1, 0, 0, 0)),
    "open_by_handle": (304, (-100, b"\0" * 16, 0)),
    "clock_settime": (227, (0, b"\0" * 16)),
    "settimeofday": (164, (b"\0" * 16, 0)),
    "adjtimex": (159, (b"\1" + b"\0" * 250,)),
    "sethostname": (170, (b"x", 1)),
    "reboot": (169, (0, 0, 0, 0)),
    "swapon": (167, (b"/tmp/x", 0)),
    "init_module": (175, (b"", 0, b"")),
    "kexec": (246, (0, 0, 0, 0)),
    "acct": (163, (b"/tmp/x",)),
    "iopl": (172, (3,)),
    "modify_ldt": (154, (1, b"\0" * 16, 16)),
    "personality": (135, (0x0040000,)),
    "quotactl": (179, (0, b"/", 0, 0)),
    "nfsservctl": (180, (0, 0, 0)),
    "vm86": (166, (b"/proc", 0)),
    "syslog": (103, (10, 0, 0)),
    "setns": (308, (0, 0)),
    "unshare user": (272, (0x10000000,)),
    "unshare net": (272, (0x40000000,)),
    "unshare all": (272, (0x7E020000,)),
    "clone3": (435, (b"\0" * 88, 88)),
    "shmget": (29, (0, 1 << 20, 0o1600)),
    "semget": (64, (0, 100, 0o1600)),
    "msgget": (68, (0, 0o1600)),
    "mq_open": (240, (b"x", 0o102, 0o600, 0)),
    "memfd": (319, (b"x", 0)),
    "memfd_secret": (447, (0,)),
    "fanotify": (300, (0, 0)),
    "inotify": (294, (0,)),
    "seccomp listener": (317, (1, 8, b"\1\0" + b"\0" * 14)),
    "landlock": (444, (0, 0, 1)),
    "mlock": (151, (1,)),
    "sched_fifo": (144, (0, 1, b"\1\0\0\0")),
    "ioprio": (251, (1, 0, 1 << 13)),
    "migrate_pages": (256, (1, 8, b"\0" * 8, b"\0" * 8)),
    "lookup_dcookie": (212, (0, b"\0" * 8, 8)),
    "setuid root": (105, (0,)),
    "setresuid agent": (117, (None, None, None)),
    "setresgid agent": (119, (None, None, None)),
    "setgroups": (116, (1, b"\0" * 4)),
    "capset": (126, (b"\x22\x05\x08\x20" + b"\0" * 4, b"\xff" * 24)),
}
GVISORS_OWN: Final = (
    *(
        "bind",
        "chroot",
        "clone3",
        "inotify",
        "io_uring",
        "ioprio",
        "keyctl",
        "add_key",
        "memfd",
        "mlock",
        "mq_open",
        "msgget",
    ),
    *(
        "personality",
        "pidfd_getfd",
        "ptrace",
        "request_key",
        "sched_fifo",
        "semget",
        "setns",
        "shmget",
        "syslog",
        "mount",
    ),
    *(
        "unshare all",
        "unshare net",
        "unshare user",
        "process_vm_readv",
        "process_vm_writev",
        "kcmp",
        "lookup_dcookie",
    ),
)
"""What gVisor's kernel, which is the guest's alone, may grant without asking the host's."""
PYTHON["calls that no program needs"] = (
    ATTEMPT
    + f"CALLS = {CALLS!r}\n"
    + """
agent = os.stat("/proc/1").st_uid
for name, (number, words) in CALLS.items():
    words = [agent if word is None else word for word in words]
    pid = os.fork()
    if pid == 0:
        attempt(name, lambda: call(number, *words))
        os._exit(0 if said[name] == "done" else 1)
    said[name] = "done" if os.waitpid(pid, 0)[1] == 0 else "refused"
"""
    + SAY,
    refused_but(gvisor=GVISORS_OWN),
)
PYTHON["limits raised, and the processes of others"] = (
    ATTEMPT
    + """
for name in ("NOFILE", "CORE", "FSIZE", "MSGQUEUE", "NICE", "RTPRIO", "MEMLOCK"):
    kind = getattr(resource, "RLIMIT_" + name)
    most = resource.getrlimit(kind)[1]
    attempt(name, lambda: resource.setrlimit(kind, (most + 1, most + 1)) if most >= 0 else read("/nothing"))
attempt("limits of the first", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (1, 1)))
for number in (0, 9, 15, 19):
    attempt(f"signal {number}", lambda: os.kill(1, number))
attempt("nice", lambda: os.nice(-5))
"""
    + SAY,
    refused_but(gvisor=("nice",)),
)

# --- too much of everything ------------------------------------------------------------------------------------------------

PYTHON["a fork bomb"] = ("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", is_bounded)
PYTHON["a bomb of threads"] = (
    """
import threading, time
threading.stack_size(65536)
made = 0
try:
    while True: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); made += 1
except RuntimeError: pass
print(made < 1100, flush=True); __import__("os")._exit(0)
""",
    prints(b"True\n"),
)
PYTHON["all descriptors"] = (
    """
import os
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error: print(error.errno, len(held) < 1024)
""",
    prints(b"24 True\n"),
)
PYTHON["everything full of small files"] = (
    """
import errno, os
why = set()
for place in ("/dev/shm", "/tmp", "/workspace"):
    try:
        for number in range(100_000): os.close(os.open(f"{place}/{number:0200}", os.O_CREAT | os.O_WRONLY))
    except OSError as error: why.add(errno.errorcode[error.errno])
print(sorted(why))
""",
    is_bounded,
)
PYTHON["everything full of large files"] = (
    """
import errno
for place in ("/dev/shm", "/tmp", "/workspace"):
    for number in range(3):
        try:
            with open(f"{place}/{number}", "wb", buffering=0) as file:
                while file.write(bytes(1 << 20)): pass
        except OSError as error: print(errno.errorcode[error.errno] in ("ENOSPC", "EFBIG"))
""",
    is_bounded,
)
PYTHON["a sparse file"] = (
    """
import errno, os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try: os.truncate(os.open("/tmp/x", os.O_CREAT | os.O_RDWR), 1 << 40)
except OSError as error: print(errno.errorcode[error.errno])
""",
    prints(b"EFBIG\n"),
)
PYTHON["memory"] = (
    "held = []\nwhile True: held.append(bytearray(b'x') * (8 << 20))",
    ends(137, oom_killed=True),
)
PYTHON["shared memory"] = (
    """
import mmap
held = []
while True:
    held.append(mmap.mmap(-1, 8 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)); held[-1][:] = bytes(8 << 20)
""",
    ends(137, oom_killed=True),
)
PYTHON["an address space without end"] = (
    """
import mmap
held = []
try:
    while len(held) < 3000: held.append(mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | mmap.MAP_NORESERVE, mmap.PROT_READ))
except (OSError, ValueError): pass
print("still here")
""",
    is_bounded,
)
PYTHON["memory in the buffers of TCP"] = (
    """
import os, socket, time
for _ in range(60):
    if os.fork() == 0:
        server, held = socket.create_server(("127.0.0.1", 0), backlog=500), []
        try:
            while True:
                held.append(socket.socket()); held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
                held[-1].connect(server.getsockname()); held.append(server.accept()[0])
                for one in held[-2:]:
                    one.setblocking(False)
                    try:
                        while one.send(bytes(1 << 20)): pass
                    except BlockingIOError: pass
        except OSError: time.sleep(60)
time.sleep(60)
""",
    is_bounded,
)
PYTHON["memory in datagrams"] = (
    """
import os, socket, time
for _ in range(60):
    if os.fork() == 0:
        held = []
        try:
            while True:
                held.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
                held[-1].bind(("127.0.0.1", 0)); held[-1].connect(held[-1].getsockname()); held[-1].setblocking(False)
                try:
                    for _ in range(100): held[-1].send(bytes(32_000))
                except BlockingIOError: pass
        except OSError: time.sleep(60)
time.sleep(60)
""",
    is_bounded,
)
PYTHON["the dead whom nobody buries"] = (
    """
import os
made = 0
try:
    while made < 5000:
        if os.fork() == 0: os._exit(0)
        made += 1
except OSError: pass
print("still here")
""",
    is_bounded,
)

# --- its end ----------------------------------------------------------------------------------------------------------------

PYTHON["a daemon that outlives it"] = (
    """
import os, signal, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    for number in range(1, 32):
        try: signal.signal(number, signal.SIG_IGN)
        except OSError: pass
    os.write(write, b"x")
    while True:
        open("/tmp/alive", "w").write("x"); os.write(1, b"later"); time.sleep(0.001)
os.read(read, 1); print("end", flush=True)
""",
    lambda run, _: (run.exit_code == 0 and b"end" in run.stdout) or pytest.fail(str(run)),
)
PYTHON["everybody killed"] = (
    "import os\nos.kill(os.fork(), 0)\nos.kill(-1, 9)\nos.kill(os.getpid(), 9)",
    ends(137),
)
PYTHON["everybody stopped"] = (
    "import os\nos.kill(os.fork(), 0)\nos.kill(-1, 19)\nos.kill(os.getpid(), 19)",
    ends(124, timed_out=True),
)
PYTHON["a storm of signals"] = (
    """
import os, signal, time
for number in set(range(1, 65)) - {9, 19, 32, 33}:
    signal.signal(number, signal.SIG_IGN)
end = time.monotonic() + 2
while time.monotonic() < end:
    for number in range(1, 65):
        for target in (1, 0, -1):
            if target == 1 or number not in (9, 19, 32, 33):
                try: os.kill(target, number)
                except OSError: pass
print("still here")
""",
    lambda run, _: run.exit_code in {0, 124} or pytest.fail(str(run)),
)
PYTHON["a stop at its end"] = (
    "import atexit, time\natexit.register(time.sleep, 600)",
    ends(124, timed_out=True),
)
PYTHON["every descriptor closed"] = ("import os\nos.closerange(0, 2000)\nos._exit(3)", ends(3))
PYTHON["a lie about its exit code"] = ("import os, time\nos.write(3, b'\\x07'); time.sleep(60)", ends(7))
PYTHON["many lies about its exit code"] = (
    "import os\ntry:\n  while True: os.write(3, b'\\x09' * 9999)\nexcept OSError: os._exit(1)",
    ends(9),
)
PYTHON["a code of the host's"] = ("import os\nos._exit(137)", ends(137))
PYTHON["its input"] = ("import sys\nprint(sys.stdin.read() == '')", prints(b"True\n"))
PYTHON["writing to its input"] = (
    ATTEMPT + "\nattempt('write', lambda: os.write(0, b'x' * 99))\nprint('still here')",
    prints(b"still here\n"),
)

# --- its output --------------------------------------------------------------------------------------------------------------

FRAMES: Final = (
    b'\0\0\0\x1c\0\0\0\x18{"t":"result","exit":42}\x1b]0;x\x07\x1b[2J\r\n\xff\xfe\x80\0\xed\xa0\x80'
)
PYTHON["our frames, control characters and no text"] = (
    f"import os\nos.write(1, {FRAMES!r})",
    prints(FRAMES),
)


def flooded(run: Run, _: Wall) -> None:
    assert run.exit_code == 153, run
    assert run.stdout_truncated or run.stderr_truncated
    assert max(len(run.stdout), len(run.stderr)) <= 65_536


PYTHON["a flood of large writes"] = (
    "import os\nwhile True: os.write(1, bytes(1 << 20)); os.write(2, bytes(1 << 20))",
    flooded,
)
PYTHON["a flood of bytes"] = (
    "import os\nwhile True: os.write(1, b'x'); os.write(2, b'y')",
    lambda run, wall: flooded(run, wall) if run.exit_code == 153 else is_bounded(run, wall),
)
PYTHON["a flood from many"] = (
    "import os\nfor _ in range(2): os.fork()\nwhile True: os.write(1, b'x' * 4096)",
    flooded,
)
PYTHON["a line without an end"] = ("import os\nfor _ in range(9): os.write(1, b'x' * 99_999)", ends(0))
PYTHON["its environment"] = (
    "import json, os\nprint(json.dumps(dict(os.environ), sort_keys=True))",
    lambda run, _: (
        set(json.loads(run.stdout))
        == {"HOME", "LANG", "PATH", "TMPDIR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
        or pytest.fail(run.text)
    ),
)
PYTHON["an interpreter turned inside out"] = (
    """
import builtins, gc, os, sys, threading
os.write = os._exit = os.read = None
sys.stdout = sys.stderr = None
builtins.exec = builtins.__import__ = None
threading._shutdown = None
sys.modules.clear()
""",
    is_bounded,
)

JAVASCRIPT["the first process and everybody"] = (
    """
const said = [];
for (const [pid, signal] of [[1, 'SIGKILL'], [1, 'SIGSTOP'], [1, 0], [2 ** 22, 0]])
  try { process.kill(pid, signal); said.push('done'); } catch (error) { said.push(error.code); }
console.log(said.join());
""",
    lambda run, _: ("done" not in run.text and run.exit_code == 0) or pytest.fail(run.text),
)
JAVASCRIPT["a fork bomb"] = (
    (
        "const { spawn } = require('child_process');\n"
        "for (;;) try { spawn('/bin/sh', ['-c', 'sleep 99 & sleep 99']).on('error', () => {}) } catch {}"
    ),
    is_bounded,
)
JAVASCRIPT["a bomb of threads"] = (
    (
        "const { Worker } = require('worker_threads');\n"
        "for (let i = 0; i < 500; i++) new Worker('for (;;);', { eval: true }).on('error', () => {})"
    ),
    is_bounded,
)
JAVASCRIPT["memory"] = (
    "const held = []; for (;;) held.push(Buffer.alloc(1 << 23, 1))",
    ends(137, oom_killed=True),
)
JAVASCRIPT["a loop of promises"] = (
    "(function again() { Promise.resolve().then(again) })()",
    ends(124, timed_out=True),
)
JAVASCRIPT["a handler that does not end"] = (
    "process.on('exit', () => { for (;;); })",
    ends(124, timed_out=True),
)
JAVASCRIPT["a lie about its exit code"] = (
    "require('fs').writeSync(3, Buffer.from([7])); setInterval(() => {}, 1e6)",
    ends(7),
)
JAVASCRIPT["an abort"] = ("process.abort()", ends(134))
JAVASCRIPT["a flood"] = (
    "for (;;) { process.stdout.write('x'.repeat(1e6)); process.stderr.write('y') }",
    flooded,
)
JAVASCRIPT["the way out"] = (
    """
const dgram = require('dgram'), said = [];
const one = dgram.createSocket('udp4');
one.on('error', (error) => { console.log(error.code !== undefined); one.close(); });
one.connect(53, '192.0.2.1', (error) => console.log(error === undefined ? 'reached' : true) ?? one.close());
""",
    lambda run, _: "reached" not in run.text or pytest.fail(run.text),
)
SLOW: Final = {
    "a fork bomb": 4,
    "a bomb of threads": 6,
    "a storm of signals": 20,
    "a daemon that outlives it": 20,
}
QUICK: Final = {"everybody stopped", "a stop at its end", "a loop of promises", "a handler that does not end"}


def seconds(name: str) -> int:
    return 2 if name in QUICK else SLOW.get(name, 40 if "memory" in name and "in " not in name else 12)


@pytest.mark.parametrize("name", PYTHON)
def test_python(wall: Wall, name: str) -> None:
    code, expect = PYTHON[name]
    began = time.monotonic()
    with Peak() as peak:
        run = wall.client.run_python(code, timeout=seconds(name))
    assert time.monotonic() - began < seconds(name) + LATE_S
    expect(run, wall)
    assert peak.pages < MANY_TCP_PAGES
    after(wall, run)
    forgotten(wall, run, name)


@pytest.mark.parametrize("name", JAVASCRIPT)
def test_javascript(wall: Wall, name: str) -> None:
    code, expect = JAVASCRIPT[name]
    began = time.monotonic()
    run = wall.client.run_javascript(code, timeout=seconds(name))
    assert time.monotonic() - began < seconds(name) + LATE_S
    expect(run, wall)
    after(wall, run)
    forgotten(wall, run, name)


class Peak:
    """The most pages that all TCP and UDP of this machine held meanwhile."""

    def __init__(self) -> None:
        self.pages = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            lines = Path("/proc/net/sockstat").read_text().splitlines()
            held = [line.split() for line in lines if line.startswith(("TCP:", "UDP:"))]
            self.pages = max(self.pages, sum(int(words[words.index("mem") + 1]) for words in held))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


# --- projects ---------------------------------------------------------------------------------------------------------------

ENDED: Final = {Outcome.COMPLETED, Outcome.TIMED_OUT, Outcome.RUNNER_FAILED}
NAMES: Final = ("a b", "-rf", "ünï", "x" * 200, "CON", "back\\slash", "semi;colon", "$(id)", "tab\tless", "#")


def test_artifacts_that_are_not_what_they_seem(wall: Wall) -> None:
    """Nothing but regular files of the workspace comes back, and never what a link leads to."""
    make = """
    ln -s /etc/passwd link; ln -s / top; ln -s /proc/self/environ environ; mkfifo pipe; mkdir folder
    ln -s ../../../etc/passwd folder/up; echo real > real; ln real hard; ln -s real soft; ln -s . loop
    truncate -s 60M sparse; head -c 9000000 /dev/zero > large
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
    mkdir -p deep/$(printf 'd/%.0s' $(seq 300)); chmod 0 folder; echo secret > closed; chmod 0 closed; ln -s /dev/zero zero
    """
    links = ("link", "top/etc/passwd", "environ", "folder/up", "soft", "loop/real", "zero")
    odd = ("pipe", "folder", "sparse", "large", "socket", "closed")
    run = wall.client.run_project({}, [make], ("real", *links, *odd, "hard"), timeout=60)
    assert run.outcome is Outcome.COMPLETED, run
    assert {each.path: each.content for each in run.artifacts} == {"real": b"real\n", "hard": b"real\n"}
    assert run.artifacts_truncated
    after(wall, run)


def test_artifacts_that_change_while_they_are_collected(wall: Wall) -> None:
    """A process that was left behind swaps a file for a link again and again: it is ended before anything is read."""
    swap = "(while :; do ln -sf /etc/passwd x; rm -f x; echo fine > x; done) >/dev/null 2>&1 & sleep 0.5; echo fine > y"
    for _ in range(3):
        run = wall.client.run_project({}, [swap], ["x", "y"], timeout=60)
        found = {each.path: each.content for each in run.artifacts}
        assert found.pop("y") == b"fine\n"
        assert found.get("x", b"") in {b"", b"fine\n"}
        after(wall, run)


def test_steps_that_leave_traps_for_the_next(wall: Wall) -> None:
    """A later step and the collection are the project's own: what an earlier one left may spoil them, and nothing else."""
    traps = [
        "(trap '' TERM; while :; do kill -STOP -1; kill -CONT -1; done) >/dev/null 2>&1 & exit 0",
        "for p in /proc/[0-9]*; do for f in $p/fd/*; do echo forged >$f; done; done 2>/dev/null & sleep 0.2; kill $! ; exit 0",
        "python3 -c \"import os; [os.mkdir(n) for n in ('d',)]; os.chmod('.', 0)\"",
        "ulimit -n 3; ulimit -f 0; echo out; exit 0",
    ]
    for trap in traps:
        run = wall.client.run_project({"in": b"1"}, [trap, "echo next"], ["in"], timeout=6)
        assert run.outcome in ENDED, run
        assert {each.path for each in run.artifacts} <= {"in"}
        after(wall, run)


def test_files_of_every_name(wall: Wall) -> None:
    files: dict[str, str | bytes | Path] = {
        name: b"1" for name in NAMES if "\t" not in name and "\\" not in name
    }
    run = wall.client.run_project(files, ["ls | wc -l"], list(files), timeout=60)
    assert run.outcome is Outcome.COMPLETED
    assert {each.path for each in run.artifacts} == set(files)
    assert run.steps[0].stdout == b"%d\n" % len(files)
    after(wall, run)


def test_a_shell_that_bombs(wall: Wall) -> None:
    """A gVisor may die of it: then nobody knows how far it came, and that is what is said."""
    try:
        run = wall.client.run_project({}, [":(){ :|:& };:; sleep 60"], timeout=3)
    except errors.MayHaveRun:
        assert wall.is_gvisor
        assert clean(wall) == CLEAN
    else:
        assert run.outcome in ENDED, run
        after(wall, run)


# --- beside others ----------------------------------------------------------------------------------------------------------


def test_a_hog_leaves_others_their_share(wall: Wall) -> None:
    """It spins with every thread and child it may have, and floods with single bytes; another caller's run still answers."""
    hog = "import os\nfor _ in range(6): os.fork()\nwhile True: os.write(1, b'') or sum(range(999))"
    tiny = "import os, time\nwhile True: os.write(1, b'x'); time.sleep(0)"
    with plimsoll.Client(wall.running.url, "", deadline=120) as other:
        handles = [wall.client.start_python(code, timeout=8) for code in (hog, tiny, hog)]
        took = []
        for _ in range(5):
            began = time.monotonic()
            assert other.run_python("print('fine')", timeout=60).stdout == b"fine\n"
            took.append(time.monotonic() - began)
        assert sorted(took)[2] < 10, took
        for handle in handles:
            after(wall, handle.wait())


def test_a_run_sees_nothing_of_another(wall: Wall) -> None:
    secret = """
import os, socket, sys, time
open("/tmp/secret", "w").write("secret"); open("/dev/shm/secret", "w").write("secret")
a = socket.socket(socket.AF_UNIX); a.bind("\\0secret"); a.listen()
b = socket.create_server(("127.0.0.1", 47113))
print("there", flush=True); time.sleep(60)
"""
    look = (
        LOOK
        + """
import socket
for kind, address in ((socket.AF_UNIX, "\\0secret"), (socket.AF_INET, ("127.0.0.1", 47113))):
    try: socket.socket(kind).connect(address); print("reached")
    except OSError: pass
"""
    )
    with wall.client.stream_python(secret, timeout=60) as stream:
        pieces = iter(stream)
        next(pieces)
        run = wall.client.run_python(look, timeout=60)
        assert json.loads(run.stdout) == CLEAN


def test_what_users_share_in_the_kernel_keeps_nobody_from_running(wall: Wall) -> None:
    """Descriptors in flight are counted for a user, and under runc all guests are one: a start needs none of theirs."""
    held = """
import os, socket, time
files, held = [os.open("/dev/null", os.O_RDONLY) for _ in range(250)], []
try:
    while True:
        held.append(socket.socketpair()); socket.send_fds(held[-1][0], [b"x"], files)
except OSError: print("full", flush=True)
time.sleep(60)
"""
    with wall.client.stream_python(held, timeout=60) as stream:
        next(iter(stream))
        for _ in range(4):  # more than wait already
            assert wall.client.run_javascript("console.log('ran')", timeout=60).stdout == b"ran\n"
        assert wall.client.run_project({}, ["echo ran"], timeout=60).steps[0].stdout == b"ran\n"


def test_the_machine_is_as_it_was(wall: Wall) -> None:
    assert "plimsoll" not in Path("/proc/sys/kernel/core_pattern").read_text()
    assert os.uname().nodename not in {"x", "sandbox"}
    assert clean(wall) == CLEAN
