"""S2: what a runner has, seen from outside as root, and what it cannot do, tried from inside."""

import asyncio
import contextlib
import ctypes
import errno
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.dispatch.supervisor import ProviderSupervisor, spawn
from plimsoll.contract.worker import Fact
from providers.wasm import seccomp
from providers.wasm.evidence import DESCRIPTORS
from providers.wasm.runner import NICE
from tests.support.runs import alive, children, descriptors, environment, memory_holds, run

pytestmark = [
    pytest.mark.component("wasm"),
    pytest.mark.component("seccomp"),
    pytest.mark.skipif(os.geteuid() != 0, reason="looks into other processes, which needs root"),
]

SLOTS = 4
CANARY = f"canary-{secrets.token_hex(16)}"
"""In the memory and the environment of the API's process, as a database URL and tokens are."""


@pytest.fixture
async def supervisor(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ProviderSupervisor]:
    monkeypatch.setenv("PLIMSOLL_DATABASE_URL", CANARY)
    held_open = (tmp_path / "database").open("w")
    listener = socket.create_server(("127.0.0.1", 0))
    for descriptor in (held_open.fileno(), listener.fileno()):
        os.set_inheritable(descriptor, True)
    process = spawn("wasm", {"cache_dir": str(cache_dir), "slots": SLOTS})
    with held_open, listener:
        async with ProviderSupervisor(process) as each:
            assert await each.wait_first_evidence(timeout_s=60)
            await run(each.worker, "console.log(1)")
            await _settled(each)
            yield each


async def _settled(supervisor: ProviderSupervisor) -> None:
    """A runner being forked is not confined yet, and has no code yet: wait until none is."""
    spare = min(SLOTS, 2 * (os.cpu_count() or 1))  # and beside them those that ran, as long as they are kept
    for _ in range(100):
        confined = [status(pid).get("Seccomp") == "2" for pid in runners(supervisor)]
        if len(confined) >= spare and all(confined):
            return
        await asyncio.sleep(0.01)
    pytest.fail("a runner is not confined")


def runners(supervisor: ProviderSupervisor) -> list[int]:
    (zygote,) = children(supervisor.pid)
    before = children(zygote)
    time.sleep(0.5)  # one that is only looked at is gone soon
    found = [each for each in before if each in children(zygote)]
    assert found
    return found


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def test_a_runner_has_open_only_what_it_needs(supervisor: ProviderSupervisor) -> None:
    for pid in runners(supervisor):
        while len(links := sorted(descriptors(pid).values())) > len(DESCRIPTORS.split()):
            await asyncio.sleep(
                0.01
            )  # one that was just forked has not closed the rest yet, nor has it any code
        assert links[:3] == [os.devnull] * 3
        assert links[3].startswith("/memfd:wasm-memory-image")
        assert links[4].startswith("socket:")


def open_beyond_2(pid: int) -> list[str]:
    return [link for number, link in descriptors(pid).items() if int(number) > 2]


async def test_the_fork_server_has_open_only_what_it_needs(supervisor: ProviderSupervisor) -> None:
    (zygote,) = children(supervisor.pid)
    while len(others := open_beyond_2(zygote)) > 2:
        await asyncio.sleep(0.01)  # it holds a new runner's sockets for the moment of the fork
    image, sock = sorted(others)
    assert image.startswith("/memfd:wasm-memory-image")
    assert sock.startswith("socket:")


async def test_no_process_of_the_provider_has_an_environment(supervisor: ProviderSupervisor) -> None:
    (zygote,) = children(supervisor.pid)
    assert environment(supervisor.pid) == environment(zygote) == b""
    found = []
    for pid in runners(supervisor):
        with contextlib.suppress(
            ProcessLookupError, FileNotFoundError
        ):  # one that was just looked at may end
            found.append(environment(pid))
    assert set(found) == {b""}


async def test_no_secret_of_the_service_is_in_a_runners_memory(supervisor: ProviderSupervisor) -> None:
    (zygote,) = children(supervisor.pid)
    assert memory_holds(os.getpid(), CANARY.encode())  # the search works
    for pid in (supervisor.pid, zygote, *runners(supervisor)):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # as above
            assert not memory_holds(pid, CANARY.encode())


