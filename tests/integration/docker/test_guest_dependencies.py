"""The recipe of docs/guest-dependencies.md, built as the page says, and its packages used by guests of both forms."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plimsoll.contract.requests import File, JavaScript, Project, Python
from providers.docker.frames import Output, Runnable, SnippetEnded, StepEnded
from tests.conftest import require
from tests.docs.pages import blocks
from tests.support.docker import ROOT, Daemon, Sandbox

# The first test waits for the image, half a minute on an idle machine.
pytestmark = pytest.mark.timeout(600)

PAGE = ROOT / "docs" / "guest-dependencies.md"

SOLVE = """
import json, os, sys, time
began = time.monotonic()
import numpy
numpy_ms = (time.monotonic() - began) * 1000
import scipy.linalg
both_ms = (time.monotonic() - began) * 1000
left = numpy.array([[3.0, 1.0], [1.0, 2.0]])
right = numpy.array([9.0, 8.0])
large = numpy.random.default_rng(1).random((400, 400))
numpy.linalg.solve(large @ large, large)  # enough work for as many threads as there are
print(json.dumps({
    "numpy": numpy.linalg.solve(left, right).round(9).tolist(),
    "scipy": scipy.linalg.solve(left, right).round(9).tolist(),
    "threads": len(os.listdir("/proc/self/task")),
    "openblas": "libopenblas" in open("/proc/self/maps").read(),
    "ms": [numpy_ms, both_ms],
}))
"""

BYTECODE = """
import sys, scipy.linalg
from pathlib import Path
stale = []
for module in [*sys.modules.values()]:
    source = getattr(module, "__file__", None) or ""
    if source.endswith(".py") and "dist-packages" in source:
        head, stat = Path(module.__cached__).read_bytes()[:16], Path(source).stat()
        if head[8:] != int(stat.st_mtime).to_bytes(4, "little") + stat.st_size.to_bytes(4, "little"):
            stale.append(source)
