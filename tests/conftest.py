"""What every test may lean on: components that can be absent, and one docker daemon that is made when a test first asks.

A test that needs one says so, with the marker `@pytest.mark.component("wasm")` where this file can tell
whether it is there, or with a call `require("guest-build", available=…, why="…")` where only the test can. An
absent component skips the test and the reason is printed. The environment variable `PLIMSOLL_REQUIRE` (names,
comma separated) turns that skip into a failure, and fails a whole run in which no test asked for a named
component.
"""

import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.docker import Daemon, available, build_image, daemon, runsc_available

ROOT = Path(__file__).resolve().parent.parent

Answer = tuple[bool, str]
"""Whether a component is available, and the reason when it is not."""


def _module(name: str) -> Answer:
    return importlib.util.find_spec(name) is not None, f"the module {name} is not installed"


def _wasm() -> Answer:
    if not any((ROOT / "providers" / "wasm").rglob("*.wasm")):
        return False, "there is no compiled guest under providers/wasm"
    return _module("wasmtime")


def _seccomp() -> Answer:
    if sys.platform != "linux":
        return False, f"seccomp is a Linux facility, this is {sys.platform}"
    if platform.machine() not in {"x86_64", "aarch64"}:
        return False, f"the filter is written for x86_64 and aarch64, this is {platform.machine()}"
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return "\nSeccomp:" in status, "this kernel has no seccomp"


def _published_client() -> Answer:
    python = ROOT / ".venv-published" / "bin" / "python"
    return python.exists(), "there is no .venv-published (`make test` makes it)"


COMPONENTS: dict[str, Callable[[], Answer] | None] = {
    "wasm": _wasm,
    "guest-build": None,
    "chromium": None,
    "postgres": None,
    "schemathesis": lambda: _module("schemathesis"),
    "openapi-client": lambda: _module("openapi_python_client"),
    "seccomp": _seccomp,
    "published-client": _published_client,
    "docker": available,
    "runsc": runsc_available,
}
"""Every component by name, with the function that looks for it (None: the test itself can tell)."""

_asked: set[str] = set()


def _required() -> set[str]:
    return {name.strip() for name in os.environ.get("PLIMSOLL_REQUIRE", "").split(",") if name.strip()}


def require(component: str, available: bool, why: str) -> None:  # noqa: FBT001 - reads well with its keyword
    """Go on if `component` is available; otherwise skip the test, or fail it if PLIMSOLL_REQUIRE names it."""
    if component not in COMPONENTS:
        pytest.fail(f"unknown component {component!r}: add it to COMPONENTS in tests/conftest.py")
    _asked.add(component)
    if available:
        return
    if component in _required():
        pytest.fail(f"{component} is required by PLIMSOLL_REQUIRE, but {why}")
    pytest.skip(f"{component}: {why}")


def pytest_configure(config: pytest.Config) -> None:
    if unknown := _required() - COMPONENTS.keys():
        names = ", ".join(sorted(unknown))
        raise pytest.UsageError(f"PLIMSOLL_REQUIRE names unknown components: {names}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("component"):
        (name,) = marker.args
        look = COMPONENTS.get(name)
        if look is None:
            pytest.fail(f"nothing looks for component {name!r}: call require() in the test instead")
        available, why = look()
        require(name, available, why)


def _is_whole_run(config: pytest.Config) -> bool:
    chosen = config.getoption("keyword") or config.getoption("markexpr") or config.getoption("collectonly")
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not chosen


def _never_asked(config: pytest.Config) -> set[str]:
    return _required() - _asked if _is_whole_run(config) else set()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _never_asked(session.config) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name in sorted(_never_asked(config)):
        terminalreporter.write_line(
            f"ERROR PLIMSOLL_REQUIRE names {name}, and no test asked for it", red=True
        )


@pytest.fixture(scope="session")
def docker() -> Iterator[Daemon]:
    """One docker daemon for all tests that ask, in a directory with a short name: a Unix socket's path has little room."""
    with tempfile.TemporaryDirectory(prefix="pd-") as place, daemon(Path(place)) as found:
        yield found


@pytest.fixture(scope="session")
def image(docker: Daemon) -> str:
    """The content id of the sandbox image in it."""
    return build_image(docker)
