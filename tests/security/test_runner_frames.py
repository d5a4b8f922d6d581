"""S11: a runner that lies. Each case is a hostile process; its own run ends, by the host's rules and in the host's time."""

import asyncio
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from plimsoll.contract.worker import Out
from providers.seam import Break, Finish
from providers.wasm.forks import Forked
from providers.wasm.handle import KILL_GRACE_S, Runner, RunnerGone, State
from providers.wasm.protocol import END, HEADER, LEAST_OUT, Kind, frame, pieces_bytes

SLACK_S = 0.3
RUN = 7
"""The number of the run that every test starts."""
CAP = 1024

HOSTILE = r"""
import socket, sys, time
sock = socket.socket(fileno=int(sys.argv[1]))
first, later, times = bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3]), int(sys.argv[4])
sock.sendall(first)
if sys.argv[5] == "read":
    sock.recv(1 << 16)
try:
    for _ in range(times):
        sock.sendall(later)
except OSError:
    pass
time.sleep(60)
"""


@dataclass
class Played:
    """What the host made of it."""

    last: Finish | Break
    stdout: bytes
    took_s: float


@asynccontextmanager
async def hostile(
    first: bytes = b"", later: bytes = b"", *, times: int = 1, reads: bool = True, program: str = HOSTILE
) -> AsyncIterator[Runner]:
    """A process that sends `first` at once and `later` after it got the code. Another `program` may take them otherwise."""
    ours, theirs = socket.socketpair()
    words = [first.hex(), later.hex(), str(times), "read" if reads else "deaf"]
    with theirs:
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-I", "-c", program, str(theirs.fileno()), *words], pass_fds=(theirs.fileno(),)
        )
    runner = Runner(Forked(process.pid, os.pidfd_open(process.pid), ours), lambda _: None)
    try:
        yield runner
    finally:
        runner.kill("end of test")
        async with asyncio.timeout(5):
            await runner.ended.wait()
        process.wait()


async def play(
    runner: Runner,
    *,
    timeout_ms: int = 20_000,
    source: bytes = b"code",
    cancel_after_s: float | None = None,
) -> Played:
    runner.state = State.IDLE
    start = time.monotonic()
    course = runner.begin(RUN, source, timeout_ms=timeout_ms, memory_bytes=1 << 24, cap=CAP)
    if cancel_after_s is not None:
        asyncio.get_running_loop().call_later(cancel_after_s, runner.cancel, course)
    stdout = b""
    while isinstance(step := await course.next(), Out):
        stdout += step.data
    return Played(step, stdout, time.monotonic() - start)


def end(number: int = RUN, ending: int = 0, code: int = 0, flags: int = 0, pieces: bytes = b"") -> bytes:
    return frame(Kind.END, number, END.pack(ending, code, flags) + pieces)


GOOD = pieces_bytes([(1, b"out")])
MUCH = b"x" * LEAST_OUT

