"""Calls from containers, through a provider process, to a broker on a real socket: the same table as in a VM, and cheats."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.dispatch.link import WorkerLink
from app.dispatch.supervisor import ProviderSupervisor, spawn
from plimsoll.contract.requests import File, JavaScript, Payload, Project, Python
from plimsoll.contract.worker import Health
from tests.integration.docker.conftest import RUNTIME_PARAMS
from tests.support import guest_calls
from tests.support.brokers import FakeBroker, calling, fake_broker
from tests.support.docker import Daemon, state_knowing
from tests.support.guest_calls import Case
from tests.support.runs import Seen, new_id

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

PER_LANGUAGE: dict[str, Callable[[tuple[Case, ...]], Payload]] = {
    "javascript": lambda cases: JavaScript(guest_calls.javascript(cases)),
    "python": lambda cases: Python(guest_calls.python(cases)),
    "node in a step": lambda cases: Project(
        (File("main.mjs", guest_calls.javascript(cases).encode()),), ("node main.mjs",), ()
    ),
    "python in a step": lambda cases: Project(
        (File("main.py", guest_calls.python(cases).encode()),), ("python3 main.py",), ()
    ),
}


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=RUNTIME_PARAMS,
)
async def provided(
    request: pytest.FixtureRequest, docker: Daemon, image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[str, WorkerLink]]:
    runtime = str(request.param)
    settings = {
        "state_dir": state_knowing(image, tmp_path_factory.mktemp("state") / runtime),
        "docker_host": docker.host,
        "docker_image": image,
        "slots": 4,
        "docker_pool": 1,
        "evidence_interval_s": 600,
    }
    process = spawn(f"docker@{runtime}", settings, module="tests.support.patient_docker")
    async with ProviderSupervisor(process) as supervisor:
        info = await supervisor.wait_first_evidence(timeout_s=300)
        assert info
        assert info.health is Health.SERVING, info.faults
        yield runtime, supervisor.worker


@pytest.fixture
def worker(provided: tuple[str, WorkerLink]) -> WorkerLink:
    return provided[1]


@pytest_asyncio.fixture(loop_scope="module")
async def broker(tmp_path: Path) -> AsyncIterator[FakeBroker]:
    async with fake_broker(tmp_path) as made:
        yield made


async def run(
    worker: WorkerLink, payload: Payload, broker: FakeBroker | None, *, timeout_ms: int = 60_000, **how: Any
) -> Seen:
    return await calling(worker, payload, broker, timeout_ms=timeout_ms, **how)


@pytest.mark.parametrize("language", PER_LANGUAGE)
async def test_the_table_of_behaviour(worker: WorkerLink, broker: FakeBroker, language: str) -> None:
    seen = await run(worker, PER_LANGUAGE[language](guest_calls.CASES), broker)
    assert (seen.stderr, seen.ended.exit_code) == (b"", 0)
    guest_calls.check(guest_calls.CASES, seen.stdout)


@pytest.mark.parametrize("language", PER_LANGUAGE)
async def test_without_a_grant_there_is_a_host_and_every_call_says_so(
    worker: WorkerLink, language: str
) -> None:
    cases: tuple[Case, ...] = guest_calls.WITHOUT_GRANT
    seen = await run(worker, PER_LANGUAGE[language](cases), None)
    assert seen.stderr == b""
    guest_calls.check(cases, seen.stdout)


AT_ONCE: dict[str, Payload] = {
    "javascript": JavaScript("""
        const all = await Promise.all(Array.from({length: 200}, (_, n) => host.post('/echo', `${n}`)));
        console.log(all.every((r, n) => r.json().body === `${n}`));
    """),
    "python threads and children": Python("""
import host, os
from concurrent.futures import ThreadPoolExecutor
def echoed(n):
    return host.post("/echo", str(n)).json()["body"] == str(n)
