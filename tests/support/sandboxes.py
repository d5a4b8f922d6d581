"""A container in memory: what its agent says is scripted, what it hears is kept."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from plimsoll.contract import frames
from plimsoll.contract.requests import Payload
from providers.docker.course import Course
from providers.docker.frames import MAX_FRAME, Talk
from providers.seam import Order, Step


@dataclass
class FakeUsage:
    held_bytes: int = 0
    limit_bytes: int = 512 << 20


@dataclass
class FakeSight:
    kills: int = 0
    usage: FakeUsage = field(default_factory=FakeUsage)

    def oom_kills(self) -> int:
        return self.kills

    def memory(self) -> FakeUsage:
        return self.usage


@dataclass
class FakeDeath:
    oom: bool = False


@dataclass
class FakeSandbox:
    """`on` holds what happens when the agent hears a word; `deaf`: nothing that is sent ever arrives."""

    id: str = "c" * 64
    deaf: bool = False
    death: FakeDeath = field(default_factory=FakeDeath)
    sight: FakeSight = field(default_factory=FakeSight)
    talk: Talk = field(default_factory=Talk)
    on: dict[str, Callable[[], object]] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._decoder = frames.Decoder(MAX_FRAME)
        list(self.talk.feed(frames.encode({"t": "ready", "warm": []})))

    def say(self, word: str, body: bytes = b"", **fields: Any) -> Self:
        return self.raw(frames.encode({"t": word, **fields}, body, limit=MAX_FRAME))

    def out(self, data: bytes, stream: str = "stdout", step: int = 0) -> Self:
        return self.say("out", data, step=step, stream=stream)

    def raw(self, data: bytes | None) -> Self:
        """Bytes as they are; None ends the stream."""
        self._stream.put_nowait(data)
        return self

    async def send(self, data: bytes) -> None:
        if self.deaf:
            await asyncio.Event().wait()
        for header, _ in self._decoder.feed(data):
            self.heard.append(header["t"])
            self.on.get(header["t"], lambda: None)()

    async def receive(self) -> bytes | None:
        return await self._stream.get()

    async def died(self) -> FakeDeath:
        return self.death


def order(payload: Payload, **changes: Any) -> Order:
    values: dict[str, Any] = {"timeout_ms": 20_000, "output_bytes": 64}
    return Order("1" * 32, "a" * 32, payload, **(values | changes))


async def steps(course: Course, on_begun: Callable[[], object] = lambda: None) -> list[Step]:
    """All of them, under a deadline of the test's own; `on_begun` happens after the first."""
    seen: list[Step] = []
    async with asyncio.timeout(10):
        async for step in course.steps():
            seen.append(step)
            if len(seen) == 1:
                on_begun()
    return seen
