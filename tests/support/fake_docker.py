"""A docker daemon in memory: its containers say `ready` and nothing else, and a test may let them die, hang or stay."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from plimsoll.contract import frames
from providers.docker.daemon import Attached, Daemon, DaemonError, StreamCut


class FakeStream(Attached):
    def __init__(self) -> None:
        self.said: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        self.heard = bytearray()
        self.cut = False

    @override
    async def read(self) -> tuple[int, bytes] | None:
        return await self.said.get()

    @override
    async def write(self, data: bytes) -> None:
        if self.cut:
            raise StreamCut
        self.heard += data

    @override
    async def abort(self) -> None:
        self.cut = True
        self.said.put_nowait(None)


@dataclass(eq=False)
class Box:
    """One container."""

    id: str
    words: list[str]
    stream: FakeStream = field(default_factory=FakeStream)


class FakeDaemon(Daemon):
    """What is set here decides what happens next."""

    def __init__(self) -> None:
        super().__init__("unix:///nowhere")
        self.boxes: dict[str, Box] = {}
        self.created: list[str] = []
        self.cold = False
        """No interpreter comes up in its containers."""
        self.create_error: str | None = None
        self.remove_error: str | None = None
        self.may_create = asyncio.Event()
        self.may_create.set()
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.may_remove = asyncio.Event()
        self.may_remove.set()
        self.starting = 0
        self.most_starting = 0
        self.most_boxes = 0
        self.silent = False

    @override
    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        await asyncio.sleep(0)
        self.created.append(name)
        await self.may_create.wait()
        if self.create_error is not None:
            raise DaemonError(self.create_error)
        box = self.boxes[name] = Box(secrets.token_hex(32), list(body["Cmd"])[1:])
        self.most_boxes = max(self.most_boxes, len(self.boxes))
        return box.id

    @override
    async def attach(self, container: str) -> Attached:
        return self.box(container).stream

    @override
    async def start(self, container: str) -> None:
        self.starting += 1
        self.most_starting = max(self.most_starting, self.starting)
        try:
            await asyncio.sleep(0)
            await self.may_start.wait()
        finally:
            self.starting -= 1
        box = self.box(container)
        if not self.silent:
            ready = frames.encode({"t": "ready", "warm": [] if self.cold else box.words})
            box.stream.said.put_nowait((1, ready[:5]))
            box.stream.said.put_nowait((2, b"a warning"))
            box.stream.said.put_nowait((1, ready[5:]))

    @override
    async def inspect(self, container: str) -> dict[str, Any]:
        self.box(container)
        return {"State": {"Pid": 0}}

    @override
    async def remove(self, container: str) -> bool:
        await self.may_remove.wait()
        if self.remove_error is not None:
            raise DaemonError(self.remove_error)
        return self.boxes.pop(container, None) is not None

    def box(self, container: str) -> Box:
        for box in self.boxes.values():
            if box.id == container:
                return box
        raise DaemonError("unknown", 404)

    def die(self, container: str, exit_code: int = 1, *, oom: bool = False) -> None:
        """That container ends by itself, and the daemon says so."""
        box = self.box(container)
        box.stream.said.put_nowait(None)
        actor: dict[str, Any] = {"ID": container, "Attributes": {"exitCode": str(exit_code)}}
        if oom:
            self.deaths.heard({"Action": "oom", "Actor": actor})
        self.deaths.heard({"Action": "die", "Actor": actor})
