"""S11: a runner that lies about calls. Each case is a hostile process; its own run ends, and nobody is asked on its behalf."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from plimsoll.contract.worker import Out
from providers.seam import Break, Finish
from providers.wasm import handle
from providers.wasm.handle import KILL_GRACE_S, Runner, State
from providers.wasm.protocol import END, HEADER, MOST_CALL, Kind, frame, pieces_bytes
from tests.security.test_runner_frames import CAP, RUN, Played, hostile

CALL = frame(Kind.CALL, RUN, b"message")
DONE = frame(Kind.END, RUN, END.pack(0, 0, 0))
SLACK_S = 20.0
"""Of a busy machine: what is never ended takes longer, and the lower bounds say that nothing ends too soon."""
ANSWERED = r"""
import socket, sys, time
sock = socket.socket(fileno=int(sys.argv[1]))
call, done, wanted = bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3]), int(sys.argv[4])
sock.recv(1 << 16)
for _ in range(wanted):
    sock.sendall(call)
    head = b""
    while len(head) < 13:
        head += sock.recv(13 - len(head))
    left = int.from_bytes(head[:4], "big")
    while left:
        left -= len(sock.recv(min(left, 1 << 16)))
sock.sendall(done)
time.sleep(60)
"""
DEAF = r"""
import socket, sys, time
sock = socket.socket(fileno=int(sys.argv[1]))
sock.recv(1 << 16)
sock.sendall(bytes.fromhex(sys.argv[2]))
time.sleep(60)
"""


@dataclass
class Asked:
    """What would go to a broker."""

    answer: bytes = b"answer"
    messages: list[bytes] = field(default_factory=list)
    wait: asyncio.Event | None = None
    cancelled: bool = False

    @asynccontextmanager
    async def __call__(self, message: bytes) -> AsyncIterator[bytes]:
        self.messages.append(message)
        try:
            if self.wait is not None:
                await self.wait.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        yield self.answer


async def play(
    runner: Runner, call: Asked | None, *, timeout_ms: int = 20_000, watched: bool = False
) -> Played:
    runner.state = State.IDLE
    start = time.monotonic()
    course = runner.begin(
        RUN, b"code", timeout_ms=timeout_ms, memory_bytes=1 << 24, cap=CAP, watched=watched, call=call
    )
    while isinstance(step := await course.next(), Out):
        pass
    await asyncio.sleep(0)
    return Played(step, b"", time.monotonic() - start)


LIES = {
    "an empty message": frame(Kind.CALL, RUN, b""),
    "a call of another run": frame(Kind.CALL, RUN + 1, b"message"),
    "a length just over the bound": HEADER.pack(MOST_CALL + 1, Kind.CALL, RUN),
    "a length of 4 GiB": HEADER.pack(0xFFFFFFFF, Kind.CALL, RUN),
    "an answer": frame(Kind.REPLY, RUN, b"answer"),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
async def test_a_call_that_cannot_be_true_ends_the_run_and_the_runner(lie: bytes) -> None:
    asked = Asked()
    async with hostile(later=lie) as runner:
        played = await play(runner, asked)
        assert (played.last, runner.state, asked.messages) == (Break("runner_protocol"), State.DEAD, [])


async def test_a_call_of_a_run_without_a_grant_ends_it() -> None:
    async with hostile(later=CALL) as runner:
        assert (await play(runner, None)).last == Break("runner_protocol")


async def test_a_second_call_while_one_is_under_way_ends_the_run_and_cancels_that_one() -> None:
    asked = Asked(wait=asyncio.Event())
    async with hostile(later=CALL, times=2) as runner:
        assert (await play(runner, asked)).last == Break("runner_protocol")
        await asyncio.sleep(0)
        assert len(asked.messages) <= 1
        assert asked.cancelled is bool(asked.messages)


async def test_an_end_cancels_the_call_that_is_under_way() -> None:
    asked = Asked(wait=asyncio.Event())
    async with hostile(program=ANSWERED, first=CALL, later=DONE, times=0) as runner:
        assert (await play(runner, asked)).last == Finish(0)
    async with hostile(later=CALL) as runner:
        playing = asyncio.create_task(play(runner, asked))
        async with asyncio.timeout(5):
            while not asked.messages:
                await asyncio.sleep(0.01)
        assert runner.course
        runner._end(runner.course, END.pack(0, 0, 0))
        assert (await playing).last == Finish(0)
        assert asked.cancelled


async def test_small_output_comes_before_a_call_and_no_more_often() -> None:
    small = frame(Kind.OUT, RUN, pieces_bytes([(1, b"out")]))
    async with hostile(program=ANSWERED, first=small + CALL, later=DONE, times=20) as runner:
        assert (await play(runner, Asked(), watched=True)).last == Finish(0)
    async with hostile(later=small * 500) as runner:
        assert (await play(runner, Asked(), watched=True)).last == Break("runner_protocol")
    async with hostile(program=ANSWERED, first=small + CALL, later=DONE, times=20) as runner:
        assert (await play(runner, Asked())).last == Break("runner_protocol")


async def test_calls_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle, "MOST_CALLS", 5)
    asked = Asked()
    async with hostile(program=ANSWERED, first=CALL, later=DONE, times=5) as runner:
        assert (await play(runner, asked)).last == Finish(0)
    async with hostile(program=ANSWERED, first=CALL, later=DONE, times=6) as runner:
        assert (await play(runner, asked)).last == Break("runner_protocol")
    assert len(asked.messages) == 10


async def test_a_runner_that_does_not_read_its_answer_is_dead_a_tenth_after_its_deadline() -> None:
    asked = Asked(answer=b"x" * (8 << 20))
    async with hostile(program=DEAF, first=CALL) as runner:
        played = await play(runner, asked, timeout_ms=300)
    assert played.last == Finish(124, timed_out=True, stdout_truncated=True, stderr_truncated=True)
    assert played.took_s < 0.3 + KILL_GRACE_S + SLACK_S


async def test_a_runner_that_does_not_end_at_its_deadline_is_killed_and_its_call_cancelled() -> None:
    asked = Asked(wait=asyncio.Event())
    async with hostile(later=CALL) as runner:
        played = await play(runner, asked, timeout_ms=300)
        assert (runner.state, asked.cancelled) == (State.DEAD, True)
    assert isinstance(played.last, Finish)
    assert played.last.timed_out


async def test_an_answer_that_is_too_long_is_none() -> None:
    asked = Asked(answer=b"x" * (17 << 20))
    async with hostile(program=ANSWERED, first=CALL, later=DONE, times=1) as runner:
        assert (await play(runner, asked)).last == Finish(0)
