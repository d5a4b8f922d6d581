"""One daemon and one image for all tests of this folder; what is tested is tested under runc and under gVisor."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.docker import Daemon, Sandbox, build_image, daemon

RUNTIMES = (("runc", "docker"), ("runsc", "runsc"))


@pytest.fixture(scope="session")
def docker() -> Iterator[Daemon]:
    """In a directory with a short name: a Unix socket's path has little room."""
    with tempfile.TemporaryDirectory(prefix="pd-") as place, daemon(Path(place)) as found:
        yield found


@pytest.fixture(scope="session")
def image(docker: Daemon) -> str:
    return build_image(docker)


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.component(component)) for name, component in RUNTIMES]
)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Start = Callable[..., Sandbox]


@pytest.fixture
def start(docker: Daemon, image: str, runtime: str) -> Iterator[Start]:
    """Starts containers, warm for the languages given; all are gone after the test."""
    made: list[Sandbox] = []

    def one(*warm: str, **changes: object) -> Sandbox:
        made.append(Sandbox.start(docker, image, runtime, *warm, **changes))
        return made[-1]

    yield one
    for sandbox in made:
        sandbox.destroy()
