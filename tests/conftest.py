"""What every test may lean on: components that can be absent, and one docker daemon that is made when a test first asks.

A test that needs one says so, with the marker `@pytest.mark.component("wasm")` where this file can tell
whether it is there, or with a call `require("guest-build", available=…, why="…")` where only the test can. An
absent component skips the test and the reason is printed. The environment variable `PLIMSOLL_REQUIRE` (names,
comma separated) turns that skip into a failure. `tests/run.py` runs a whole layer, and fails if no test of it asked for a
named component: it reads them from the file that `PLIMSOLL_ASKED` names.
"""

import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from typing_extensions import override
from xdist.scheduler import LoadScopeScheduling

from tests.support.docker import Daemon, available, daemon, prepare, runsc_available
from tests.support.layers import alone, file_of, later, layer_of, piece, seconds

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


# On a busy machine any example may take long, and is no less true.
settings.register_profile("plimsoll", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("plimsoll")


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


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Of a layer (`PLIMSOLL_TEST_LAYER`), no file of another is read, except for the long one: any may have a test for it."""
    layer = os.environ.get("PLIMSOLL_TEST_LAYER")
    if layer in {None, "long"} or not collection_path.name.startswith("test_"):
        return None
    return True if collection_path.suffix == ".py" and layer_of(collection_path) != layer else None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Each piece of the tests goes to one worker, which owns what it starts for it."""

    class Pieces(LoadScopeScheduling):  # type: ignore[misc]  # the package says nothing of its types
        @override
        def _split_scope(self, nodeid: str) -> str:
            return piece(nodeid)

    return Pieces(config, log)


def _is_of(layer: str, item: pytest.Item) -> bool:
    """Whether a test that was collected for a layer belongs to it."""
    case = getattr(item, "callspec", None)
    late = case is not None and later(item.nodeid, case.id)
    if layer != "long":
        return not late
    return late or layer_of(item.path) == "long" or item.get_closest_marker("sized") is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """What belongs to the long layer, if that is asked for; what measures time is marked; the longest files come first."""
    if layer := os.environ.get("PLIMSOLL_TEST_LAYER"):
        chosen = [each for each in items if _is_of(layer, each)]
        config.hook.pytest_deselected(items=[each for each in items if each not in set(chosen)])
        items[:] = chosen
    for item in items:
        if alone(item.nodeid):
            item.add_marker(pytest.mark.alone)
    yield  # to who chooses by markers, and puts together what shares a fixture
    items.sort(key=lambda item: (-seconds(file_of(item.nodeid)), piece(item.nodeid)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test printed travels to who reports it as UTF-8, which has no lone surrogates."""
    report = yield
    report.sections = [
        (name, said.encode("utf-8", "backslashreplace").decode()) for name, said in report.sections
    ]
    return report


def pytest_sessionfinish() -> None:
    if place := os.environ.get("PLIMSOLL_ASKED"):
        with Path(place).open("a", encoding="ascii") as file:
            file.writelines(f"{name}\n" for name in sorted(_asked))


@pytest.fixture(scope="session")
def docker_with_image() -> Iterator[tuple[Daemon, str]]:
    """In a directory with a short name: a Unix socket's path has little room."""
    with tempfile.TemporaryDirectory(prefix="pd-") as place:
        image = prepare(Path(place))
        with daemon(Path(place)) as found:
            yield found, image


@pytest.fixture(scope="session")
def docker(docker_with_image: tuple[Daemon, str]) -> Daemon:
    """One docker daemon for all tests of a worker that ask."""
    return docker_with_image[0]


@pytest.fixture(scope="session")
def image(docker_with_image: tuple[Daemon, str]) -> str:
    """The content id of the sandbox image in it."""
    return docker_with_image[1]
