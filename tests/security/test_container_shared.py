"""What a kernel keeps for a user or for the whole machine: three containers take all of it, and another caller's runs go on.

The list is that of /proc/sys/{fs,kernel,user,net} and of the resource limits of Linux 6: whatever an unprivileged process can
hold there. All of it is held at once. In gVisor it is in the kernel of the sandbox; behind `wasm` no program has any of it.
"""

import json
from collections.abc import Callable, Iterator

import pytest

import plimsoll
from plimsoll.contract.requests import JavaScript, Project, Python
from providers.docker.frames import Event, Output, ProjectEnded, SnippetEnded, StepEnded
from providers.docker.names import CONTAINERS, FIRST_UID
from tests.support.docker import Daemon, Sandbox

pytestmark = pytest.mark.timeout(400)

HOGS = 3

HOG = r"""
import ctypes, errno, fcntl, json, mmap, os, resource, select, signal, socket, sys, time
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
held, got, why = [], {}, {}
def call(number, *words):
    made = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(w) if isinstance(w, int) else w for w in words))
    if made < 0: raise OSError(ctypes.get_errno(), "")
    return made
def take(name, work, most):
    got[name] = 0
    try:
        while got[name] < most:
            held.append(work(got[name]))
            got[name] += 1
    except Exception as error:
        why[name] = errno.errorcode.get(getattr(error, "errno", 0) or 0, type(error).__name__)
lockable = open("/tmp/lock", "w+")
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)

# Watches: each epoll holds one for each descriptor that it watches. fs.epoll.max_user_watches
def watched(number):
    poll = select.epoll()
    for each in sockets: poll.register(each, select.EPOLLIN)
    return poll
sockets = [each for _ in range(100) for each in socket.socketpair()]
take("epoll instances of 200 watches", watched, 150)

# Pages of pipes: fs.pipe-user-pages-soft, -hard; fs.pipe-max-size
def pipe(_):
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 1 << 20)
    return ends
take("pipes of a MiB", pipe, 40)
take("pipes", lambda _: os.pipe(), 60)

# Descriptors in flight: RLIMIT_NOFILE, by user
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
def flight(_):
    pair = socket.socketpair()
    for _ in range(6): socket.send_fds(pair[0], [b"x"], files)
    return pair
take("sockets with descriptors in flight", flight, 60)

# Signals that wait: RLIMIT_SIGPENDING, by user
signal.pthread_sigmask(signal.SIG_BLOCK, range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
take("pending signals", lambda _: os.kill(os.getpid(), signal.SIGRTMIN), 200_000)

# Terminals: kernel.pty.max
take("terminals", lambda _: os.openpty(), 40)

# Keys, queues, shared memory, semaphores, watches of files, asynchronous contexts, timers, locked and huge pages, namespaces
take("keys", lambda n: call(248, b"user", b"key%d" % n, b"x" * 100, 100, -4), 1000)
take("message queues", lambda n: call(240, b"q%d" % n, os.O_CREAT | os.O_RDWR, 0o600, 0), 300)
take("old message queues", lambda n: call(68, 0, 0o1600), 1000)
take("semaphores", lambda n: call(64, 0, 250, 0o1600), 1000)
take("shared memory", lambda n: call(29, 0, 4096, 0o1600), 1000)
take("inotify instances", lambda _: call(294, 0), 20)
take("fanotify groups", lambda _: call(300, 0, 0), 20)
def context(_):
    place = ctypes.c_ulong()
    return call(206, 1000, ctypes.byref(place))
take("asynchronous contexts", context, 100)
def timer(_):
    place = ctypes.c_int()
    return call(222, 1, 0, ctypes.byref(place))
take("timers", timer, 5000)
take("locked pages", lambda _: call(151, 2), 1)
take("files in memory", lambda _: call(319, b"x", 4), 20)
take("huge pages", lambda _: mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000), 100)
take("event pollers of the kernel", lambda _: call(425, 64, (ctypes.c_char * 120)()), 20)
take("user namespaces", lambda _: call(272, 0x10000000), 1)
take("programs of the kernel", lambda _: call(321, 0, (ctypes.c_char * 72)(), 72), 5)
take("faults of our own", lambda _: call(323, 1), 20)

# Locks and leases of files; ports; processes
def lock(number):
    fcntl.lockf(lockable, fcntl.LOCK_EX, 1, number * 2)
take("locks", lock, 20_000)
def port(_):
    one = socket.socket()
    one.bind(("127.0.0.1", 0))
    return one
take("ports", port, 1000)
def child(_):
    pid = os.fork()
    if pid == 0:
        os.execv("/bin/sleep", ["sleep", "600"])
    return pid
take("processes", child, PROCESSES)
print(json.dumps({"got": got, "why": why}), flush=True)
time.sleep(600)
"""

REFUSED = {
    *(
        "terminals",
        "keys",
        "message queues",
        "old message queues",
        "semaphores",
        "shared memory",
        "inotify instances",
    ),
    *("fanotify groups", "asynchronous contexts", "timers", "locked pages", "files in memory", "huge pages"),
    *("event pollers of the kernel", "user namespaces", "programs of the kernel", "faults of our own"),
}
"""What a guest under runc gets nothing of."""

