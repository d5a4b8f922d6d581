"""What is tested is tested under runc and under gVisor."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.docker import Daemon, Sandbox

RUNTIME_PARAMS = (
    pytest.param("runc", marks=pytest.mark.component("docker")),
    pytest.param("runsc", marks=pytest.mark.component("runsc")),
)


@pytest.fixture(params=RUNTIME_PARAMS)
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