async def test_one_callers_code_and_output_are_in_no_other_runner(supervisor: ProviderSupervisor) -> None:
    mark = secrets.token_hex(16)
    halves = f"console.log('{mark[:16]}' + '{mark[16:]}')"
    seen = await run(supervisor.worker, halves, tenant="b" * 32)
    assert seen.stdout.strip() == mark.encode()
    holding = [pid for pid in runners(supervisor) if memory_holds(pid, mark[:16].encode())]
    assert len(holding) <= 1  # the one that ran it, which serves only that caller
    (zygote,) = children(supervisor.pid)
    assert not memory_holds(zygote, mark[:16].encode())


async def test_a_runner_is_filtered_unprivileged_and_bounded(supervisor: ProviderSupervisor) -> None:
    for pid in runners(supervisor):
        seen = status(pid)
        assert (seen["Seccomp"], seen["NoNewPrivs"]) == ("2", "1")
        assert {seen[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {""}
        for name in ("Max core file size", "Max file size", "Max processes"):
            assert limit(pid, name) == ["0", "0"]
        assert int(limit(pid, "Max data size")[1]) <= (64 + 192) << 20
        assert int(limit(pid, "Max stack size")[1]) <= 8 << 20
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
        assert threads_filtered(pid) == {"2"}


def limit(pid: int, name: str) -> list[str]:
    """Soft and hard limit of a process."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return line.removeprefix(name).split()[:2]


def threads_filtered(pid: int) -> set[str]:
    """The seccomp modes of all threads of a process."""
    return {
        each.read_text().split("Seccomp:")[1].split()[0]
        for each in Path(f"/proc/{pid}/task").glob("*/status")
    }


async def test_evidence_says_how_every_forbidden_call_ended(supervisor: ProviderSupervisor) -> None:
    info = await supervisor.worker.info()
    facts: dict[str, Fact] = {fact.name: fact for fact in info.facts}
    assert {facts[f"seccomp.{name}"].value for name in seccomp.PROBES} == {"EPERM"}
    assert facts["seccomp.policy"].value == info.policy == seccomp.policy(seccomp.this_machine())


async def test_runners_die_with_their_provider(supervisor: ProviderSupervisor) -> None:
    found = runners(supervisor)
    os.kill(supervisor.pid, signal.SIGKILL)
    for _ in range(200):
        if not any(alive(pid) for pid in found):
            return
        await asyncio.sleep(0.01)
    pytest.fail("a runner outlived its provider")


# --- from inside ----------------------------------------------------------------------------------------------------------


def _call(name: str, *arguments: object) -> int:
    """One system call: 0 for success, or its errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    widened = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    number = ctypes.c_long(seccomp.MACHINES[seccomp.this_machine()].calls[name])
    return ctypes.get_errno() if libc.syscall(number, *widened) < 0 else 0


def _attempts(database: bytes, parent: int) -> list[int]:
    """What a guest that took over its runner would try: the database, the docker socket, the parent, its siblings."""
    return [
        _call("openat", -100, database, 0, 0),
        _call("socket", 1, 1, 0),
        _call("openat", -100, f"/proc/{parent}/mem".encode(), 0, 0),
        _call("kill", parent, 0),
        _call("kill", 1, 0),
        _call("tgkill", parent, parent, signal.SIGSTOP),
    ]


def test_a_process_under_the_filter_reaches_nothing(tmp_path: Path) -> None:
    """The filter alone, around a process that has every right otherwise."""
    database = tmp_path / "plimsoll.sqlite3"
    database.write_text("secret")
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            before = _call("openat", -100, str(database).encode(), 0, 0)
            seccomp.install(seccomp.this_machine())
            after = _attempts(str(database).encode(), parent)
            os.write(writing, " ".join(map(str, [before, *after])).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        before, *after = map(int, pipe.read().split())
    os.waitpid(child, 0)
    assert before == 0
    assert set(after) == {errno.EPERM}
    assert len(after) == 6
