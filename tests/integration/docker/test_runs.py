"""Whole runs through a provider process, under runc and under gVisor: what they give back, how they end, and what is left."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from app.dispatch.supervisor import ProviderSupervisor, spawn
from plimsoll.contract.refusals import Refusal
from plimsoll.contract.requests import File, JavaScript, Payload, Project, Python
from plimsoll.contract.results import Outcome
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import (
    Accepted,
    Broken,
    Ended,
    Event,
    Health,
    Job,
    Out,
    StepEnded,
    TicketRefused,
)
from tests.integration.docker.conftest import RUNTIME_PARAMS
from tests.support.docker import Daemon, state_knowing
from tests.support.runs import reserved, spec

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

SLOTS = 5
CAP = 65_536
LATE_S = 10.0
"""How much later than its deadline a run may be over on a machine that does much else."""
BYTES = bytes(range(256)) + b"\r\n\xef\xbb\xbf\r\n"
WALLS = {"runc": Tier.CONTAINER, "runsc": Tier.KERNEL}


@dataclass
class Provided:
    """A provider of containers, and the daemon behind it."""

    supervisor: ProviderSupervisor
    docker: Daemon
    runtime: str

    def containers(self) -> set[str]:
        return {each["Id"] for each in self.docker.call("GET", "/containers/json?all=1")}


@dataclass
class Heard:
    """What one run gave, and when."""

    events: list[Event] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    outs: dict[tuple[int, str], bytes] = field(default_factory=dict)

    def take(self, event: Event, at_s: float) -> None:
        self.events.append(event)
        self.at_s.append(at_s)
        if isinstance(event, Out):
            self.outs[event.step, event.stream] = self.outs.get((event.step, event.stream), b"") + event.data

    @property
    def stdout(self) -> bytes:
        return self.outs.get((0, "stdout"), b"")

    @property
    def stderr(self) -> bytes:
        return self.outs.get((0, "stderr"), b"")

    @property
    def ended(self) -> Ended:
        assert isinstance(self.events[-1], Ended), self.events[-1]
        return self.events[-1]

    @property
    def why(self) -> tuple[int, bool, bool, bool]:
        return self.ended.exit_code, self.ended.timed_out, self.ended.oom_killed, self.ended.cancelled

    @property
    def cut(self) -> tuple[bool, bool]:
        return self.ended.stdout_truncated, self.ended.stderr_truncated

    @property
    def steps(self) -> list[tuple[int, bool]]:
        return [(event.exit_code, event.timed_out) for event in self.events if isinstance(event, StepEnded)]

    @property
    def artifacts(self) -> dict[str, bytes]:
        return {each.path: each.content for each in self.events if type(each).__name__ == "Artifact"}  # type: ignore[union-attr]  # an event by its name

    @property
    def accepted(self) -> Accepted:
        assert isinstance(self.events[0], Accepted)
        return self.events[0]


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=RUNTIME_PARAMS,
)
async def provided(
    request: pytest.FixtureRequest, docker: Daemon, image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Provided]:
    runtime = str(request.param)
    settings = {
        "state_dir": state_knowing(image, tmp_path_factory.mktemp("state") / runtime),
        "docker_host": docker.host,
        "docker_image": image,
        "memory_mb": 256,
        "slots": SLOTS,
        "docker_pool": 1,
        "evidence_interval_s": 600,  # a look makes containers, and some tests count them
    }
    process = spawn(f"docker@{runtime}", settings, module="tests.support.patient_docker")
    async with ProviderSupervisor(process) as supervisor:
        info = await supervisor.wait_first_evidence(timeout_s=300)
        assert info
        assert (info.health, info.tier) == (Health.SERVING, WALLS[runtime]), info.faults
        yield Provided(supervisor, docker, runtime)


async def go(
    provided: Provided,
    payload: Payload,
    *,
    timeout_ms: int = 60_000,
    stream: bool = False,
    cancel_at_s: float | None = None,
    heard: Heard | None = None,
) -> Heard:
    """One whole run. `cancel_at_s` after it was accepted it is cancelled."""
    worker, heard = provided.supervisor.worker, heard or Heard()
    wanted = spec(kind=payload.kind, timeout_ms=timeout_ms)
    what = Job(wanted.run_id, payload, timeout_ms, CAP, stream)
    asking: asyncio.Task[None] | None = None

    async def ask(after_s: float) -> None:
        await asyncio.sleep(after_s)
        await worker.cancel(wanted.run_id)

    ticket, began = await reserved(worker, wanted), time.monotonic()
    async for event in worker.start(ticket, what):
        heard.take(event, time.monotonic() - began)
        if isinstance(event, Accepted):
            began = time.monotonic()
            asking = asyncio.create_task(ask(cancel_at_s)) if cancel_at_s is not None else None
    if asking:
        await asking
    return heard


async def project(
    provided: Provided,
    *steps: str,
    files: dict[str, bytes] | None = None,
    wants: tuple[str, ...] = (),
    **how: int,
) -> Heard:
    inputs = tuple(File(path, content) for path, content in (files or {}).items())
    return await go(provided, Project(inputs, steps, wants), timeout_ms=how.get("timeout_ms", 60_000))


# --- snippets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        Python("import sys; print('out'); print('err', file=sys.stderr)"),
        JavaScript("console.log('out'); console.error('err')"),
    ],
)
async def test_output_comes_back_on_its_own_stream(provided: Provided, payload: Payload) -> None:
    heard = await go(provided, payload)
    assert (heard.stdout, heard.stderr) == (b"out\n", b"err\n")
    assert heard.why == (0, False, False, False)
    assert heard.cut == (False, False)
    assert heard.accepted.tier is heard.ended.tier is WALLS[provided.runtime]
    assert heard.accepted.start_ms < 15_000


@pytest.mark.parametrize("code", [1, 7, 124, 130, 137, 153])
async def test_a_programs_own_exit_code_is_only_that(provided: Provided, code: int) -> None:
    assert (await go(provided, Python(f"raise SystemExit({code})"))).why == (code, False, False, False)


@pytest.mark.parametrize("by", [-1, 0, 1])
@pytest.mark.parametrize("stream", [False, True])
async def test_output_around_the_cap_is_exact(provided: Provided, by: int, stream: object) -> None:
    code = f"import os\nfor _ in range({CAP + by}): os.write(1, b'x')\nos.write(2, b'e')"
    heard = await go(provided, Python(code), stream=bool(stream))
    assert (len(heard.stdout), heard.stderr) == (min(CAP, CAP + by), b"e")
    assert heard.cut == (by > 0, False)
    assert heard.why == (0, False, False, False)


async def test_the_first_print_is_there_before_the_second(provided: Provided) -> None:
    code = "import time\nprint('first', flush=True)\ntime.sleep(1)\nprint('second', flush=True)"
    heard = await go(provided, Python(code), stream=True)
    outs = [at for event, at in zip(heard.events, heard.at_s, strict=True) if isinstance(event, Out)]
    assert heard.stdout == b"first\nsecond\n"
    assert len(outs) == 2
    assert outs[1] - outs[0] > 0.5


@pytest.mark.parametrize(
    "payload",
    [
        Python("import os\nwhile True: os.write(1, b'x' * 65536)"),
        JavaScript("const s = 'x'.repeat(60000); for (;;) require('fs').writeSync(1, s)"),
        JavaScript("for (;;) console.log('x'.repeat(1000))"),
    ],
)
async def test_a_flood_is_ended_and_its_head_kept(provided: Provided, payload: Payload) -> None:
    heard = await go(provided, payload)
    assert (heard.why, len(heard.stdout)) == ((153, False, False, False), CAP)
    assert heard.ended.stdout_truncated
    assert heard.ended.duration_ms < LATE_S * 1000


async def test_our_own_frames_are_plain_output(provided: Provided) -> None:
    forged = b'\x00\x00\x00\x18\x00\x00\x00\x14{"t":"result","exit":9}'
    heard = await go(provided, Python(f"import os; os.write(1, {forged!r}); os.write(0, {forged!r})"))
    assert heard.stdout == forged


async def test_bytes_that_are_no_text_come_back_as_they_are(provided: Provided) -> None:
    assert (await go(provided, Python(f"import os; os.write(1, {BYTES!r})"))).stdout == BYTES


# --- stops ----------------------------------------------------------------------------------------------------------------

ENDLESS: dict[str, JavaScript | Python] = {
    "busy": Python("print('x', flush=True)\nwhile True: pass"),
    "asleep": Python("import time\nprint('x', flush=True)\ntime.sleep(600)"),
    "busy node": JavaScript("require('fs').writeSync(1, 'x\\n'); for (;;);"),
    "a tree": Python(
        "import os, time\nprint('x', flush=True)\nfor _ in range(4): os.fork()\nos.setsid() if os.fork() == 0 else 0\n"
        "while True: time.sleep(1)"
    ),
    "deaf": Python(
        "import signal\nfor n in range(1, 65):\n try: signal.signal(n, signal.SIG_IGN)\n except (OSError, ValueError): pass\n"
        "print('x', flush=True)\nwhile True: pass"
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_a_cancel_is_exactly_a_deadline(provided: Provided, name: str) -> None:
    late, ended = await asyncio.gather(
        go(provided, ENDLESS[name], timeout_ms=3_000), go(provided, ENDLESS[name], cancel_at_s=3.0)
    )
    assert late.why == (124, True, False, False)
    assert ended.why == (130, False, False, True)
    assert (late.stdout, late.stderr, late.cut) == (ended.stdout, ended.stderr, ended.cut)
    assert (late.stdout, late.cut) == (b"x\n", (False, False))
    assert late.ended.duration_ms < 3_000 + LATE_S * 1000


@pytest.mark.parametrize(
    "payload",
    [
        Python("held = []\nwhile True: held.append(bytearray(b'x') * (1 << 20))"),
        JavaScript("const held = []; for (;;) held.push(Buffer.alloc(1 << 20, 1))"),
        JavaScript("const held = []; for (;;) held.push({ of: [1, 2, 3] })"),
    ],
)
async def test_running_out_of_memory_is_that_and_no_timeout(provided: Provided, payload: Payload) -> None:
    assert (await go(provided, payload)).why == (137, False, True, False)


async def test_much_memory_is_not_too_much(provided: Provided) -> None:
    """Four fifths of the limit held, and a page cache that would fill it several times over."""
    code = (
        "import os, time\nheld = bytearray(b'x') * (200 << 20)\nend = time.monotonic() + 4\nread = 0\n"
        "while time.monotonic() < end:\n for place, _, names in os.walk('/usr'):\n  for name in names:\n"
        "   path = os.path.join(place, name)\n   if os.path.isfile(path) and not os.path.islink(path):\n"
        "    try: read += len(open(path, 'rb').read(1 << 20))\n    except OSError: pass\n"
        "   if time.monotonic() > end: break\nprint(read > 0)"
    )
    heard = await go(provided, Python(code), timeout_ms=120_000)
    assert (heard.stdout, heard.why) == (b"True\n", (0, False, False, False))


async def test_a_killed_container_breaks_its_run(provided: Provided) -> None:
    heard = Heard()
    running = asyncio.create_task(go(provided, ENDLESS["busy"], stream=True, heard=heard))
    while not heard.stdout:
        assert not running.done()
        await asyncio.sleep(0.02)
    await asyncio.to_thread(provided.docker.docker, "kill", heard.accepted.instance.partition(":")[2])
    await running
    assert (heard.events[-1], heard.stdout) == (Broken("sandbox_died"), b"x\n")


async def test_runs_cancelled_at_any_moment_give_their_slots_back(provided: Provided) -> None:
    worker, dice, endings = provided.supervisor.worker, random.Random(5), list[str]()

    async def one(payload: Payload) -> None:
        wanted = spec(kind=payload.kind, timeout_ms=60_000)
        ticket = await worker.reserve(wanted)
        if isinstance(ticket, Refusal):
            return

        async def follow() -> Event:
            return [event async for event in worker.start(ticket, Job(wanted.run_id, payload, 60_000, CAP))][
                -1
            ]

        following = asyncio.create_task(follow())
        await asyncio.sleep(dice.choice((0, 0.001, 0.01, 0.1, 1, 2)))
        await worker.cancel(wanted.run_id)
        try:
            last = await asyncio.wait_for(following, 30)
        except TicketRefused:
            endings.append("refused")
            return
        assert isinstance(last, Ended), last
        assert (last.exit_code, last.cancelled) == (130, True)
        endings.append("cancelled")

    programs: list[Payload] = [*ENDLESS.values(), Project((), ("sleep 600",))]
    for _ in range(4):
        await asyncio.gather(*(one(each) for each in programs))
    assert "cancelled" in endings
    assert (await worker.info()).free == SLOTS
    assert (await go(provided, Python("print('on')"))).stdout == b"on\n"


# --- projects -------------------------------------------------------------------------------------------------------------


async def test_steps_run_in_order_and_stop_at_the_first_failure(provided: Provided) -> None:
    heard = await project(provided, "echo 1 >a; echo one", "cat a; exit 3", "echo never >a", wants=("a",))
    assert heard.outs == {(0, "stdout"): b"one\n", (1, "stdout"): b"1\n"}
    assert (heard.steps, heard.artifacts) == ([(0, False), (3, False)], {"a": b"1\n"})
    assert (heard.ended.outcome, heard.ended.exit_code) == (Outcome.COMPLETED, 3)


async def test_twenty_steps_each_with_their_own_output(provided: Provided) -> None:
    heard = await project(provided, *(f"echo {n}; echo {n} >&2" for n in range(20)), timeout_ms=200_000)
    assert heard.steps == [(0, False)] * 20
    assert all(heard.outs[n, stream] == b"%d\n" % n for n in range(20) for stream in ("stdout", "stderr"))


async def test_files_survive_to_the_byte_whatever_their_names(provided: Provided) -> None:
    names = ["sp ace", "q'uo\"te", "$(id)", "-rf", "ünï\u4f60", "x" * 255, "d/" * 20 + "e", "crlf", "empty"]
    contents = dict.fromkeys(names, BYTES) | {
        "empty": b"",
        "crlf": b"\xef\xbb\xbfa\r\nb\r\n",
        "big": bytes(3 << 20),
    }
    heard = await project(provided, "true", files=contents, wants=tuple(contents))
    assert heard.artifacts == contents


async def test_only_regular_files_inside_come_back_and_nothing_is_waited_for(provided: Provided) -> None:
    make = (
        "echo 1 >real; ln -s /etc/passwd link; ln -s /etc folder; mkfifo fifo; mkdir dir; ln -s real inner; "
        "ln -s /dev/zero zero"
    )
    wants = (
        "link",
        "folder/passwd",
        "fifo",
        "dir",
        "inner",
        "zero",
        "none",
        "../../etc/passwd",
        "/etc/passwd",
        "real",
    )
    heard = await project(provided, make, wants=wants)
    assert (heard.artifacts, heard.ended.outcome) == ({"real": b"1\n"}, Outcome.COMPLETED)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a/./x", "a//x"])
async def test_a_path_that_leads_elsewhere_is_a_failed_setup(provided: Provided, path: str) -> None:
    heard = await project(provided, "echo never", files={path: b"x"})
    assert (heard.ended.outcome, heard.ended.outcome_detail) == (Outcome.SETUP_FAILED, "path_refused")
    assert heard.steps == []


@pytest.mark.parametrize(
    ("step", "code", "outcome", "detail"),
    [
        ("sleep 600", 124, Outcome.TIMED_OUT, ""),
        ("while :; do head -c 60000 /dev/zero; done", 153, Outcome.RUNNER_FAILED, "output_flood"),
        (
            "python3 -c \"x = [bytearray(b'x') * (1 << 20) for _ in range(9999)]\"",
            137,
            Outcome.RUNNER_FAILED,
            "out_of_memory",
        ),
        (
            "node -e 'const held = []; for (;;) held.push({ of: [1, 2, 3] })'",
            137,
            Outcome.RUNNER_FAILED,
            "out_of_memory",
        ),
    ],
)
async def test_a_project_that_is_stopped_says_at_which_step_and_brings_nothing(
    provided: Provided, step: str, code: int, outcome: Outcome, detail: str
) -> None:
    limit_ms = 4_000 if code == 124 else 60_000
    heard = await project(provided, "echo 1 >a", step, "echo never", wants=("a",), timeout_ms=limit_ms)
    assert heard.steps == [(0, False), (code, code == 124)]
    assert (heard.ended.outcome, heard.ended.outcome_detail, heard.ended.exit_code) == (outcome, detail, code)
    assert (heard.artifacts, heard.ended.oom_killed, heard.ended.timed_out) == ({}, code == 137, code == 124)


async def test_a_cancelled_project_keeps_what_its_step_had_printed(provided: Provided) -> None:
    heard = await go(provided, Project((), ("echo 1", "echo 2; sleep 600", "true")), cancel_at_s=4.0)
    assert heard.outs == {(0, "stdout"): b"1\n", (1, "stdout"): b"2\n"}
    assert (heard.steps, heard.why) == ([(0, False), (130, False)], (130, False, False, True))
    assert (heard.ended.outcome, heard.ended.outcome_detail) == (Outcome.RUNNER_FAILED, "cancelled")


async def test_a_guest_that_kills_all_it_can_kills_only_its_own(provided: Provided) -> None:
    heard = await project(
        provided, "sleep 600 & kill -9 -1; kill -9 1; echo on", "echo next", wants=("none",)
    )
    assert (heard.outs[0, "stdout"], heard.outs[1, "stdout"]) == (b"on\n", b"next\n")
    assert heard.ended.outcome is Outcome.COMPLETED


async def test_a_deadline_during_the_sending_of_files_counts(provided: Provided) -> None:
    files = {f"f{n}": bytes(512 << 10) for n in range(8)}
    heard = await project(provided, "sleep 600", files=files, timeout_ms=1)
    assert (heard.ended.outcome, heard.ended.timed_out) == (Outcome.TIMED_OUT, True)
    assert heard.ended.duration_ms < LATE_S * 1000


# --- containers -----------------------------------------------------------------------------------------------------------


async def test_two_claims_at_once_share_nothing(provided: Provided) -> None:
    code = (
        "import os, time\nopen('/tmp/x', 'x').write('1')\ntime.sleep(.5)\n"
        "print(os.listdir('/workspace'), os.listdir('/tmp'))"
    )
    heard = await asyncio.gather(*(go(provided, Python(code)) for _ in range(3)))
    assert [each.stdout for each in heard] == [b"['main.py'] ['x']\n"] * 3
    assert len({each.accepted.instance for each in heard}) == 3


async def test_a_container_is_gone_after_its_run(provided: Provided) -> None:
    heard = await go(provided, ENDLESS["a tree"], timeout_ms=1_000)
    container = heard.accepted.instance.partition(":")[2]
    async with asyncio.timeout(60):
        while container in await asyncio.to_thread(provided.containers):
            await asyncio.sleep(0.05)
