"""The service itself, reached over TCP, so that something can stand between."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.service import environment, make_caller, started


@dataclass(frozen=True, slots=True)
class Served:
    """The started service's address and one caller's token."""

    url: str
    token: str = field(repr=False)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("client")
    environ = environment(folder / "data", SANDBOX_PROVIDER="wasm", SANDBOX_RATE_PER_MIN="0")
    token = make_caller(environ, "caller")
    with started(environ, folder / "log") as running:
        yield Served(running.url, token)
