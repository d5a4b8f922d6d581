"""The host's end of the socketpair: what leaves when, and that the order never changes."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from plimsoll.contract.frames import Decoder, Frame, encode
from providers.host.wire import HOLD_S, Wire

FIRST, SECOND = ({"n": 1}, b"one"), ({"n": 2}, b"two")


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Wire, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    wire = Wire(ours, lambda _header, _body: None)
    yield wire, theirs
    wire.close()
    theirs.close()


def come(sock: socket.socket) -> list[Frame]:
    """What has come by now."""
    try:
        return list(Decoder().feed(sock.recv(1 << 20)))
    except BlockingIOError:
        return []


async def test_a_frame_leaves_at_once(ends: tuple[Wire, socket.socket]) -> None:
    ends[0].send(*FIRST)
    assert come(ends[1]) == [FIRST]


async def test_a_held_frame_leaves_with_the_next(ends: tuple[Wire, socket.socket]) -> None:
    wire, peer = ends
    wire.hold(*FIRST)
    assert come(peer) == []
    wire.send(*SECOND)
    assert come(peer) == [FIRST, SECOND]
    await asyncio.sleep(3 * HOLD_S)
    assert come(peer) == []


async def test_a_held_frame_leaves_soon_when_nothing_follows(ends: tuple[Wire, socket.socket]) -> None:
    wire, peer = ends
    for frame in (FIRST, SECOND):
        wire.hold(*frame)
    await asyncio.sleep(3 * HOLD_S)
    assert come(peer) == [FIRST, SECOND]


async def test_what_the_kernel_does_not_take_yet_keeps_its_place(ends: tuple[Wire, socket.socket]) -> None:
    wire, peer = ends
    big = ({"n": 0}, b"x" * 4_000_000)
    wire.send(*big)
    wire.hold(*FIRST)
    wire.send(*SECOND)
    await asyncio.sleep(3 * HOLD_S)
    decoder, got = Decoder(), list[Frame]()
    while len(got) < len((big, FIRST, SECOND)):
        got += decoder.feed(await asyncio.wait_for(asyncio.get_running_loop().sock_recv(peer, 1 << 20), 2))
    assert got == [big, FIRST, SECOND]
    wire.hold(*FIRST)
    await asyncio.sleep(3 * HOLD_S)
    assert come(peer) == [FIRST]


async def test_nothing_is_kept_for_a_peer_that_is_gone(ends: tuple[Wire, socket.socket]) -> None:
    wire, peer = ends
    wire.hold(*FIRST)
    peer.close()
    await asyncio.wait_for(wire.gone.wait(), 2)
    wire.hold(*SECOND)
    wire.send(*SECOND)
    await asyncio.sleep(3 * HOLD_S)


async def test_frames_are_read(ends: tuple[Wire, socket.socket]) -> None:
    ours, theirs = socket.socketpair()
    heard: list[Frame] = []
    wire = Wire(ours, lambda header, body: heard.append((header, body)))
    theirs.sendall(encode(*FIRST) + encode(*SECOND))
    await asyncio.sleep(0.01)
    assert heard == [FIRST, SECOND]
    wire.close()
    theirs.close()
