"""A hostile image whose agent says anything at any moment (S20), and every short talk after a side effect (S13).

The service refuses such an image when it compares the agent; here that comparison is left out, and the host's side has to hold
by itself: every run begins and ends exactly once, in time and in bounds, and nothing after its beginning is a proof that it
never ran.
"""

import asyncio
import itertools
import os
import select
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from typing_extensions import override

from plimsoll.contract import frames
from plimsoll.contract.bounds import ARTIFACTS_BYTES
from plimsoll.contract.requests import File, Project, Python
from plimsoll.contract.results import Artifact
from plimsoll.contract.worker import Out, StepEnded
from providers.docker import container as module
from providers.docker.container import Container, NotMade
from providers.docker.course import DEATH_S, DRAIN_S, Course
from providers.docker.daemon import Daemon
from providers.docker.frames import MAX_FRAME, BadTalk, Talk
from providers.docker.names import Names
from providers.docker.pool import Pool
from providers.docker.provider import DockerProvider
from providers.docker.settings import DockerSettings
from providers.docker.sight import Sight
from providers.seam import Begun, Break, Finish, Order, Step
from tests.support import docker as real
from tests.support.fake_docker import FakeDaemon
from tests.support.runs import rss_mb

pytestmark = pytest.mark.timeout(400)

CAP: Final = 4096
DEADLINE_MS: Final = 400
LATE_S: Final = 8.0
"""For a machine that does much else."""
SEEDS: Final = int(os.environ.get("PLIMSOLL_FUZZ_SEEDS", "48"))
RUN_ID: Final = "0" * 32
SNIPPET = Python("print(1)")
PROJECT = Project(files=(File("in", b"x" * (3 << 20)),), steps=("a", "b"), artifacts=("x", "y"))

AGENT = r"""
import json, os, random, struct, sys, time
rng = random.Random(int(sys.argv[2]))

def frame(header, body=b""):
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body

ODD = [0, 1, 2, -1, 255, 256, 1 << 70, True, None, 1.5, "", "x", "stdout", "python", [], [[]], {}, [{}], "\ud800"]

def header():
    return rng.choice([
        {"t": "ready", "warm": rng.choice([[], ["python"], ["python"] * 2, ["x"], [[]], [{}], ["python"] * 9])},
        {"t": "pong", "n": rng.choice([0, 1, 10 ** 30])},
        {"t": "out", "step": rng.choice([0, 0, 1, 2]), "stream": rng.choice(["stdout", "stderr", "stdin"])},
        {"t": "step", "step": rng.choice([0, 0, 1, 2]), "exit": rng.choice([0, 0, 1, 137, 255, 256, -1])},
        {"t": "artifact", "path": rng.choice(["x", "y", "z", "../x"]), "size": rng.choice([0, 1, 3, 9 << 20, 1 << 40])},
        {"t": "result", "exit": rng.choice([0, 1, 137, 256])},
        {"t": "unbegun"},
        {"t": "result", "outcome": rng.choice(["completed", "setup_failed", "runner_failed", "timed_out"]),
         "detail": rng.choice(["", "disk_full", "no_process", "cancelled", "x"]), "truncated": rng.choice([True, False, 0])},
    ])

def mutated():
    made = header()
    if rng.random() < 0.5:
        made[rng.choice([*made, "more"])] = rng.choice(ODD)
    if rng.random() < 0.1:
        made.pop(rng.choice(list(made)))
    data = bytearray(frame(made, rng.choice([b"", b"x", b"x" * 3, bytes(70000), os.urandom(9)])))
    for _ in range(rng.choice([0, 0, 0, 1, 4])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)

def deep():
    return frame(b'{"t":"pong","n":' + rng.choice([b"[" * 200000, b"9" * 5000, b"NaN", b'"\\ud800"', b"1e999"]) + b"}")

def say(data):
    while data:
        data = data[os.write(1, data):]

ACTS = [
    (9, lambda: say(frame(header(), rng.choice([b"", b"", b"x"])))),
    (6, lambda: say(mutated())),
    (1, lambda: say(deep())),
    (1, lambda: say(os.urandom(rng.choice([1, 7, 300])))),
    (1, lambda: say(mutated()[:rng.randrange(1, 9)])),
    (1, lambda: say(struct.pack(">II", rng.choice([0, 3, 1 << 20, (1 << 20) + 1, 0xffffffff]), rng.choice([0, 4, 1 << 31])))),
    (1, lambda: say(frame({"t": "out", "step": 0, "stream": "stdout"}, b"x") * 20000)),
    (1, lambda: say(frame({"t": "out", "step": 0, "stream": "stderr"}, bytes(1 << 19)) * 6)),
    (1, lambda: os.write(2, bytes(rng.choice([10, 3 << 20])))),
    (2, lambda: time.sleep(rng.random() / 3)),
    (3, lambda: os.read(0, rng.choice([1, 1 << 16, 1 << 20]))),
    (1, lambda: os._exit(rng.choice([0, 1, 137]))),
    (1, lambda: os.close(rng.choice([0, 1]))),
    (1, lambda: time.sleep(60)),
]
weights, acts = zip(*ACTS)
try:
    for _ in range(rng.choice([0, 0, 0, 0, 0, 0, 3])):
        rng.choices(acts, weights)[0]()
    if rng.random() < 0.95:
        say(frame({"t": "ready", "warm": ["python"]}))
    if rng.random() < 0.8:
        os.read(0, 1 << 16)
    while True:
        rng.choices(acts, weights)[0]()
except (OSError, ValueError):
    time.sleep(60)
"""


