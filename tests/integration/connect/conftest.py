"""A real service with the wasm provider, and callers of it."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx2
import pytest

from tests.support.service import Running, environment, make_caller, started

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Served:
    """The started service and one caller's token."""

    running: Running
    token: str = field(repr=False)

    @property
    def url(self) -> str:
        return self.running.url

    def fresh(self) -> "Served":
        """The same service with a caller that has no runs yet."""
        return Served(self.running, make_caller(self.running.environ, f"fresh-{next(_numbers)}"))

    def client(self) -> httpx2.Client:
        """A plain HTTP client."""
        return self.running.client(self.token)

    def call(self, procedure: str, body: bytes | str, **headers: str) -> httpx2.Response:
        """One call of the compatible API; a header given as "" is left out."""
        sent = {"content-type": "application/json", "connect-protocol-version": "1"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        with self.client() as client:
            return client.post(
                f"/plimsoll.v1.SandboxService/{procedure}",
                content=body,
                headers={name: value for name, value in sent.items() if value},
            )

    def runs(self) -> list[dict[str, object]]:
        """The caller's runs, as the REST API has them."""
        with self.client() as client:
            listed: list[dict[str, object]] = client.get("/v1/runs").json()["runs"]
        return listed


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("connect")
    environ = environment(folder / "data", SANDBOX_PROVIDER="wasm", SANDBOX_RATE_PER_MIN="0")
    token = make_caller(environ, "caller")
    with started(environ, folder / "log") as running:
        yield Served(running, token)