LIES = {
    "a length of 4 GiB": HEADER.pack(0xFFFFFFFF, Kind.END, RUN),
    "a length just over the bound": HEADER.pack(256 * 1024 + 1, Kind.OUT, RUN),
    "the end of another run": end(number=RUN + 1),
    "output of another run": frame(Kind.OUT, RUN + 1, GOOD),
    "an unknown kind": frame(Kind.END, RUN, b"").replace(b"\x04", b"\x09", 1),
    "a second hello": frame(Kind.HELLO, 0, b"{}"),
    "our own order back": frame(Kind.RUN, RUN, b"x" * 30),
    "an end without a body": frame(Kind.END, RUN, b""),
    "an unknown ending": end(ending=200),
    "the deadline before it came": end(ending=1),
    "a cancel nobody asked for": end(ending=6),
    "a piece of an unknown stream": frame(Kind.OUT, RUN, pieces_bytes([(3, MUCH)])),
    "a piece longer than its frame": frame(Kind.OUT, RUN, struct.pack(">BI", 1, 1 << 20) + MUCH),
    "half a piece": frame(Kind.OUT, RUN, b"\x01\x00" * LEAST_OUT),
    "an empty frame of output": frame(Kind.OUT, RUN, b""),
    "a tiny frame of output": frame(Kind.OUT, RUN, GOOD),
    "a frame of very many pieces": frame(Kind.OUT, RUN, pieces_bytes([(1, b"x")]) * (LEAST_OUT // 2)),
    "an end with very many pieces": end(pieces=pieces_bytes([(2, b"x")]) * 8_000),
    "empty pieces of output": frame(Kind.OUT, RUN, struct.pack(">BI", 1, 0) * LEAST_OUT),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
async def test_a_frame_that_cannot_be_true_ends_the_run_and_the_runner(lie: bytes) -> None:
    async with hostile(later=lie) as runner:
        played = await play(runner)
        assert played.last == Break("runner_protocol")
        assert runner.state is State.DEAD
        assert played.took_s < 5


async def test_an_end_before_the_code_was_there_is_not_believed() -> None:
    async with hostile(first=end(), reads=False) as runner:
        await asyncio.sleep(0.2)
        assert runner.state is State.DEAD


async def test_a_second_end_is_not_taken_for_the_next_run() -> None:
    async with hostile(later=end() + end()) as runner:
        played = await play(runner)
        assert played.last == Finish(0)
        await asyncio.sleep(0.1)
        assert runner.state is State.DEAD  # so no next run


async def test_output_is_counted_and_cut_by_the_host() -> None:
    async with hostile(later=frame(Kind.OUT, RUN, pieces_bytes([(1, MUCH)])) + end()) as runner:
        played = await play(runner)
        assert (len(played.stdout), played.last) == (CAP, Finish(0, stdout_truncated=True))


async def test_a_flood_is_ended_by_the_host() -> None:
    async with hostile(later=frame(Kind.OUT, RUN, pieces_bytes([(1, MUCH)])), times=10_000) as runner:
        played = await play(runner)
        assert played.last == Finish(153, stdout_truncated=True)
        assert len(played.stdout) == CAP


async def test_silence_ends_at_the_deadline_and_a_tenth() -> None:
    async with hostile(later=b"\x00") as runner:
        played = await play(runner, timeout_ms=300)
        assert played.last == Finish(124, timed_out=True, stdout_truncated=True, stderr_truncated=True)
        assert 0.3 <= played.took_s <= 0.3 + KILL_GRACE_S + SLACK_S


async def test_a_runner_that_does_not_read_its_code_ends_at_the_deadline() -> None:
    async with hostile(reads=False, times=0) as runner:
        played = await play(runner, timeout_ms=300, source=b"x" * (900 * 1024))
        assert played.last == Finish(124, timed_out=True)
        assert played.took_s <= 0.3 + KILL_GRACE_S + SLACK_S


async def test_an_end_before_the_whole_code_was_read_is_not_believed() -> None:
    async with hostile(later=end()) as runner:
        played = await play(runner, source=b"x" * (900 * 1024))
        assert played.last == Break("runner_protocol")


# --- cancels: the host sends one, and decides what it came to ------------------------------------------------------------

ASKED = HEADER.pack(0, Kind.CANCEL, RUN)
KILLED = Finish(130, cancelled=True, stdout_truncated=True, stderr_truncated=True)
ANSWERING = r"""
import socket, sys, time
sock = socket.socket(fileno=int(sys.argv[1]))
asked, answer = bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3])
data = b""
while not data.endswith(asked):
    data += sock.recv(1 << 16)
sock.sendall(answer)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("answer", "last"),
    [
        (end(ending=6, pieces=GOOD), Finish(130, cancelled=True)),
        (end(ending=6, code=9, flags=1, pieces=GOOD), Finish(130, cancelled=True, stdout_truncated=True)),
        (end(code=3, pieces=GOOD), Finish(3)),
        (end(ending=1, pieces=GOOD), Break("runner_protocol")),
        (end(ending=6, number=RUN + 1), Break("runner_protocol")),
    ],
    ids=["cancelled", "cancelled, cut", "over before it knew", "the deadline", "another run"],
)
async def test_what_a_runner_answers_to_a_cancel(answer: bytes, last: Finish | Break) -> None:
    async with hostile(ASKED, answer, program=ANSWERING) as runner:
        played = await play(runner, cancel_after_s=0.05)
        assert played.last == last
        assert played.stdout == (b"out" if isinstance(last, Finish) or b"out" in answer else b"")


async def test_a_runner_that_is_deaf_to_a_cancel_is_dead_a_tenth_later_and_its_output_cut() -> None:
    async with hostile(later=frame(Kind.OUT, RUN, pieces_bytes([(1, MUCH)]))) as runner:
        played = await play(runner, cancel_after_s=0.3)
        assert (len(played.stdout), played.last, runner.state) == (CAP, KILLED, State.DEAD)
        assert 0.3 + KILL_GRACE_S <= played.took_s <= 0.3 + KILL_GRACE_S + SLACK_S


async def test_a_second_cancel_gives_no_more_time() -> None:
    async with hostile(later=b"\x00") as runner:
        playing = asyncio.create_task(play(runner, cancel_after_s=0.2))
        await asyncio.sleep(0.25)
        assert runner.course
        kill_at = runner._kill_at
        runner.cancel(runner.course)
        assert runner._kill_at == kill_at
        assert (await playing).last == KILLED


async def test_a_cancel_gives_no_time_beyond_the_deadlines() -> None:
    async with hostile(later=b"\x00") as runner:
        playing = asyncio.create_task(play(runner, timeout_ms=300, cancel_after_s=0.35))
        await asyncio.sleep(0.1)
        kill_at = runner._kill_at
        assert (await playing).last == KILLED
        assert runner._kill_at == kill_at


async def test_a_cancel_before_the_whole_code_was_read_ends_it_at_once_with_nothing_cut() -> None:
    async with hostile(reads=False, times=0) as runner:
        played = await play(runner, source=b"x" * (900 * 1024), cancel_after_s=0.1)
        assert (played.last, runner.state) == (Finish(130, cancelled=True), State.DEAD)
        assert played.took_s < 0.1 + KILL_GRACE_S


@pytest.mark.parametrize("hello", [b"not json", b"[]", b"{" * 1000])
async def test_a_hello_that_is_none_is_not_believed(hello: bytes) -> None:
    async with hostile(first=frame(Kind.HELLO, 0, hello), reads=False) as runner:
        with pytest.raises(RunnerGone):
            await asyncio.wait_for(runner.hello(), 5)
        assert runner.state is State.DEAD


async def test_others_are_not_held_up_by_a_runner_that_floods() -> None:
    async with (
        hostile(later=b"\0" * 4096, times=10_000_000) as bad,
        hostile(later=end(pieces=GOOD)) as good,
    ):
        flooded, fine = await asyncio.gather(play(bad, timeout_ms=400), play(good))
        assert fine.stdout == b"out"
        assert fine.took_s < 0.4
        assert flooded.last == Break("runner_protocol")