JAVASCRIPT = """
const net = require('net'), fs = require('fs'), os = require('os');
const server = net.createServer((one) => one.end('heard')).listen(0, '127.0.0.1', () => {
  net.connect(server.address().port, '127.0.0.1').on('data', (data) => {
    console.log(String(data), require('child_process').execSync('head -c 100000 /dev/zero | wc -c').toString().trim());
    server.close();
  });
});
fs.writeFileSync('/tmp/x', 'x'.repeat(100000));
setTimeout(() => {}, 10);
"""
PYTHON = """
import asyncio, os, socket, subprocess, threading
async def main():
    server = await asyncio.start_server(lambda _, writer: (writer.write(b"heard"), writer.close()), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    return (await reader.read()).decode()
pair = socket.socketpair()
socket.send_fds(pair[0], [b"x"], [0, 1, 2])
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
many = subprocess.run("head -c 100000 /dev/zero | wc -c", shell=True, capture_output=True).stdout.decode().strip()
print(asyncio.run(main()), many)
"""
SAID = b"heard 100000\n"


@pytest.fixture(
    params=[
        pytest.param("runc", marks=pytest.mark.component("docker")),
        pytest.param("runsc", marks=pytest.mark.component("runsc")),
    ]
)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Begin = Callable[..., Sandbox]


@pytest.fixture
def begin(docker: Daemon, image: str, runtime: str) -> Iterator[Begin]:
    """Starts containers; all are gone after the test."""
    made: list[Sandbox] = []

    def one(*warm: str) -> Sandbox:
        made.append(Sandbox.start(docker, image, runtime, *warm))
        return made[-1]

    yield one
    for sandbox in made:
        sandbox.destroy()


def hog(begin: Begin, runtime: str) -> dict[str, dict[str, int]]:
    """One more container that holds all it can get; what it got."""
    sandbox = begin("python")
    program = HOG.replace("PROCESSES", "100" if runtime == "runc" else "20")
    sandbox.receive()
    sandbox.send({"t": "run", "language": "python"}, program.encode())
    said = b""
    while b"\n" not in said:
        header, body = sandbox.receive()
        assert (header["t"], header.get("stream")) == ("out", "stdout"), (header, body)
        said += body
    found: dict[str, dict[str, int]] = json.loads(said)
    return found


def heard(events: list[Event]) -> tuple[bytes, list[Event]]:
    output = b"".join(each.data for each in events if isinstance(each, Output))
    return output, [each for each in events if isinstance(each, SnippetEnded | StepEnded | ProjectEnded)]


def test_three_containers_that_hold_all_they_can_take_nothing_from_a_fourth(
    begin: Begin, runtime: str
) -> None:
    before = {name: begin(name) for name in ("python", "javascript")}
    got = [hog(begin, runtime) for _ in range(HOGS)]
    if runtime == "runc":
        for each in got:
            assert {name for name, count in each["got"].items() if count == 0} == REFUSED, each
    after = {name: begin(name) for name in ("python", "javascript")}
    for waiting in (before, after):
        assert heard(waiting["python"].run(Python(PYTHON))) == (SAID, [SnippetEnded(0)])
        assert heard(waiting["javascript"].run(JavaScript(JAVASCRIPT))) == (SAID, [SnippetEnded(0)])
    files = {"a.py": PYTHON, "a.js": JAVASCRIPT}
    steps = ("python3 a.py", "node a.js")
    written = tuple(f"cat >{name} <<'END'\n{text}\nEND" for name, text in files.items())
    output, ends = heard(begin().run(Project(steps=(*written, *steps))))
    assert output == SAID * 2
    assert [each.exit_code for each in ends if isinstance(each, StepEnded)] == [0] * 4


@pytest.mark.component("docker")
@pytest.mark.component("wasm")
def test_nor_from_a_run_behind_wasm(docker: Daemon, image: str) -> None:
    hogs: list[Sandbox] = []

    def begin(*warm: str) -> Sandbox:
        hogs.append(Sandbox.start(docker, image, "runc", *warm))
        return hogs[-1]

    try:
        for _ in range(HOGS):
            hog(begin, "runc")
        with plimsoll.local(provider="wasm") as sandbox:
            assert sandbox.run_javascript("console.log(6 * 7)").text == "42\n"
    finally:
        for each in hogs:
            each.destroy()


def test_no_two_containers_have_a_user_in_common(begin: Begin, runtime: str) -> None:
    """Nor with anybody else who is known on this machine."""
    seen: set[int] = set()
    for _ in range(3):
        said, _ends = heard(
            begin("python").run(Python("import os; print(os.getuid(), os.stat('/proc/1').st_uid)"))
        )
        uids = {int(word) for word in said.split()}
        assert len(uids) == 2
        assert not uids & seen
        assert all(FIRST_UID <= each < FIRST_UID + 2 * CONTAINERS for each in uids)
        seen |= uids


def test_programs_find_out_who_they_are(begin: Begin, runtime: str) -> None:
    asked = "import getpass, os, pwd; print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_dir, os.path.expanduser('~guest'))"
    assert heard(begin("python").run(Python(asked)))[0] == b"guest /workspace /workspace\n"
    asked = "const me = require('os').userInfo(); console.log(me.username, me.homedir, me.uid === process.getuid())"
    assert heard(begin("javascript").run(JavaScript(asked)))[0] == b"guest /workspace true\n"
