"""The guards that the other tests rely on."""

import asyncio
import socket

import pytest

from tests import conftest
from tests.conftest import COMPONENTS, require


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for here does not count as a test of that component."""
    monkeypatch.setattr(conftest, "_asked", set())


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_network_sockets_are_refused(family: socket.AddressFamily) -> None:
    with pytest.raises(AssertionError, match="network socket"):
        socket.socket(family)


def test_the_default_family_is_refused_too() -> None:
    with pytest.raises(AssertionError, match="network socket"):
        socket.socket()


async def test_an_event_loop_and_a_unix_pair_work() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(b"x")
        assert await asyncio.get_running_loop().sock_recv(ours, 1) == b"x"


def test_an_absent_component_skips_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLIMSOLL_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="wasm: it is away"):
        require("wasm", available=False, why="it is away")


def test_an_absent_required_component_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_REQUIRE", "seccomp, wasm")
    with pytest.raises(pytest.fail.Exception, match="wasm is required by PLIMSOLL_REQUIRE, but it is away"):
        require("wasm", available=False, why="it is away")


def test_an_unknown_component_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="unknown component"):
        require("wsam", available=True, why="")


@pytest.mark.parametrize("name", sorted(name for name, look in COMPONENTS.items() if look))
def test_every_search_gives_an_answer_with_a_reason(name: str) -> None:
    look = COMPONENTS[name]
    assert look is not None
    available, why = look()
    assert isinstance(available, bool)
    assert why
