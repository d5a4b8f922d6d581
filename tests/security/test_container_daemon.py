"""A docker daemon that answers nonsense, too much, or too slowly: every call ends as an error of ours, in time and bounds."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from providers.docker import daemon as module
from providers.docker import evidence, image, manifest
from providers.docker.container import Container, Unsighted
from providers.docker.daemon import Attached, Daemon, DaemonError, StreamCut
from providers.docker.look import Faulty, Looker
from providers.docker.names import Names
from providers.docker.recipe import recipe
from providers.docker.settings import DockerSettings
from providers.docker.sight import Limits
from tests.support.fake_docker import FakeDaemon

ID = "a" * 64
MUCH = 32 << 20
"""Far more than any answer may be, and little enough for a test."""
Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Liar:
    """Speaks HTTP on a Unix socket; what it answers on a path is a test's to say."""

    socket: Path
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    sent: int = 0
    """Bytes of endless answers that the client took from us."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self.tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                if found := [line for line in head.splitlines() if line.lower().startswith("content-length")]:
                    await reader.readexactly(int(found[0].split(":")[1]))
                await self.reply_to(head.split()[1], writer)
                await writer.drain()
        writer.transport.abort()

    async def reply_to(self, target: str, writer: asyncio.StreamWriter) -> None:
        for part, replies in self.replies.items():
            if part in target:
                await (replies.pop(0) if len(replies) > 1 else replies[0])(writer)
                return
        await says({"ApiVersion": "1.41", "Config": {"Tty": False}})(writer)

    def endless(self, head: bytes, piece: bytes) -> Reply:
        async def reply(writer: asyncio.StreamWriter) -> None:
            writer.write(head)
            while self.sent < MUCH:
                writer.write(piece)
                self.sent += len(piece)
                await writer.drain()

        return reply


def says(value: Any, status: str = "200 OK") -> Reply:
    return raw(json.dumps(value).encode(), status)


def raw(content: bytes, status: str = "200 OK") -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content)

    return reply


async def trickles(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
    for _ in range(200):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


@asynccontextmanager
async def lying(tmp_path: Path) -> AsyncIterator[tuple[Liar, Daemon]]:
    liar = Liar(tmp_path / "s")
    server = await asyncio.start_unix_server(liar.serve, str(liar.socket), limit=1 << 20)
    try:
        async with Daemon(f"unix://{liar.socket}") as daemon:
            yield liar, daemon
    finally:
        server.close()
        for task in liar.tasks:
            task.cancel()
        await asyncio.gather(*liar.tasks, return_exceptions=True)


CALLS: dict[str, tuple[str, Callable[[Daemon], Awaitable[Any]]]] = {
    "version": ("/version", Daemon.version),
    "info": ("/info", Daemon.info),
    "image": ("/images/", lambda daemon: daemon.image("x")),
    "create": ("/create", lambda daemon: daemon.create("x", {})),
    "inspect": ("/containers/", lambda daemon: daemon.inspect(ID)),
}
NONSENSE = {
    "a list": b"[]",
    "a word": b'"x"',
    "nothing": b"",
    "null": b"null",
    "no JSON": b"{",
    "depth": b"[" * 100_000,
    "a number without end": b"9" * 100_000,
    "no text": b'{"Id": "\xff\xfe"}',
    "another id": b'{"Id": "../../x"}',
    "an id of another kind": b'{"Id": 5}',
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("said", NONSENSE)
async def test_nonsense_is_an_error_of_ours_or_an_object(call: str, said: str, tmp_path: Path) -> None:
    part, ask = CALLS[call]
    async with lying(tmp_path) as (liar, daemon):
        await daemon.version()
        liar.replies[part] = [raw(NONSENSE[said])]
        answer = None
        with suppress(DaemonError):
            answer = await ask(daemon)
        assert answer is None or (call != "create" and isinstance(answer, dict))


@pytest.mark.parametrize("status", ["200 OK", "500 Oh"])
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_without_end_is_not_taken(call: str, status: str, tmp_path: Path) -> None:
    part, ask = CALLS[call]
    async with lying(tmp_path) as (liar, daemon):
        await daemon.version()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n".encode()
        liar.replies[part] = [liar.endless(head, b" " * 65_536)]
        with pytest.raises(DaemonError):
            await ask(daemon)
        assert liar.sent < MUCH


@pytest.mark.parametrize("call", CALLS)
async def test_a_slow_answer_is_given_up_at_the_deadline(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, ask = CALLS[call]
    async with lying(tmp_path) as (liar, daemon):
        await daemon.version()
        liar.replies[part] = [trickles]
        monkeypatch.setattr(module, "CALL_S", 0.5)
        monkeypatch.setattr(module, "START_S", 0.5)
        async with asyncio.timeout(5):
            with pytest.raises(DaemonError, match="timeout"):
                await ask(daemon)


EVENTS = {
    "a list": b"[]\n",
    "no JSON": b"x\n",
    "depth": b"[" * 100_000 + b"\n",
    "a long line": b" " * (1 << 20) + b"\n",
    "no time": b'{"Action": "die"}\n',
    "a time of another kind": b'{"timeNano": "x", "Action": "die"}\n',
    "a time that is no number": b'{"timeNano": NaN, "Action": "die"}\n',
    "an actor of another kind": b'{"timeNano": 1, "Actor": {"ID": []}}\n',
}


@pytest.mark.parametrize("said", EVENTS)
async def test_deaths_are_heard_after_nonsense_too(said: str, tmp_path: Path) -> None:
    actor = {"ID": ID, "Attributes": {"exitCode": "9"}}
    death = json.dumps({"timeNano": 5, "Action": "die", "Actor": actor}).encode()
    async with lying(tmp_path) as (liar, daemon):
        liar.replies["/events"] = [raw(EVENTS[said]), raw(death + b"\n")]
        daemon.deaths.expect(ID, lambda: None)
        async with asyncio.timeout(10):
            while (await daemon.died(ID)).exit_code is None:
                pass


HIJACKED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


async def test_a_frame_of_four_gigabytes_comes_in_pieces_and_waits_with_the_daemon(tmp_path: Path) -> None:
    async with lying(tmp_path) as (liar, daemon):
        head = HIJACKED + struct.pack(">BxxxL", 1, 0xFFFF_FFFF)
        liar.replies["/attach"] = [liar.endless(head, b"x" * 65_536)]
        attached = await daemon.attach(ID)
        stream, piece = await attached.read() or (0, b"")
        assert (stream, set(piece)) == (1, set(b"x"))
        await asyncio.sleep(0.3)
        assert liar.sent < 4 << 20
        await attached.abort()


async def test_empty_frames_without_end_take_no_memory(tmp_path: Path) -> None:
    async with lying(tmp_path) as (liar, daemon):
        liar.replies["/attach"] = [liar.endless(HIJACKED, struct.pack(">BxxxL", 1, 0) * 8192)]
        attached = await daemon.attach(ID)
        reading = asyncio.create_task(anything_of(attached))
        while liar.sent < MUCH:
            await asyncio.sleep(0.01)
        assert not reading.done()
        await attached.abort()
        assert await reading == b""


async def anything_of(attached: Attached) -> bytes:
    while (piece := await attached.read()) is not None:
        if piece[1]:
            return piece[1]
    return b""


async def test_frames_come_whole_however_they_are_cut(tmp_path: Path) -> None:
    said = [(1, b"one"), (2, b"two"), (1, b""), (1, b"three" * 30_000)]
    content = b"".join(struct.pack(">BxxxL", stream, len(data)) + data for stream, data in said)

    async def in_bits(writer: asyncio.StreamWriter) -> None:
        writer.write(HIJACKED)
        for at in range(0, 40, 3):
            writer.write(content[at : at + 3])
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(content[42:])
        writer.close()

    async with lying(tmp_path) as (liar, daemon):
        liar.replies["/attach"] = [in_bits]
        attached = await daemon.attach(ID)
        got: dict[int, bytes] = {}
        while (piece := await attached.read()) is not None:
            got[piece[0]] = got.get(piece[0], b"") + piece[1]
        assert got == {1: b"one" + b"three" * 30_000, 2: b"two"}
        await attached.abort()


@pytest.mark.parametrize("status", ["200 OK", "500 Oh", "404 Not Found"])
async def test_an_attach_that_is_none(status: str, tmp_path: Path) -> None:
    async with lying(tmp_path) as (liar, daemon):
        await daemon.version()
        head = f"HTTP/1.1 {status}\r\n\r\n".encode()
        liar.replies["/attach"] = [liar.endless(head, b" " * 65_536)]
        with pytest.raises((DaemonError, StreamCut)):
            await daemon.attach(ID)
        assert liar.sent < MUCH


@pytest.mark.parametrize("state", [[], "x", 5, {"Pid": -1}, {"Pid": 10**400}, {"Pid": True}, {"Pid": []}])
async def test_a_container_whose_process_is_nonsense_is_not_seen(state: Any, tmp_path: Path) -> None:
    class Saying(FakeDaemon):
        @override
        async def inspect(self, container: str) -> dict[str, Any]:
            self.box(container)
            return {"State": state}

    with Names(str(tmp_path), "unix:///x") as names:
        settings = DockerSettings(provider="docker", state_dir=str(tmp_path))
        container = Container(Saying(), settings, names, f"sha256:{ID}", "python", gvisor=False)
        await container.open()
        assert isinstance(container.sight, Unsighted)
        assert await container.destroy()


@pytest.mark.parametrize(
    "host",
    [
        {"NanoCpus": 10**400},
        {"SecurityOpt": ["seccomp=" + "[" * 100_000]},
        {"CapAdd": [[]], "CapDrop": ["ALL"]},
        {"NetworkMode": {"a": 1}},
        {"Binds": 5},
    ],
)
def test_the_daemons_word_on_limits_may_be_nonsense(host: dict[str, Any]) -> None:
    seen = evidence.of_daemon({"HostConfig": host, "State": 5}, Limits(1 << 28, 128, 1.0, 0), "pid_unknown")
    assert evidence.judge_container(seen, runtime="runc").faults


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["name=seccomp,profile=default", "name=userns"], "daemon_userns_remap"),
        (None, "image_missing"),
        ("x", "image_missing"),
    ],
)
async def test_a_daemon_with_users_of_its_own_is_told_apart(options: Any, fault: str, tmp_path: Path) -> None:
    """With userns-remap containers are other users than those that are looked for: that is said, and is no riddle."""
    async with lying(tmp_path) as (liar, daemon):
        liar.replies["/info"] = [says({"Runtimes": {"runc": {}}, "SecurityOptions": options})]
        liar.replies["/images/"] = [says({"message": "no such image"}, "404 Not Found")]
        settings = DockerSettings(provider="docker", state_dir=str(tmp_path))
        with Names(str(tmp_path), "unix:///x") as names:
            async with Looker(daemon, settings, names) as looker:
                with pytest.raises(Faulty) as caught:
                    await looker.look()
        assert caught.value.codes == (fault,)


def test_an_image_whose_labels_no_event_could_carry_is_refused() -> None:
    """Every event of its containers repeats them: one line too long, and no death would be heard any more."""
    found = {
        "Id": f"sha256:{ID}",
        "Os": "linux",
        "Architecture": "amd64",
        "Config": {"Labels": {"a": "x" * 600_000}},
    }
    assert image.faults_of(found, "amd64") == ("image_label",)


@pytest.mark.parametrize("size", [b"-0000000007\0", b"-7          "])
async def test_an_export_with_a_negative_size_is_refused(size: bytes) -> None:
    header = bytearray(512)
    header[124:136], header[156:157] = size, b"0"
    total = sum(header[:148]) + 8 * 0x20 + sum(header[156:])
    header[148:156] = b"%06o\0 " % total

    async def export() -> AsyncIterator[bytes]:
        yield bytes(header)

    with pytest.raises(ValueError, match="no tar"):
        manifest.Contents(f"sha256:{ID}").feed(bytes(header))
    assert await manifest.manifest_of(export(), {"Id": f"sha256:{ID}"}) == ""


@pytest.mark.parametrize(
    "name",
    [
        "Init",
        "Runtime",
        "SecurityOpt",
        "NetworkMode",
        "IpcMode",
        "ShmSize",
        "LogConfig",
        "ReadonlyRootfs",
        "OomScoreAdj",
    ],
)
@pytest.mark.parametrize("gvisor", [False, True])
def test_nothing_is_left_to_a_daemons_defaults(name: str, gvisor: bool, tmp_path: Path) -> None:  # noqa: FBT001  # a parameter of the test
    """A daemon may be told to add an init, to log, or to use another runtime, profile or size, wherever nothing is said."""
    host = recipe(
        DockerSettings(provider="docker", state_dir=str(tmp_path)), "sha256:x", None, 0, gvisor=gvisor
    )["HostConfig"]
    assert host.get(name) is not None
