"""Cases that sandboxes of this kind have got wrong, each under runc and under gVisor, that no other file here tries."""

import asyncio
import time
from pathlib import Path

import pytest

from plimsoll.contract.requests import JavaScript, Payload, Python
from providers.docker.agent.guests import ENVIRONMENT
from providers.docker.frames import Output, Talk
from tests.integration.docker.conftest import Start
from tests.integration.docker.test_runs import Provided, go, project, provided
from tests.support.docker import Sandbox

__all__ = ["provided"]  # a fixture

pytestmark = pytest.mark.timeout(600)
in_module = pytest.mark.asyncio(loop_scope="module")

PROMPT_MS = 30_000
"""What a machine that does much else may take for something that is over at once; what must not be waited for lasts longer."""


# --- ends -----------------------------------------------------------------------------------------------------------------


@in_module
@pytest.mark.parametrize(
    ("step", "printed"),
    [
        ("cat <<'END'\n$(id) line\n\nEND", b"$(id) line\n\n"),
        ("cat <<END | tr a-z A-Z\nend\nEND\necho after", b"END\nafter\n"),
        ("sleep 600 & echo on", b"on\n"),
        ("nohup sleep 600 >/dev/null 2>&1 & disown; echo on", b"on\n"),
        ("setsid sh -c 'sleep 600; echo late' & echo on", b"on\n"),
        ("mkfifo wait; cat wait & echo on", b"on\n"),
        ("cat; read -r line; echo on", b"on\n"),
    ],
    ids=[
        "here-document",
        "here-document in a pipe",
        "child",
        "disowned",
        "session",
        "fifo",
        "standard input",
    ],
)
async def test_a_step_is_over_when_its_command_is(provided: Provided, step: str, printed: bytes) -> None:
    heard = await project(provided, step, "echo next")
    assert heard.outs == {(0, "stdout"): printed, (1, "stdout"): b"next\n"}
    assert heard.steps == [(0, False)] * 2
    assert heard.ended.duration_ms < PROMPT_MS


@in_module
async def test_the_start_of_a_container_is_told_and_not_charged(provided: Provided) -> None:
    """More at once than wait: some are made for their run."""
    began = time.monotonic()
    heard = await asyncio.gather(*(go(provided, Python("print(1)")) for _ in range(4)))
    passed_ms = (time.monotonic() - began) * 1000
    started = [each.accepted.start_ms for each in heard]
    charged = [each.ended.duration_ms for each in heard]
    assert all(start_ms > 0 for start_ms in started)
    assert max(charged) + 50 < passed_ms
    assert sorted(charged)[1] < min(started)


@in_module
@pytest.mark.parametrize("payload", [Python("import os; os._exit(-1)"), JavaScript("process.exit(-1)")])
async def test_a_program_that_ends_with_minus_one_has_ended(provided: Provided, payload: Payload) -> None:
    assert (await go(provided, payload)).why == (255, False, False, False)


# --- limits ---------------------------------------------------------------------------------------------------------------


@in_module
async def test_a_run_that_dies_of_its_memory_takes_none_of_its_neighbours_along(provided: Provided) -> None:
    """Two hold four fifths of theirs while a third wants more than it has."""
    holds = Python("held = bytearray(b'x') * (200 << 20)\nimport time; time.sleep(6)\nprint(len(held) >> 20)")
    wants = Python("held = []\nwhile True: held.append(bytearray(b'x') * (1 << 20))")
    *held, wanted = await asyncio.gather(*(go(provided, each) for each in (holds, holds, wants)))
    assert [(each.stdout, each.why) for each in held] == [(b"200\n", (0, False, False, False))] * 2
    assert wanted.why == (137, False, True, False)


def spent_s(sandbox: Sandbox) -> float:
    """The processor time that the host's control group has counted."""
    path = f"/containers/{sandbox.id}/stats?stream=false&one-shot=true"
    return float(sandbox.daemon.call("GET", path)["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9


def test_processors_are_shared_out_as_asked(start: Start) -> None:
    """Three busy processes get half a processor together."""
    code = (
        "import os, time\nchildren = 0\nfor _ in range(2):\n if os.fork() == 0:\n  children = 0\n  break\n children += 1\n"
        "while time.process_time() < 0.6: pass\nfor _ in range(children): os.wait()"
    )
    began = time.monotonic()
    sandbox = start("python", NanoCpus=500_000_000)
    sandbox.run(Python(code))
    spent, passed = spent_s(sandbox), time.monotonic() - began
    assert 0.3 < spent < 0.5 * passed * 1.2


HOARD = r"""
import os, time
read, write = os.pipe()
for _ in range(60):
    if os.fork() == 0:
        held = []
        try:
            while len(held) < 3000: held.append(os.dup(1))
        except OSError: pass
        os.write(write, b"%d\n" % len(held))
        time.sleep(600)
counts = [int(line) for _, line in zip(range(60), open(read))]
print(min(counts), max(counts), flush=True)
time.sleep(600)
"""


def test_a_hoard_of_descriptors_is_bounded_and_the_host_has_its_own(start: Start) -> None:
    sandbox, talk = start("python"), Talk()
    for frame in talk.begin(Python(HOARD)):
        sandbox.stream.sendall(frame)
    said = b""
    while b"\n" not in said:
        said += b"".join(each.data for each in sandbox.feed(talk) if isinstance(each, Output))
    least, most = map(int, said.split())
    assert 900 < least <= most < 1024
    used, _, limit = map(int, Path("/proc/sys/fs/file-nr").read_text().split())
    assert used < limit / 2
    sandbox.destroy()
    sandbox.gone()


# --- environment ----------------------------------------------------------------------------------------------------------

DANGEROUS = (
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "NODE_OPTIONS",
    "BASH_ENV",
    "ENV",
)


@in_module
async def test_no_step_finds_what_another_put_into_its_environment(provided: Provided) -> None:
    export = "; ".join(f"export {name}=/workspace/x" for name in (*DANGEROUS, "PATH"))
    heard = await project(provided, export, "env", files={"x": b"exit 9\n"})
    lines = heard.outs[1, "stdout"].decode().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert found == ENVIRONMENT | {"PWD": "/workspace", "SHLVL": found["SHLVL"], "_": found["_"]}


@in_module
async def test_a_guest_cannot_choose_what_the_next_interpreter_loads(provided: Provided) -> None:
    """Not by files where interpreters look for some, in a run of its own or in the next one."""
    plant = (
        "import os, site\nfor name in ('/tmp/.bashrc', '/tmp/.profile', '/workspace/sitecustomize.py', '/tmp/.node_repl'):\n"
        " open(name, 'w').write('raise SystemExit(9)')\nprint(sorted(os.listdir('/workspace')))"
    )
    first = await go(provided, Python(plant))
    assert first.stdout == b"['main.py', 'sitecustomize.py']\n"
    for _ in range(2):
        assert (await go(provided, Python("print('on')"))).why == (0, False, False, False)
    heard = await project(
        provided, "true", "true", files={".bashrc": b"exit 9\n", ".bash_profile": b"exit 9\n"}
    )
    assert heard.steps == [(0, False)] * 2