children = []
for child in range(4):
    if (pid := os.fork()) == 0:
        os._exit(0 if all(echoed(1000 * child + n) for n in range(25)) else 1)
    children.append(pid)
with ThreadPoolExecutor(20) as pool:
    right = all(pool.map(echoed, range(100)))
print(right and all(os.waitpid(pid, 0)[1] == 0 for pid in children))
"""),
    "both languages in steps": Project(
        (
            File(
                "a.js",
                b"""(async () => {
                    for (let n = 0; n < 50; n++) if ((await host.post('/echo', 'js')).json().body !== 'js') process.exit(1);
                })()""",
            ),
            File(
                "a.py",
                b"import host\nfor n in range(50): assert host.post('/echo', 'py').json()['body'] == 'py'",
            ),
        ),
        # By their numbers: `wait -n` knows nothing of one that has ended before it.
        (
            "node a.js & one=$!; node a.js & two=$!; python3 a.py && wait $one && wait $two",
            "python3 a.py && echo True",
        ),
        (),
    ),
}


@pytest.mark.parametrize("program", AT_ONCE)
async def test_calls_at_the_same_time_each_get_their_own_answer(
    worker: WorkerLink, broker: FakeBroker, program: str
) -> None:
    seen = await run(worker, AT_ONCE[program], broker)
    assert (seen.stdout.lower(), seen.stderr) == (b"true\n", b"")
    assert len(broker.messages) == 200
    assert broker.most_under_way <= 16


async def test_calls_and_output_are_never_mixed(worker: WorkerLink, broker: FakeBroker) -> None:
    code = """
        for (let n = 0; n < 300; n++) { host.get('/text'); process.stdout.write('o'.repeat(100)); }
        for (let n = 0; n < 20; n++) { await host.get('/large'); process.stdout.write('p'); }
    """
    seen = await run(worker, JavaScript(code), broker)
    assert seen.stdout == b"o" * 30_000 + b"p" * 20


async def test_a_deadline_ends_a_call_and_keeps_what_was_printed(
    worker: WorkerLink, broker: FakeBroker
) -> None:
    code = "import host\nprint('before', flush=True)\nhost.get('/wait')"
    seen = await run(worker, Python(code), broker, timeout_ms=1_500)
    assert (seen.ended.timed_out, seen.stdout) == (True, b"before\n")
    async with asyncio.timeout(10):
        while broker.under_way:
            await asyncio.sleep(0.01)
    assert broker.cancelled == 1


async def test_a_cancel_ends_a_call(worker: WorkerLink, broker: FakeBroker) -> None:
    run_id = new_id()
    running = asyncio.create_task(run(worker, JavaScript("await host.get('/wait')"), broker, run_id=run_id))
    await broker.asked.wait()
    await worker.cancel(run_id)
    assert (await running).ended.cancelled
    async with asyncio.timeout(10):
        while broker.under_way:
            await asyncio.sleep(0.01)


async def test_nothing_of_a_run_calls_after_its_end(worker: WorkerLink, broker: FakeBroker) -> None:
    code = """
import host, os
if os.fork() == 0:
    os.setsid()
    while True:
        host.get("/text")
for _ in range(5):
    host.get("/text")
"""
    await run(worker, Python(code), broker)
    at_its_end = len(broker.messages)
    await asyncio.sleep(
        0.2
    )  # one call at a time: the last may be on its way, and the run's end does not call that back
    after = len(broker.messages)
    await asyncio.sleep(0.5)  # nothing to wait for: it is to stay so
    assert len(broker.messages) == after >= 5
    assert after <= at_its_end + 1


HOSTILE = {
    "connections that say nothing": """
many = [connected() for _ in range(60)]
print(host.get("/text").status)
""",
    "more connections than there is room for": """
many = []
for _ in range(300):
    channel = socket.socket(socket.AF_UNIX)
    channel.setblocking(False)
    try:
        channel.connect(host.CHANNEL)
    except OSError:
        break
    many.append(channel)
