"""The limits every sandbox container is created with bite, under runc and under gVisor, tried from inside."""

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.contract.requests import Python
from providers.docker.frames import SnippetEnded
from tests.integration.docker.conftest import Start
from tests.integration.docker.test_agent import python
from tests.support.docker import Sandbox

WALLS = (Path(__file__).parent / "inside" / "walls.py").read_text()


@pytest.fixture
def answers(start: Start) -> dict[str, Any]:
    heard = python(start, WALLS)
    assert heard.exits == [0], heard.stderr
    found: dict[str, Any] = json.loads(heard.stdout[0])
    return found


def test_a_guest_writes_to_sized_mounts_only_and_reaches_nobody(answers: dict[str, Any]) -> None:
    assert set(answers["writable"]) <= {"/workspace", "/tmp", "/dev/shm"}
    assert {"/workspace", "/tmp"} <= set(answers["writable"])
    assert set(answers["full"].values()) <= {"ENOSPC", "EFBIG"}
    assert set(answers["execute"].values()) == {"EACCES"}
    for what in ("metadata", "outside", "outside6", "datagram"):
        assert answers[what] in {"ENETUNREACH", "EADDRNOTAVAIL", "EHOSTUNREACH"}, what
    assert answers["names"] != "done"
    assert answers["interfaces"] == ["lo"]


def ending(sandbox: Sandbox) -> int | None:
    """The exit code that the agent still gave, or None when the sandbox went with it."""
    try:
        end = sandbox.run(Python("x = [bytearray(1 << 20) for _ in range(1000)]\nprint(len(x))"))[-1]
    except EOFError:
        return None
    assert isinstance(end, SnippetEnded)
    return end.exit_code


def test_memory_ends_at_its_limit(start: Start) -> None:
    """Whichever process the kernel takes: the guest, or the whole sandbox."""
    sandbox = start("python", AutoRemove=False, Memory=128 << 20, MemorySwap=128 << 20)
    assert ending(sandbox) in {None, 137}


def test_processes_end_at_their_limit(start: Start) -> None:
    code = (
        "import os, time\nmade = 0\ntry:\n while made < 2000:\n  if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "  made += 1\nexcept OSError: pass\nprint(made)"
    )
    try:
        heard = python(start, code)
    except EOFError:
        return  # gVisor of 2022 comes to the limit of its own threads
    assert 20 < int(heard.stdout[0]) < 130
