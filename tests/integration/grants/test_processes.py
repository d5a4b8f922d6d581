"""What docs/architecture.md draws is what runs: which process has the database, a listener, a key, an environment."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.grants.conftest import BROKER, Granted, processes_of
from tests.integration.service.stand import Stand
from tests.support.service import Running, make_caller, started

pytestmark = pytest.mark.component("wasm")

LISTENS = "0A"
"""As /proc/net/tcp says it."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    granted = Granted(Stand(tmp_path_factory.mktemp("drawn"), settings=BROKER | {"SANDBOX_PROVIDER": "wasm"}))
    with started(granted.stand.environ(), granted.stand.folder / "log") as running:
        yield running


@pytest.fixture(scope="module")
def drawn(running: Running) -> dict[str, list[int]]:
    """The processes by their place in the drawing."""
    found: dict[str, list[int]] = {"service": [running.process.pid], "broker": [], "worker": []}
    for pid, words in processes_of(running.process.pid).items():
        found["broker" if "broker.main" in words else "worker"].append(pid)
    return found


def open_files(pid: int) -> set[str]:
    links = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.add(str(each.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return links


def listening() -> set[str]:
    """Sockets of TCP that listen, as descriptors name them."""
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        if (path := Path("/proc/net") / name).exists()
        for line in path.read_text().splitlines()[1:]
    ]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == LISTENS}


def test_there_is_one_service_one_broker_and_a_provider_with_its_runners(drawn: dict[str, list[int]]) -> None:
    assert len(drawn["service"]) == len(drawn["broker"]) == 1
    assert len(drawn["worker"]) >= 3
    starts = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in drawn["worker"]]
    assert any(b"providers.main" in each for each in starts)


def test_the_service_alone_has_the_database_open_and_listens(drawn: dict[str, list[int]]) -> None:
    has = {name: {link for pid in pids for link in open_files(pid)} for name, pids in drawn.items()}
    database = {
        name for name, links in has.items() if any(re.search(r"/plimsoll\.db", link) for link in links)
    }
    assert database == {"service"}
    there = listening()
    assert {name for name, links in has.items() if links & there} == {"service"}


def test_neither_broker_nor_worker_has_an_environment_or_a_key_in_its_arguments(
    drawn: dict[str, list[int]],
) -> None:
    for pid in (*drawn["broker"], *drawn["worker"]):
        assert Path(f"/proc/{pid}/environ").read_bytes().strip(b"\0") == b""
        assert b"vault" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_nobody_keeps_the_private_key_file_open(running: Running, drawn: dict[str, list[int]]) -> None:
    key = Path(running.environ["PLIMSOLL_DATA_DIR"]) / "vault.private"
    assert key.stat().st_mode & 0o777 == 0o600
    for pids in drawn.values():
        assert not any("vault." in link for pid in pids for link in open_files(pid))


def test_a_callers_token_is_in_no_file_of_the_service(running: Running) -> None:
    token = make_caller(running.environ, "looked-for")
    assert running.run("1", token).status_code == 200
    data = Path(running.environ["PLIMSOLL_DATA_DIR"])
    searched = [path for path in (running.log, *data.rglob("*")) if path.is_file()]
    holding = {
        name for name in (b"looked-for", token.encode()) for path in searched if name in path.read_bytes()
    }
    assert holding == {b"looked-for"}  # the caller's name: the search finds what is there