print(len(many) > 60)
del many, channel
import gc; gc.collect()
print(host.get("/text").status)
""",
    "lengths that cannot be": """
for length in (0, (2 << 20) + 1, 0xFFFFFFFF):
    channel = connected()
    channel.sendall(length.to_bytes(4, "big"))
    print(channel.recv(1) == b"")
print(host.get("/text").status)
""",
    "messages that are not finished": """
for _ in range(40):
    channel = connected()
    channel.sendall((1000).to_bytes(4, "big") + b"x" * 500)
    channel.close()
print(host.get("/text").status)
""",
    "answers that nobody reads": """
def asked(path):
    channel = connected()
    message = json.dumps({"method": "GET", "path": path}).encode()
    channel.sendall(len(message).to_bytes(4, "big") + message)
    return channel
many = [asked("/large") for _ in range(8)]
print(host.get("/text").status)
for channel in many:
    channel.close()
print(host.get("/large").status)
""",
    "messages that are no calls": """
for message in (b"\\xff" * 100, b"{}", b"[" * 100_000, b'{"path": 1}', b'"' + b"x" * 2_000_000):
    channel = connected()
    channel.sendall(len(message).to_bytes(4, "big") + message)
    size = int.from_bytes(channel.recv(4), "big")
    print(json.loads(channel.recv(size))["error"]["code"])
print(host.get("/text").status)
""",
    "a socket in the place of the agent's": """
for act in (os.unlink, lambda path: os.rename(path, path + "x"), lambda path: os.chmod(path, 0)):
    try:
        act(host.CHANNEL)
        print("let")
    except OSError:
        print("refused")
fake = socket.socket(socket.AF_UNIX)
try:
    fake.bind(host.CHANNEL)
except OSError as error:
    print("refused")
print(host.get("/text").status)
""",
    "more said behind the message": """
message = json.dumps({"method": "GET", "path": "/text"}).encode()
channel = connected()
channel.sendall(len(message).to_bytes(4, "big") + message + b"\\0\\0\\0\\x02{}" * 1000)
print(len(channel.recv(1 << 16)) > 4)
print(host.get("/text").status)
""",
}
PREAMBLE = """
import host, json, os, socket
def connected():
    channel = socket.socket(socket.AF_UNIX)
    channel.settimeout(20)
    channel.connect(host.CHANNEL)
    return channel
"""
SAYS = {
    "connections that say nothing": b"200\n",
    "more connections than there is room for": b"True\n200\n",
    "lengths that cannot be": b"True\n" * 3 + b"200\n",
    "messages that are not finished": b"200\n",
    "answers that nobody reads": b"200\n200\n",
    "messages that are no calls": b"denied\n" * 5 + b"200\n",
    "a socket in the place of the agent's": b"refused\n" * 4 + b"200\n",
    "more said behind the message": b"True\n200\n",
}


@pytest.mark.parametrize("trick", HOSTILE)
async def test_what_a_guest_does_to_the_channel_harms_nobody(
    worker: WorkerLink, broker: FakeBroker, trick: str
) -> None:
    seen = await run(worker, Python(PREAMBLE + HOSTILE[trick]), broker)
    assert (seen.stdout, seen.stderr, seen.ended.exit_code) == (SAYS[trick], b"", 0)


async def test_the_pass_is_nowhere_in_the_sandbox(worker: WorkerLink, broker: FakeBroker) -> None:
    code = """
import host, os, pathlib
host.get("/text")
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    for name in ("environ", "cmdline"):
        try:
            print((folder / name).read_bytes())
        except OSError:
            pass
print(dict(os.environ), os.listdir("/workspace"), os.listdir("/tmp"))
"""
    run_id = new_id()
    seen = await run(worker, Python(code), broker, run_id=run_id)
    assert seen.ended.exit_code == 0
    assert f"secret-of-{run_id}".encode() not in seen.stdout
    assert b"broker" not in seen.stdout
