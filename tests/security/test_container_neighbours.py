"""What a guest in one container can use up of the kernel's limits for users keeps nobody else's container from starting.

Under runc every guest is the same user to the host's kernel, and some of that kernel's limits are kept for users, not for
containers. gVisor has a kernel for each container.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.docker import Daemon, Sandbox
from tests.support.runs import children

pytestmark = pytest.mark.timeout(300)

IN_FLIGHT = """
import os, socket, time
files, held = [os.open("/dev/null", os.O_RDONLY) for _ in range(250)], []
try:
    while True:
        held.append(socket.socketpair())
        socket.send_fds(held[-1][0], [b"x"], files)
except OSError:
    print("full", flush=True)
time.sleep(600)
"""
"""Descriptors in flight between sockets: a user may have as many as one process may have open."""

PIPES = """
import fcntl, os, time
held = []
try:
    while True:
        held.append(os.pipe())
        fcntl.fcntl(held[-1][1], fcntl.F_SETPIPE_SZ, 1 << 20)
except OSError:
    pass
try:
    while True:
        held.append(os.pipe())
except OSError:
    print("full", flush=True)
time.sleep(600)
"""
"""Pages of pipes: beyond a user's share every new pipe holds next to nothing."""

COMPLETED = {"t": "result", "outcome": "completed", "detail": "", "truncated": False}
Begin = Callable[..., Sandbox]


@pytest.fixture(
    params=[
        pytest.param("runc", marks=pytest.mark.component("docker")),
        pytest.param("runsc", marks=pytest.mark.component("runsc")),
    ]
)
def begin(request: pytest.FixtureRequest, docker: Daemon, image: str) -> Iterator[Begin]:
    """Starts containers with warm interpreters; all are gone after the test."""
    made: list[Sandbox] = []

    def one(*warm: str) -> Sandbox:
        made.append(Sandbox.start(docker, image, str(request.param), *warm))
        return made[-1]

    yield one
    for sandbox in made:
        sandbox.destroy()


def occupied(begin: Begin, program: str) -> Sandbox:
    """A container whose guest has used up what it can."""
    hostile = begin("python")
    assert hostile.receive()[0] == {"t": "ready", "warm": ["python"]}
    hostile.send({"t": "run", "language": "python"}, program.encode())
    assert hostile.receive()[1] == b"full\n"
    return hostile


@pytest.mark.parametrize("program", [IN_FLIGHT, PIPES], ids=["descriptors in flight", "pipes"])
def test_a_greedy_user_keeps_no_other_guest_from_starting(begin: Begin, program: str) -> None:
    occupied(begin, program)
    other = begin("python", "javascript")
    assert other.receive()[0] == {"t": "ready", "warm": ["python", "javascript"]}
    other.send({"t": "step"}, b"head -c 50000 /dev/zero; echo done >/dev/stderr")
    other.send({"t": "go"})
    seen = other.until("result")
    assert [header["exit"] for header, _ in seen if header["t"] == "step"] == [0], seen
    assert sum(len(body) for header, body in seen if header.get("stream") == "stdout") == 50_000
    assert seen[-1][0]["outcome"] == "completed"


@pytest.mark.component("docker")
def test_an_interpreter_that_was_ended_while_it_waited_is_not_waited_for(docker: Daemon, image: str) -> None:
    """The machine out of memory takes those first: their run gets another one, and everybody else's is not disturbed."""
    for payload in ({"t": "run", "language": "javascript"}, {"t": "go"}):
        sandbox = Sandbox.start(docker, image, "runc", "javascript")
        try:
            assert sandbox.receive()[0]["warm"] == ["javascript"]
            (waiting,) = children(sandbox.state()["Pid"])
            os.kill(waiting, signal.SIGKILL)
            until_gone(waiting)
            sandbox.send(payload, b"" if payload["t"] == "go" else b"console.log('ran')")
            *said, (result, _) = sandbox.until("result")
            assert b"".join(body for _, body in said) == (b"" if payload["t"] == "go" else b"ran\n")
            assert result in ({"t": "result", "exit": 0}, COMPLETED)
        finally:
            sandbox.destroy()


def until_gone(pid: int) -> None:
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():  # until it is reaped
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.component("docker")
@pytest.mark.parametrize("warm", [(), ("javascript",)], ids=["started for it", "that waited"])
def test_what_an_interpreter_ends_with_before_the_program_is_no_result_of_it(
    docker: Daemon, image: str, warm: tuple[str, ...]
) -> None:
    """An interpreter that ends at its start, with a code that a program could end with as well."""
    sandbox = Sandbox.start(docker, image, "runc", *warm, Binds=["/bin/false:/usr/bin/node:ro"])
    try:
        assert sandbox.receive()[0] == {"t": "ready", "warm": []}
        sandbox.send({"t": "run", "language": "javascript"}, b"console.log(1)")
        assert sandbox.until("unbegun")[-1] == ({"t": "unbegun"}, b"")
    finally:
        sandbox.destroy()
