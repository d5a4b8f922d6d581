"""The agent is not the guest's uid: whatever a guest tries on it fails, under both runtimes (docs/decisions/0007)."""

from pathlib import Path

from tests.integration.docker.conftest import Start
from tests.support.docker import Sandbox

HOSTILE = (Path(__file__).parent / "inside" / "hostile.py").read_bytes()
ATTEMPTS = 15

HARMLESS = {"runc": set[str](), "runsc": {"memory_map", "priority"}}
"""What gVisor lets a guest do: see where the agent's memory lies, but not open it; set a priority that gVisor ignores."""


def steps(sandbox: Sandbox, *commands: str, files: dict[str, bytes] | None = None) -> bytes:
    """Run them as a project; what they wrote to stdout."""
    assert sandbox.receive()[0]["t"] == "ready"
    for path, content in (files or {}).items():
        sandbox.send({"t": "put", "path": path}, content)
    for command in commands:
        sandbox.send({"t": "step"}, command.encode())
    sandbox.send({"t": "go"})
    seen = sandbox.until("result")
    assert [header["exit"] for header, _ in seen if header["t"] == "step"] == [0] * len(commands), seen
    return b"".join(body for header, body in seen if header.get("stream") == "stdout")


def test_every_attempt_on_the_agent_fails(start: Start, runtime: str) -> None:
    """Its descriptors, its memory, its limits, its signals, a trace, and its uid."""
    said = steps(start(), "python3 hostile.py 1", files={"hostile.py": HOSTILE}).decode().splitlines()
    assert len(said) == ATTEMPTS
    done = {line.partition(":")[0] for line in said if ": refused" not in line}
    assert done <= HARMLESS[runtime], said


def test_the_same_attempts_on_a_process_of_its_own_succeed(start: Start, runtime: str) -> None:
    """So it is the uids that refuse, and not the program that is mistaken."""
    command = "sleep 100 5<hostile.py & python3 hostile.py $!"
    said = steps(start(), command, files={"hostile.py": HOSTILE}).decode()
    held = {line.partition(":")[0] for line in said.splitlines() if ": refused" not in line}
    assert {"memory_map", "limits", "stop", "kill"} <= held, said
    if runtime == "runc":  # gVisor refuses these to every process that is no ancestor
        assert {"descriptor_to_read", "memory", "working_directory"} <= held, said


def test_nothing_runs_beside_the_guest_but_the_agent(start: Start) -> None:
    """The interpreters that were warm and are not needed are gone; every process but the first is the guest's."""
    listing = "for p in /proc/[0-9]*; do grep -E '^(Pid|Uid|PPid):' $p/status 2>/dev/null | tr '\\n' ' '; echo; done"
    sandbox = start("python", "javascript")
    rows = steps(sandbox, "sleep 0.3", listing).decode().splitlines()
    uids = {row.split()[1]: set(row.split("Uid:")[1].split()) for row in rows if row.strip()}
    assert uids.pop("1") == {str(sandbox.uid)}
    assert len(uids) <= 4
    assert set().union(*uids.values()) == {str(sandbox.uid + 1)}


def test_a_guest_has_no_capability(start: Start) -> None:
    lines = steps(start(), "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status").decode().splitlines()
    assert len(lines) >= 3
    assert {line.split()[1] for line in lines} == {"0" * 16}


def test_the_agents_environment_holds_nothing(start: Start) -> None:
    """Old gVisor shows it to everybody, so it must be worth nothing."""
    said = steps(start(), "tr '\\0' '\\n' </proc/1/environ || true").decode().split()
    assert {entry.partition("=")[0] for entry in said} <= {"PATH", "LANG", "HOSTNAME", "HOME"}


def test_a_guest_inherits_only_its_three_descriptors(start: Start) -> None:
    program = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
    (shown,) = steps(start(), f'python3 -c "{program}"').decode().splitlines()
    assert shown == "[0, 1, 2, 3]"  # the fourth is the listing itself


def test_what_a_guest_writes_to_its_standard_input_reaches_nobody(start: Start) -> None:
    sandbox = start()
    forged = 'printf \'\\0\\0\\0\\24\\0\\0\\0\\20{"t":"pong","n":1}\''
    said = steps(sandbox, f"{forged} >&0 || true", forged)
    assert said.endswith(b'{"t":"pong","n":1}')


def test_a_guest_may_open_its_own_output_again(start: Start) -> None:
    """Shell scripts write to /dev/stderr; a pipe of another uid would refuse that."""
    assert steps(start(), "echo out >/dev/stdout; echo err >/dev/stderr") == b"out\n"