print(len(sys.modules) > 200, stale)
"""

WHAT_IS_LEFT = "find /workspace /tmp -mindepth 1; touch /usr/x /node_modules/x 2>&1 | grep -c 'cannot touch'"

DECIMAL = "console.log(new Decimal('0.1').plus('0.2').toString())"


def build(docker: Daemon, place: Path) -> str:
    """The content id of what the page's first block builds."""
    (place / "deploy").symlink_to(ROOT / "deploy")
    (commands,) = [block.text for block in blocks(PAGE) if "docker build" in block.text]
    # This daemon has no network of its own; the page's reader has.
    commands = commands.replace("docker build ", "docker build -q --network host ")
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=place,
        env=docker.environment | {"DOCKER_BUILDKIT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return docker.docker("image", "inspect", "-f", "{{.Id}}", "my-sandbox").strip()


@pytest.fixture(scope="module")
def mine(docker: Daemon, image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sandbox image with the packages of the page."""
    assert image  # the recipe stands on it, by its name
    require("docker", available=shutil.which("npm") is not None, why="npm is not installed")
    return build(docker, tmp_path_factory.mktemp("recipe"))


def said(docker: Daemon, image: str, runtime: str, payload: Runnable) -> str:
    """What a run prints that ends well and complains of nothing."""
    warm = {Python: "python", JavaScript: "javascript"}.get(type(payload))
    sandbox = Sandbox.start(docker, image, runtime, *([warm] if warm else []))
    try:
        events = sandbox.run(payload)
    finally:
        sandbox.destroy()
    heard = {"stdout": b"", "stderr": b""}
    for event in events:
        if isinstance(event, Output):
            heard[event.stream] += event.data
    exits = [event.exit_code for event in events if isinstance(event, SnippetEnded | StepEnded)]
    assert (set(exits), heard["stderr"]) == ({0}, b""), heard["stderr"].decode()
    return heard["stdout"].decode()


@pytest.mark.component("docker")
class TestImage:
    def test_it_stands_on_the_sandbox_image_and_asks_for_nothing_else(
        self, docker: Daemon, image: str, mine: str
    ) -> None:
        below: dict[str, Any] = docker.call("GET", f"/images/{image}/json")
        above: dict[str, Any] = docker.call("GET", f"/images/{mine}/json")
        layers = below["RootFS"]["Layers"]
        assert above["RootFS"]["Layers"][: len(layers)] == layers
        asked = (
            "Env",
            "Entrypoint",
            "Cmd",
            "WorkingDir",
            "StopSignal",
            "Volumes",
            "Healthcheck",
            "User",
            "Labels",
        )
        for name in asked:
            assert (above["Config"].get(name) or None) == (below["Config"].get(name) or None), name

    def test_it_adds_no_rights_and_nothing_that_a_guest_can_write(
        self, docker: Daemon, image: str, mine: str
    ) -> None:
        look = shlex.split("( -type f -perm /6000 -o ! -type l -perm -o+w -o ! -user 0 )")
        run = ("run", "--rm", "--network", "none", "--read-only", "--entrypoint", "find")
        found = docker.docker(*run, mine, "/", "-xdev", *look)
        assert found == docker.docker(*run, image, "/", "-xdev", *look)

    def test_nothing_of_the_build_stays_in_it(self, docker: Daemon, mine: str) -> None:
        run = ("run", "--rm", "--network", "none", "--read-only", "--entrypoint", "find")
        assert not docker.docker(
            *run, mine, "/var/lib/apt/lists", "/var/cache/apt", "/var/log", "/tmp", "-type", "f"
        )
        assert not docker.docker(*run, mine, "/", "-xdev", "-name", ".npm", "-o", "-name", ".cache")


class TestPython:
    def test_a_snippet_solves_a_linear_system_on_one_thread(
        self, docker: Daemon, mine: str, runtime: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = json.loads(said(docker, mine, runtime, Python(SOLVE)))
        assert (found["numpy"], found["scipy"]) == ([2.0, 3.0], [2.0, 3.0])
        assert (found["threads"], found["openblas"]) == (1, True)
        numpy_ms, both_ms = found["ms"]
        with capsys.disabled():
            print(f"\n{runtime:6} import numpy {numpy_ms:4.0f} ms, with scipy.linalg {both_ms:4.0f} ms")

    def test_a_step_does_too_and_could_have_more_threads(
        self, docker: Daemon, mine: str, runtime: str
    ) -> None:
        steps = ("python3 solve.py", "cd / && OPENBLAS_NUM_THREADS=2 python3 -I /workspace/solve.py")
        heard = said(docker, mine, runtime, Project((File("solve.py", SOLVE.encode()),), steps))
        one, two = map(json.loads, heard.splitlines())
        assert (one["scipy"], one["threads"]) == ([2.0, 3.0], 1)
        assert two["threads"] == min(2, os.cpu_count() or 1)

    def test_modules_come_compiled_and_nothing_is_written(
        self, docker: Daemon, mine: str, runtime: str
    ) -> None:
        steps = (f"python3 -c '{BYTECODE}'", WHAT_IS_LEFT)
        assert said(docker, mine, runtime, Project((), steps)) == "True []\n2\n"


class TestJavaScript:
    @pytest.mark.parametrize(
        "code",
        [
            f"const Decimal = require('decimal.js'); {DECIMAL}",
            f"import Decimal from 'decimal.js'; {DECIMAL}",
            f"const {{ default: Decimal }} = await import('decimal.js'); {DECIMAL}",
        ],
        ids=["require", "import", "await-import"],
    )
    def test_a_snippet_finds_the_npm_package(
        self, docker: Daemon, mine: str, runtime: str, code: str
    ) -> None:
        assert said(docker, mine, runtime, JavaScript(code)) == "0.3\n"

    def test_a_step_finds_it_from_any_folder(self, docker: Daemon, mine: str, runtime: str) -> None:
        files = (
            File("main.js", f"const Decimal = require('decimal.js'); {DECIMAL}".encode()),
            File("a/b/main.mjs", f"import Decimal from 'decimal.js'; {DECIMAL}".encode()),
        )
        steps = ("node main.js", "cd a/b && node main.mjs", "cd / && node /workspace/a/b/main.mjs")
        assert said(docker, mine, runtime, Project(files, steps)) == "0.3\n" * 3
