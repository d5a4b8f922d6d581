"""A real service that runs JavaScript where the wasm component is there, and runs nothing where it is not."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.conftest import COMPONENTS
from tests.support.service import Running, environment, make_caller, started


@dataclass(frozen=True, slots=True)
class Served:
    """A started service, a caller's token, and whether it runs code."""

    running: Running
    token: str = field(repr=False)
    executes: bool


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    look = COMPONENTS["wasm"]
    executes = look is not None and look()[0]
    folder = tmp_path_factory.mktemp("service")
    environ = environment(folder / "data", **({"SANDBOX_PROVIDER": "wasm"} if executes else {}))
    token = make_caller(environ, "caller")
    with started(environ, folder / "log") as running:
        yield Served(running, token, executes)
