"""Guests that make the agent wait: for a byte that they took back, or for a connection that does not close.

Whatever they find, the agent's container ends when the host is gone, and a run that only reads its own output goes on.
"""

import time

import pytest

from plimsoll.contract.requests import Python
from providers.docker import daemon
from providers.docker.frames import Output, SnippetEnded, Talk
from providers.docker.removal import remove
from tests.integration.docker.conftest import Start, runtime, start
from tests.support.docker import Daemon, Sandbox

__all__ = ["runtime", "start"]  # fixtures

pytestmark = pytest.mark.timeout(300)

# Takes bytes out of its own pipe in the moment between the agent's look at it and its read, until nobody hears the other pipe.
TAKES_BACK = r"""
import fcntl, os, random, termios, time
def unread(pipe): return any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
mine = os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK)
end = time.monotonic() + SECONDS
while time.monotonic() < end:
    os.write(1, b".")
    until = time.perf_counter() + random.uniform(0, 120e-6)
    while time.perf_counter() < until: pass
    try: os.read(mine, 1)
    except BlockingIOError: continue
    os.write(2, b"!")
    time.sleep(0.01)
    if unread(2):
        time.sleep(1.5)
        while unread(2): UNHEARD
os.write(2, b"still heard")
"""
# Leaves the last reference to a connection whose closing lingers with the agent: it closes what it was sent and did not want.
LINGERS = r"""
import array, os, socket, struct, time
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
peer, _ = listener.accept()
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30000))
client.setblocking(False)
try:
    while True: client.send(b"x" * 65536)
except BlockingIOError:
    pass
crowd = [socket.socket(socket.AF_UNIX) for _ in range(64)]
for each in crowd: each.connect("/dev/shm/plimsoll-calls")
time.sleep(0.3)
last = socket.socket(socket.AF_UNIX)
last.connect("/dev/shm/plimsoll-calls")
last.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [client.fileno()]))])
client.close()
print("sent", flush=True)
time.sleep(0.3)
for each in crowd: each.close()
while True: time.sleep(1)
"""


def test_bytes_that_a_guest_takes_back_hold_nothing_up(start: Start) -> None:
    sandbox = start("python")
    events = sandbox.run(Python(TAKES_BACK.replace("SECONDS", "4").replace("UNHEARD", "os._exit(3)")))
    errors = b"".join(each.data for each in events if isinstance(each, Output) and each.stream == "stderr")
    assert (errors.lstrip(b"!"), events[-1]) == (b"still heard", SnippetEnded(0))


def stalled(sandbox: Sandbox, program: str) -> None:
    """Its agent waits, as far as can be known, and its host is gone."""
    for frame in Talk().begin(Python(program), calls=True):
        sandbox.stream.sendall(frame)
    sandbox.until("out")
    time.sleep(2)  # nothing shows from here whether it waits
    sandbox.stream.close()


def test_an_agent_whose_bytes_are_taken_back_ends_with_the_host(start: Start) -> None:
    sandbox = start("python")
    stalled(sandbox, TAKES_BACK.replace("SECONDS", "600").replace("UNHEARD", "time.sleep(1)"))
    sandbox.gone()


async def test_an_agent_that_lingers_ends_with_the_host_or_is_ended_by_the_next(
    docker: Daemon, start: Start, runtime: str
) -> None:
    """Under gVisor such a wait has no end, and the daemon's own way may come to nothing."""
    sandbox = start("python")
    stalled(sandbox, LINGERS)
    if runtime == "runsc":
        async with daemon.Daemon(docker.host) as client:
            await remove(client, sandbox.id)
    sandbox.gone()
