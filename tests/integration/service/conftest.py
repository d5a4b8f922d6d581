"""Stands on SQLite and, where a server can be started, on Postgres."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import require
from tests.integration.service.stand import Served, Stand
from tests.integration.store import servers
from tests.support.service import make_caller


@pytest.fixture(scope="session")
def postgres_socket() -> Iterator[Path]:
    programs = servers.binaries()
    require("postgres", available=programs is not None, why="no server is installed (Debian: postgresql)")
    assert programs is not None
    with servers.postgres(programs) as socket:
        yield socket


def emptied(socket: Path) -> str:
    """The server's one database, with nothing in it."""
    servers.execute(socket, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return servers.url(socket)


@pytest.fixture(params=("sqlite", "postgres"))
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    if request.param == "sqlite":
        return Stand(tmp_path)
    return Stand(tmp_path, emptied(request.getfixturevalue("postgres_socket")))


@pytest.fixture
def sqlite_stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


@pytest.fixture
def postgres_stand(tmp_path: Path, postgres_socket: Path) -> Stand:
    return Stand(tmp_path, emptied(postgres_socket))


@dataclass(frozen=True, slots=True)
class House:
    """One service that many tests share, with callers who know nothing of each other."""

    stand: Stand
    served: Served
    alice: str
    bob: str
    reader: str


@pytest.fixture(scope="session", params=("sqlite", "postgres"))
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder, url = tmp_path_factory.mktemp(f"house-{request.param}"), ""
    if request.param == "postgres":
        socket: Path = request.getfixturevalue("postgres_socket")
        servers.execute(socket, "DROP DATABASE IF EXISTS house WITH (FORCE)", "CREATE DATABASE house")
        url = servers.url(socket).replace("/postgres?", "/house?")
    stand = Stand(folder, url, {"SANDBOX_PER_CALLER_CONCURRENT": "64"})
    with stand.service(more={"TEST_SLOTS": "64"}) as served:
        token = partial(make_caller, stand.environ())
        yield House(stand, served, token("alice"), token("bob"), token("reader", "--scope", "records:read"))
