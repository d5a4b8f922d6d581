"""Unit tests open no network sockets."""

import socket
from typing import Any

import pytest

_NETWORK = {socket.AF_INET, socket.AF_INET6}


class _LocalSocket(socket.socket):
    def __init__(self, family: int = -1, *args: Any, **kwargs: Any) -> None:
        super().__init__(family, *args, **kwargs)
        if self.family in _NETWORK:
            self.close()
            raise AssertionError(
                "a unit test opened a network socket; such a test belongs in tests/integration"
            )


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse AF_INET and AF_INET6; pairs of Unix sockets, which event loops use, stay allowed."""
    monkeypatch.setattr(socket, "socket", _LocalSocket)
