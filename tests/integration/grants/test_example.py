"""examples/grant.py: every fact holds, it needs no rights, and it says so by its exit status when a fact does not hold."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.component("wasm")
EXAMPLE = ROOT / "examples" / "grant.py"
WIDER = """
import sys
source = open(sys.argv[1]).read()
assert source.count('["GET /v1/employees/*"]') == 1
source = source.replace('["GET /v1/employees/*"]', '["GET /v1/employees/*", "GET /v1/salaries/*"]')
exec(compile(source, sys.argv[1], "exec"))
"""
PRINTING = """
import sys
source = open(sys.argv[1]).read()
assert source.count('run(SALARY, "hr-pay")') == 1
source = source.replace('run(SALARY, "hr-pay")', 'run(SALARY + f"console.log({READ!r})", "hr-pay")')
exec(compile(source, sys.argv[1], "exec"))
"""


def example(*command: str | os.PathLike[str]) -> "subprocess.CompletedProcess[str]":
    environment = {name: os.environ[name] for name in ("HOME", "XDG_CACHE_HOME") if name in os.environ}
    return subprocess.run(
        command,
        env=environment | {"PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def values(lines: Sequence[str]) -> dict[str, str]:
    return {line[:36].rstrip(): line[37:] for line in lines}


def test_every_fact_holds() -> None:
    done = example(sys.executable, "-W", "error", EXAMPLE)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "EXPECTED" not in done.stdout
    if os.geteuid() == 0:
        facts = values(done.stdout.splitlines())
        assert facts["in memory of all but the broker"] == "not found"
        assert facts["in the broker's, where it must be"] == "found"


@pytest.mark.skipif(os.geteuid() != 0, reason="whoever is not root has no such right to give up")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv")
def test_without_the_right_to_read_memory_it_says_that_it_did_not_look() -> None:
    without = ("setpriv", "--inh-caps=-sys_ptrace", "--bounding-set=-sys_ptrace")
    done = example(*without, sys.executable, "-W", "error", EXAMPLE)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    facts = values(done.stdout.splitlines())
    for name in ("in memory of all but the broker", "in the broker's, where it must be"):
        assert facts[name] == "not looked: only root may"


@pytest.mark.parametrize(
    ("change", "fact"),
    [(WIDER, "a route that is not listed"), (PRINTING, "in an answer, a record, a kept run")],
    ids=["a profile that allows more", "a program that prints a credential"],
)
def test_a_fact_that_does_not_hold_is_shown_and_its_exit_status_is_1(change: str, fact: str) -> None:
    done = example(sys.executable, "-c", change, EXAMPLE)
    assert done.returncode == 1, done.stderr
    assert "   EXPECTED " in values(done.stdout.splitlines())[fact]
