"""The agent's socket for calls, in a loop of the test's own: what guests send becomes frames, and every bound holds."""

import json
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.contract.grants import IN_FLIGHT, MESSAGE_BYTES
from providers.docker import frames
from providers.docker.agent import channel, host
from providers.docker.agent.channel import Channel

PATIENCE_S = 10


class Loop:
    """The agent's loop with a host that can be looked at."""

    def __init__(self, path: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.path = path
        self.sent: list[tuple[dict[str, Any], bytes]] = []
        self.channel = Channel(self.selector, lambda header, body: self.sent.append((header, body)), path)
        self._guests: list[socket.socket] = []

    def turn(self, seconds: float = 0.05) -> None:
        for key, _ in self.selector.select(seconds):
            if self.selector.get_map().get(key.fd) is key:
                key.data()

    def until(self, count: int) -> None:
        """Until so many frames came."""
        for _ in range(PATIENCE_S * 20):
            if len(self.sent) >= count:
                return
            self.turn()
        raise TimeoutError(len(self.sent))

    def idle(self) -> None:
        """Until nothing is to be done."""
        while self.selector.select(0.05):
            self.turn(0)

    def guest(self, message: bytes | None = None) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        self._guests.append(sock)
        sock.settimeout(PATIENCE_S)
        sock.connect(self.path)
        if message is not None:
            data = struct.pack(">I", len(message)) + message
            threading.Thread(target=sock.sendall, args=(data,), daemon=True).start()
        return sock

    def close(self) -> None:
        self.channel.close()
        self.selector.close()
        for sock in self._guests:
            sock.close()


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(str(tmp_path / "calls"))
    yield made
    made.close()


def answer_of(loop: Loop, guest: socket.socket) -> bytes:
    loop.idle()
    size = int.from_bytes(guest.recv(4), "big")
    return guest.recv(size, socket.MSG_WAITALL)


def test_the_agent_and_the_host_agree_on_every_bound() -> None:
    assert channel.MESSAGE_BYTES == MESSAGE_BYTES == host.MESSAGE_BYTES
    assert channel.ANSWER_BYTES == frames.ANSWER_BYTES
    assert (channel.CALLS, channel.CALLS_BYTES) == (frames.CALLS, frames.CALLS_BYTES)
    assert channel.IN_FLIGHT * 2 == IN_FLIGHT * 2 == frames.UNANSWERED
    assert channel.PATH == host.CHANNEL


def test_a_message_becomes_a_frame_and_its_answer_goes_back(loop: Loop) -> None:
    guest = loop.guest(b"message")
    loop.until(1)
    assert loop.sent == [({"t": "call", "n": 1, "size": 7}, b"message")]
    loop.channel.answered(1, 6, b"ans")
    loop.channel.answered(1, 6, b"wer")
    assert answer_of(loop, guest) == b"answer"
    assert guest.recv(1) == b""


def test_a_large_message_is_cut_into_frames_that_follow_each_other(loop: Loop) -> None:
    message = bytes(range(256)) * 6_000
    loop.guest(message)
    loop.guest(b"other")
    loop.until(4)
    whole = [body for header, body in loop.sent if header["size"] == len(message)]
    assert b"".join(whole) == message
    assert all(len(body) <= channel.CHUNK for body in whole)
    numbers = [header["n"] for header, _ in loop.sent]
    assert numbers == sorted(numbers)


def test_only_so_many_are_under_way_and_the_others_come_when_there_is_a_place(loop: Loop) -> None:
    guests = [loop.guest(b"x") for _ in range(channel.IN_FLIGHT + 4)]
    loop.until(channel.IN_FLIGHT)
    loop.idle()
    assert len(loop.sent) == channel.IN_FLIGHT
    loop.channel.answered(1, 2, b"ok")
    loop.until(channel.IN_FLIGHT + 1)
    assert len(guests) == 20


def test_only_so_many_connections_are_taken_and_the_others_wait(loop: Loop) -> None:
    silent = [loop.guest() for _ in range(channel.CONNECTIONS)]
    loop.idle()
    asking = loop.guest(b"x")
    loop.turn()
    assert loop.sent == []
    silent.pop().close()
    loop.until(1)
    loop.channel.answered(1, 2, b"ok")
    assert answer_of(loop, asking) == b"ok"


@pytest.mark.parametrize("length", [0, channel.MESSAGE_BYTES + 1, 0xFFFFFFFF])
def test_a_length_that_cannot_be_ends_the_connection(loop: Loop, length: int) -> None:
    guest = loop.guest()
    guest.sendall(struct.pack(">I", length))
    loop.turn()
    loop.idle()
    assert guest.recv(1) == b""
    assert loop.sent == []


def test_one_that_goes_away_leaves_its_place(loop: Loop) -> None:
    for _ in range(3):
        gone = [loop.guest(b"x") for _ in range(channel.IN_FLIGHT)]
        before = len(loop.sent)
        loop.until(before + channel.IN_FLIGHT)
        for guest in gone:
            guest.close()
        for header, _ in loop.sent[before:]:
            loop.channel.answered(int(header["n"]), 2, b"ok")
        loop.idle()
    assert [header["n"] for header, _ in loop.sent] == list(range(1, 3 * channel.IN_FLIGHT + 1))


def test_an_answer_to_nobody_is_nothing(loop: Loop) -> None:
    loop.channel.answered(9, 2, b"ok")


@pytest.mark.parametrize("bound", ["CALLS", "CALLS_BYTES"])
def test_beyond_the_bounds_of_a_run_the_agent_answers_by_itself(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(channel, bound, 1)
    loop.guest(b"x")
    loop.until(1)
    refused = loop.guest(b"x")
    loop.turn()
    loop.turn()
    assert json.loads(answer_of(loop, refused))["error"]["code"] == "budget"
    assert len(loop.sent) == 1


def test_when_the_run_is_over_there_is_no_channel(loop: Loop) -> None:
    waiting, silent = loop.guest(b"x"), loop.guest()
    loop.until(1)
    loop.channel.close()
    loop.channel.close()
    assert (waiting.recv(1), silent.recv(1)) == (b"", b"")
    assert not loop.selector.get_map()
    with pytest.raises(FileNotFoundError):
        loop.guest()
    loop.channel.answered(1, 2, b"ok")