@pytest.fixture(scope="session")
def hostile_image(docker: real.Daemon, image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sandbox image with another agent in it."""
    place = tmp_path_factory.mktemp("hostile")
    (place / "agent.py").write_text(AGENT)
    (place / "Dockerfile").write_text(f"FROM {image}\nCOPY agent.py /usr/lib/plimsoll/__main__.py\n")
    docker.docker("build", "-q", "-t", "hostile", str(place))
    return docker.docker("image", "inspect", "--format", "{{.Id}}", "hostile").strip()


@pytest.fixture(
    params=[
        pytest.param("runc", marks=pytest.mark.component("docker")),
        pytest.param("runsc", marks=pytest.mark.component("runsc")),
    ]
)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def order(payload: Python | Project, *, stream: bool = False, timeout_ms: int = DEADLINE_MS) -> Order:
    return Order(RUN_ID, RUN_ID, payload, timeout_ms, CAP, stream=stream)


def check(steps: list[Step], payload: Python | Project) -> None:
    """What must be true of every run, whatever its agent said."""
    assert isinstance(steps[0], Begun)
    assert isinstance(steps[-1], Finish | Break)
    assert not any(isinstance(step, Begun | Finish | Break) for step in steps[1:-1])
    project = isinstance(payload, Project)
    for number in range(2):
        for stream in ("stdout", "stderr"):
            given = [
                step.data
                for step in steps
                if isinstance(step, Out) and (step.step, step.stream) == (number, stream)
            ]
            assert sum(map(len, given)) <= CAP
    ended = [step.step for step in steps if isinstance(step, StepEnded)]
    assert ended == [*range(len(ended))]
    assert len(ended) <= 2 * project
    artifacts = [step for step in steps if isinstance(step, Artifact)]
    assert [step.path for step in artifacts] in (([], ["x"], ["y"], ["x", "y"]) if project else ([],))
    assert sum(len(step.content) for step in artifacts) <= ARTIFACTS_BYTES


class Seeded(Container):
    """Its language is a seed, which no agent says to have warm."""

    @override
    async def _be_ready(self) -> None:
        try:
            await super()._be_ready()
        except NotMade as failure:
            if failure.code != "no_interpreter":
                raise


async def whole(container: Container, what: Order) -> list[Step]:
    async with aclosing(Course(container, what, gvisor=False).steps()) as course:
        return [step async for step in course]


async def test_an_agent_that_says_anything_at_any_moment(
    docker: real.Daemon,
    hostile_image: str,
    runtime: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "READY_S", 5.0)
    settings = DockerSettings(
        provider=f"docker@{runtime}", state_dir=str(tmp_path), runtime=runtime, memory_mb=128
    )
    before, ran = rss_mb(os.getpid()), 0
    room = asyncio.Semaphore(4)
    loop = asyncio.get_running_loop()
    host = docker.host

    async def one(daemon: Daemon, names: Names, seed: int) -> None:
        nonlocal ran
        async with room:
            container = Seeded(daemon, settings, names, hostile_image, str(seed), gvisor=runtime != "runc")
            payload = PROJECT if seed % 2 else SNIPPET
            try:
                with suppress(NotMade):
                    await container.open()
                    began, steps = loop.time(), await whole(container, order(payload, stream=seed % 3 == 0))
                    took = loop.time() - began
                    check(steps, payload)
                    assert took < DEADLINE_MS / 1000 + DRAIN_S + DEATH_S + LATE_S, seed
                    ran += 1
            finally:
                assert await container.destroy(), seed

    with Names(str(tmp_path), host) as names:
        async with Daemon(host) as daemon, asyncio.TaskGroup() as group:
            for seed in range(SEEDS):
                group.create_task(one(daemon, names, seed))
        assert names.strays() == []
    assert ran > SEEDS // 2
    assert rss_mb(os.getpid()) - before < 256
    there = docker.call("GET", "/containers/json?all=1")
    assert [each["Id"] for each in there if each["ImageID"] == hostile_image] == []


@pytest.mark.parametrize("warm", [[[]], [{}], [None], ["python", []], ["x"], ["python"] * 3])
def test_a_first_word_that_names_no_languages_breaks_the_talk(warm: list[Any]) -> None:
    with pytest.raises(BadTalk):
        list(Talk().feed(said({"t": "ready", "warm": warm})))


async def test_a_guest_is_gone_though_the_daemon_stands_still(
    docker: real.Daemon, image: str, runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a container's process is not left to a daemon that may be slow, or to a runtime that it asks first."""
    monkeypatch.setattr("providers.docker.daemon.START_S", 1.0)
    host = docker.host
    settings = DockerSettings(provider=f"docker@{runtime}", state_dir=str(tmp_path), runtime=runtime)
    with Names(str(tmp_path), host) as names:
        async with Daemon(host) as daemon:
            container = Container(daemon, settings, names, image, "python", gvisor=runtime != "runc")
            await container.open()
            assert isinstance(container.sight, Sight)
            watched = os.pidfd_open(docker.call("GET", f"/containers/{container.id}/json")["State"]["Pid"])
            os.kill(docker.pid, signal.SIGSTOP)
            try:
                assert not await container.destroy()
                assert select.select([watched], [], [], 10)[0]
            finally:
                os.kill(docker.pid, signal.SIGCONT)
                os.close(watched)
            monkeypatch.undo()
            await daemon.remove(container.name)


# --- every short talk -----------------------------------------------------------------------------------------------------


def said(header: dict[str, Any] | bytes, body: bytes = b"") -> bytes:
    if isinstance(header, dict):
        return frames.encode(header, body, limit=2 * MAX_FRAME)
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


WORDS: Final[dict[str, bytes]] = {
    "ready": said({"t": "ready", "warm": []}),
    "odd ready": said({"t": "ready", "warm": [[]]}),
    "pong": said({"t": "pong", "n": 0}),
    "out": said({"t": "out", "step": 0, "stream": "stdout"}, b"x"),
    "next out": said({"t": "out", "step": 1, "stream": "stderr"}, b"x"),
    "step": said({"t": "step", "step": 0, "exit": 0}),
    "next step": said({"t": "step", "step": 1, "exit": 0}),
    "failed step": said({"t": "step", "step": 0, "exit": 9}),
    "artifact": said({"t": "artifact", "path": "x", "size": 1}, b"x"),
    "half artifact": said({"t": "artifact", "path": "y", "size": 2}, b"x"),
    "result": said({"t": "result", "exit": 0}),
    "unbegun": said({"t": "unbegun"}),
    "done": said({"t": "result", "outcome": "completed", "detail": "", "truncated": False}),
    "not set up": said({"t": "result", "outcome": "setup_failed", "detail": "files", "truncated": False}),
    "unknown": said({"t": "not_started"}),
    "refused": said({"t": "result", "outcome": "not_dispatched", "detail": "", "truncated": False}),
    "deep": said(b'{"t":' + b"[" * 5000),
    "long number": said(b'{"t":"pong","n":' + b"9" * 5000 + b"}"),
    "no frame": b"\xff" * 8,
    "the end": b"",
}
"""Every type there is, some that are none, and the stream's end."""


class Saying(FakeDaemon):
    """Its containers answer the order with the words given, then end their stream."""

    words: tuple[str, ...] = ()

    def speak(self) -> None:
        (box,) = (each for each in self.boxes.values() if each.stream.heard)
        for word in self.words:
            box.stream.said.put_nowait((1, WORDS[word]) if WORDS[word] else None)
        self.die(box.id)


@asynccontextmanager
async def provided(daemon: Saying, tmp_path: Path) -> AsyncIterator[DockerProvider]:
    """The real provider and pool over that daemon; nothing is looked at, because there is nothing."""
    settings = DockerSettings(provider="docker", state_dir=str(tmp_path), pool=1, slots=4)
    provider = DockerProvider(settings)
    with Names(str(tmp_path), "unix:///nowhere") as names:

        async def examine(_: Container) -> None:
            pass

        pool = Pool(daemon, settings, "sha256:" + "a" * 64, False, names, examine, lambda _: None)
        async with pool:
            provider._pool = pool  # what a look makes, without a look
            yield provider


@pytest.mark.parametrize(
    "payload", [SNIPPET, Project(steps=("a", "b"), artifacts=("x", "y"))], ids=["snippet", "project"]
)
async def test_no_talk_after_the_beginning_is_a_proof_that_nothing_ran(
    payload: Python | Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every three words in every order, after a side effect that the host cannot see. `NotStarted` would end this test."""
    monkeypatch.setattr("providers.docker.course.DEATH_S", 0.01)
    monkeypatch.setattr("providers.docker.pool.ANSWER_S", 0.0)  # thousands of runs share a few slots
    daemon, ends = Saying(), set()
    async with provided(daemon, tmp_path) as provider:
        for words in itertools.product(WORDS, repeat=3):
            daemon.words, steps = words, list[Step]()
            async with aclosing(provider.run(order(payload, timeout_ms=20_000))) as running:  # type: ignore[type-var]  # a generator
                async for step in running:
                    steps.append(step)
                    if isinstance(step, Begun):
                        asyncio.get_running_loop().call_soon(when_heard, daemon)
            check(steps, payload)
            ends.add(type(steps[-1]))
    assert ends == {Finish, Break}


def when_heard(daemon: Saying) -> None:
    """Speak as soon as the order has arrived."""
    if any(each.stream.heard for each in daemon.boxes.values()):
        daemon.speak()
    else:
        asyncio.get_running_loop().call_soon(when_heard, daemon)
