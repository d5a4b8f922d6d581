"""A service waits for the broker of a killed one, which still has its socket for a moment."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app.brokerage import BACKLOG, PAUSES, bind_when_free


@pytest.fixture
def path() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pb-") as folder:  # a socket's path must be short
        Path(folder).chmod(0o700)
        yield Path(folder) / "socket"


def listening(path: Path) -> socket.socket:
    """What another service's broker has."""
    other = socket.socket(socket.AF_UNIX)
    other.bind(str(path))
    other.listen(BACKLOG)
    return other


def test_the_broker_of_a_killed_service_is_waited_for(path: Path) -> None:
    other, pauses = listening(path), 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            other.close()

    with bind_when_free(path, pause) as bound:
        assert (bound.getsockname(), pauses) == (str(path), 3)


def test_one_that_stays_ends_the_start_with_its_reason(path: Path) -> None:
    pauses: list[None] = []
    with (
        closing(listening(path)),
        pytest.raises(OSError, match="broker of another service still listens here: end that service"),
    ):
        bind_when_free(path, lambda: pauses.append(None))
    assert len(pauses) == PAUSES


def test_a_free_place_is_taken_at_once(path: Path) -> None:
    with bind_when_free(path, lambda: pytest.fail("it waited")) as bound:
        assert bound.getsockname() == str(path)
