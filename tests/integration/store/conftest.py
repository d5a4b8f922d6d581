"""Every test that takes `store` runs on SQLite, and on Postgres where a server can be started."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.store.store import Store, open_store
from tests.conftest import COMPONENTS, require
from tests.integration.store import servers
from tests.integration.store.samples import Clock


def _need_server(*, available: bool, why: str) -> None:
    if "postgres" in COMPONENTS:
        require("postgres", available=available, why=why)
    elif not available:
        pytest.skip(f"postgres: {why}")


@pytest.fixture(scope="session")
def postgres_socket() -> Iterator[Path]:
    programs = servers.binaries()
    _need_server(available=programs is not None, why="no server is installed (Debian: postgresql)")
    assert programs is not None
    with servers.postgres(programs) as socket:
        yield socket


@pytest.fixture
def postgres_url(postgres_socket: Path) -> str:
    """An empty database. The same one is emptied each time: a new one is a thousand files to make and remove."""
    servers.execute(postgres_socket, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return servers.url(postgres_socket)


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "plimsoll.db"


@pytest.fixture
def sqlite_url(sqlite_path: Path) -> str:
    return f"sqlite+aiosqlite:///{sqlite_path}"


@pytest.fixture(params=("sqlite", "postgres"))
def database_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(database_url: str, clock: Clock) -> AsyncIterator[Store]:
    async with open_store(database_url, clock=clock) as opened:
        yield opened


@pytest.fixture(autouse=True)
def private_files() -> Iterator[None]:
    """As both commands do first."""
    before = os.umask(0o077)
    yield
    os.umask(before)
