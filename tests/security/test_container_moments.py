"""The moments at which something of the agent's has the guest's uid while a guest of an earlier step still lives.

For each step the agent makes the outputs as the guest's user, and forks a child that becomes the guest before it runs the
step. What collects the artifacts is a guest by its uid too, but runs when no guest lives. A process that an earlier step left
behind tries everything on all of them, again and again (docs/decisions/0007).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docker import Daemon, Sandbox

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parent.parent
ATTEMPTS = (ROOT / "integration" / "docker" / "inside" / "hostile.py").read_bytes()
NOT_ITS_OWN = ATTEMPTS.replace(b"if about.st_rdev ==", b"if about.st_uid == os.getuid() or about.st_rdev ==")
"""gVisor lets the guest open the outputs of its own other steps in the agent, as its owner: they are its own result."""
HARMLESS = {"runc": {"priority"}, "runsc": {"memory_map", "priority"}}
"""To be nice costs the guest its own time; what gVisor shows of a memory map is no way into it."""

PROWLER = r"""
import os, signal, sys, time
AGENT = b"/usr/lib/plimsoll\0"
FORGED = b'\0\0\0\x4c\0\0\0\x30{"t":"artifact","path":"x","size":6}          forged'
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass

def tell(word):
    with open("/workspace/found", "a") as file: file.write(word + "\n")

def is_agents(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file: return file.read().endswith(AGENT)
    except OSError: return False

def prowl(pid):
    if not is_agents(pid): return
    for name, flags in (("mem", os.O_RDWR), ("fd/3", os.O_WRONLY), ("fd/1", os.O_WRONLY), ("fd/10", os.O_RDWR)):
        try:
            held = os.open(f"/proc/{pid}/{name}", flags | os.O_NONBLOCK)
            got = os.write(held, FORGED) if name.startswith("fd") else os.read(held, 1)
            if got and is_agents(pid): tell(f"{name} of {'agent' if pid == 1 else 'child'}")
            os.close(held)
        except OSError: pass

open("/workspace/there", "w").close()
while True:
    if os.fork(): os._exit(0)  # nobody can be sure of a number
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid(): prowl(int(name))
"""
LEFT = "(python3 prowler.py &) >/dev/null 2>&1; until [ -e there ]; do sleep 0.01; done"
LOOP = "(while :; do python3 hostile.py 1; done &) >tries 2>&1; until [ -s tries ]; do sleep 0.01; done"


@pytest.fixture(
    params=[
        pytest.param("runc", marks=pytest.mark.component("docker")),
        pytest.param("runsc", marks=pytest.mark.component("runsc")),
    ]
)
def sandbox(request: pytest.FixtureRequest, docker: Daemon, image: str) -> Iterator[Sandbox]:
    made = Sandbox.start(docker, image, str(request.param), "python")
    assert made.receive()[0]["t"] == "ready"
    yield made
    made.destroy()


def described(sandbox: Sandbox, steps: list[str], files: dict[str, bytes], wanted: list[str]) -> None:
    for path, content in files.items():
        sandbox.send({"t": "put", "path": path}, content)
    for step in steps:
        sandbox.send({"t": "step"}, step.encode())
    for path in wanted:
        sandbox.send({"t": "want", "path": path})
    sandbox.send({"t": "go"})


def test_what_was_left_behind_gets_nothing_of_the_agent_while_it_starts_steps(sandbox: Sandbox) -> None:
    steps = [LEFT, *["true"] * 60, "echo real > x; cat found 2>/dev/null || true"]
    described(sandbox, steps, {"prowler.py": PROWLER.encode()}, ["x"])
    seen = sandbox.until("result")
    assert [header["exit"] for header, _ in seen if header["t"] == "step"] == [0] * len(steps)
    assert b"".join(body for header, body in seen if header["t"] == "out") == b""
    assert [(header["path"], body) for header, body in seen if header["t"] == "artifact"] == [
        ("x", b"real\n")
    ]
    assert seen[-1][0] == {"t": "result", "outcome": "completed", "detail": "", "truncated": False}


def test_every_attempt_on_the_agent_fails_while_it_starts_steps(sandbox: Sandbox) -> None:
    steps = [LOOP, *["true"] * 100, "sort -u tries"]
    assert NOT_ITS_OWN != ATTEMPTS
    described(sandbox, steps, {"hostile.py": NOT_ITS_OWN}, [])
    seen = sandbox.until("result")
    assert [header["exit"] for header, _ in seen if header["t"] == "step"] == [0] * len(steps)
    tried = b"".join(body for header, body in seen if header["t"] == "out").decode().splitlines()
    assert len({line.partition(":")[0] for line in tried}) >= 15
    done = {line.partition(":")[0] for line in tried if line.strip() and ": refused" not in line}
    assert done <= HARMLESS[sandbox.runtime], tried


def test_nothing_of_the_guests_lives_while_artifacts_are_collected(sandbox: Sandbox) -> None:
    """It forks without end and ignores every signal there is to ignore; large artifacts give it time.

    Twenty at once: a gVisor may die of more, and then there are no artifacts.
    """
    forge = "(for i in 1 2 3 4 5; do echo forged >x; cp x y; done)"
    churn = f"(while :; do {forge} & [ $(jobs -rp | wc -l) -lt 20 ] || wait -n; done &) >/dev/null 2>&1"
    steps = [f"{churn}; {LEFT}; sleep 0.3", "head -c 3000000 /dev/zero >big; echo real >z"]
    described(sandbox, steps, {"prowler.py": PROWLER.encode()}, ["big", "z"])
    seen = sandbox.until("result")
    assert seen[-1][0]["outcome"] == "completed"
    found: dict[str, bytes] = {}
    for header, body in seen:
        if header["t"] == "artifact":
            found[header["path"]] = found.get(header["path"], b"") + body
    assert found == {"big": bytes(3_000_000), "z": b"real\n"}
