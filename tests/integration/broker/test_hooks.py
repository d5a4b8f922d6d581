"""Minters of the operator's own, as real programs and a real service."""

import asyncio
import base64
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker import hooks
from broker.addresses import AddressFault, Rules
from broker.credential import Credential, CredentialFault, Place
from broker.hooks import OUTPUT_BYTES, ExecHook, ExecMinter, HttpHook, HttpMinter
from broker.mint import MintFault, Order
from broker.upstream import Limits, Upstream, connect, trust
from plimsoll.contract.grants import GrantFault, Origin
from tests.integration.broker.apis import HOME, Api, answer, canned, serve

ORDER = Order("hr-read", "caller-7", "a" * 32, budget_s=30.0)
ANY = frozenset({"https://hr.example.com"})
TOLD = {"profile": "hr-read", "caller": "caller-7", "run_id": "a" * 32, "audience": "hr", "budget_s": 30.0}


def program(code: str, timeout_s: float = 30, **environment: str) -> ExecMinter:
    return ExecMinter(
        ExecHook((sys.executable, "-I", "-c", code), ANY, environment, timeout_s), "hr", Place()
    )


def token(minted: Credential | MintFault) -> str:
    assert isinstance(minted, Credential), minted
    return minted.value.removeprefix("Bearer ")


async def test_a_program_is_told_for_whom_and_says_the_credential() -> None:
    code = "import sys, json, base64; print(base64.b64encode(sys.stdin.buffer.read()).decode())"
    assert json.loads(base64.b64decode(token(await program(code).mint(ORDER)))) == TOLD


async def test_a_program_gets_only_the_listed_environment_and_no_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY", "x")
    code = "import os, sys; print('/'.join([*sorted(os.environ), os.getcwd(), *sys.argv[1:]]))"
    assert token(await program(code, EXTRA="y").mint(ORDER)) == "EXTRA/LANG/PATH//"


async def test_a_program_inherits_no_descriptor() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    code = "import os; print('open-' + '-'.join(sorted(os.listdir('/proc/self/fd'))))"
    try:
        assert token(await program(code).mint(ORDER)) == "open-0-1-2-3"  # 3 is the listing's own
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("print('canary-token'); raise SystemExit(3)", MintFault.HOOK_FAILED),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", MintFault.HOOK_FAILED),
        ("pass", MintFault.HOOK_OUTPUT),
        ("print('short')", MintFault.HOOK_OUTPUT),
        ("print('two lines'); print('of them')", MintFault.HOOK_OUTPUT),
        ("print('canary-token\\r\\nhost: evil')", MintFault.HOOK_OUTPUT),
        ("import sys; sys.stdout.buffer.write(b'\\xff' * 20)", MintFault.HOOK_OUTPUT),
        ("while True: print('x' * 1000)", MintFault.HOOK_OUTPUT),
        (f"print('x' * {OUTPUT_BYTES})", MintFault.HOOK_OUTPUT),
    ],
)
async def test_a_program_that_does_not_do_its_part_gives_nothing(code: str, fault: MintFault) -> None:
    assert await program(code).mint(ORDER) is fault


async def test_a_program_need_not_read() -> None:
    code = "import os; os.close(0); print('canary-token')"
    assert token(await program(code).mint(ORDER)) == "canary-token"


async def test_a_program_that_is_not_there_is_a_fault() -> None:
    assert (
        await ExecMinter(ExecHook(("/nonexistent/minter",), ANY), "hr", Place()).mint(ORDER)
        is MintFault.HOOK_UNAVAILABLE
    )


def test_a_program_is_named_by_its_whole_path() -> None:
    for command in ((), ("python3",), ("./minter",)):
        with pytest.raises(CredentialFault):
            ExecHook(command, ANY)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("ending", ["import time; time.sleep(1000)", "print('canary-token', flush=True)"])
async def test_nothing_of_a_program_outlives_its_deadline_or_its_end(tmp_path: Path, ending: str) -> None:
    """Its child has closed the pipe, ignores what it can, and is ended all the same."""
    note = tmp_path / "pid"
    child = "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-I', '-c', {child!r}], stdout=subprocess.DEVNULL)\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n{ending}"
    )
    found = await program(code, timeout_s=3).mint(ORDER)
    assert found is MintFault.HOOK_TIMEOUT or token(found) == "canary-token"
    pid, deadline = int(note.read_text()), time.monotonic() + 20
    while alive(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            pytest.fail("a child of the program lives on")


def asking(api: Api, rules: Rules = HOME) -> Callable[[], Awaitable[Upstream | AddressFault]]:
    return lambda: connect(api.origin, rules, trust(), Limits(10, 20, 20, back_bytes=1000))


def service(api: Api, rules: Rules = HOME) -> HttpMinter:
    return HttpMinter(
        HttpHook(api.origin, "/mint", ANY, (("authorization", "Bearer of-the-hook"),)),
        asking(api, rules),
        "hr",
        Place(),
    )


async def test_a_service_is_told_for_whom_and_answers_the_credential() -> None:
    async with serve(canned(answer(b'{"credential": "canary-token"}'))) as api:
        assert token(await service(api).mint(ORDER)) == "canary-token"
    (request,) = api.requests
    assert request.lines[0] == b"POST /mint HTTP/1.1"
    assert request.values("authorization") == [b"Bearer of-the-hook"]
    assert json.loads(request.body) == TOLD


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (answer(b'{"credential": "canary-token"}', status="201 Created"), MintFault.HOOK_FAILED),
        (answer(b"", "location: http://127.0.0.1/", status="302 Found"), MintFault.HOOK_FAILED),
        (answer(b"no", status="500 No"), MintFault.HOOK_FAILED),
        (answer(b"{}"), MintFault.HOOK_OUTPUT),
        (answer(b"["), MintFault.HOOK_OUTPUT),
        (answer(b"[" * 900), MintFault.HOOK_OUTPUT),
        (answer(b'{"credential": 7}'), MintFault.HOOK_OUTPUT),
        (answer(b'{"credential": "two words"}'), MintFault.HOOK_OUTPUT),
        (answer(b'{"credential": "\\ud800aaaaaaaa\\u00e9"}'), MintFault.HOOK_OUTPUT),
        (answer(b"x" * 1001), MintFault.HOOK_OUTPUT),
    ],
)
async def test_a_service_that_does_not_do_its_part_gives_nothing(raw: bytes, fault: MintFault) -> None:
    async with serve(canned(raw)) as api:
        assert await service(api).mint(ORDER) is fault


@pytest.mark.parametrize("path", ["mint", "//mint", "/../mint", "/mint\r\nhost: evil"])
def test_a_service_is_asked_at_a_plain_path(path: str) -> None:
    with pytest.raises(GrantFault):
        HttpHook(Origin("https", "mint.example", 443), path, ANY)


async def test_a_service_that_is_not_there_or_not_listed_is_a_fault() -> None:
    async with serve(canned(answer())) as api:
        assert await service(api, Rules()).mint(ORDER) is MintFault.HOOK_UNAVAILABLE
    assert (
        await service(Api(Origin("http", "127.0.0.1", api.origin.port))).mint(ORDER)
        is MintFault.HOOK_UNAVAILABLE
    )
    assert api.connections == 0


async def test_a_program_whose_full_output_nobody_reads_on_is_ended() -> None:
    """Python tells of a process's end when its pipes have ended, and nothing is read from one that is full."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        "head -c 400000 /dev/zero; sleep 1000",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    await asyncio.sleep(0.5)  # until it is full
    assert await hooks._talk(process, b"order\n") is MintFault.HOOK_OUTPUT
    async with asyncio.timeout(30):
        await hooks._end(process)
    assert process.returncode == -signal.SIGKILL
