"""S15: a private service gets nothing but what it is given, and nothing of it is left, however it ends."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import plimsoll
from plimsoll.client import errors, private
from plimsoll.contract.refusals import Reason

DAEMON = Path(__file__).with_name("daemon.py")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, empty at first; short, because a socket's path is bounded."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stand-in as a program."""
    program = tmp_path_factory.mktemp("bin") / "plimsolld"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {DAEMON} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def left(temporary: Path) -> list[Path]:
    """What is in the directory for temporary files."""
    return list(temporary.iterdir())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_runs_and_nothing_is_left(daemon: str, temporary: Path) -> None:
    service = plimsoll.local(daemon=daemon)
    with service as sandbox:
        assert isinstance(sandbox, plimsoll.Client)
        assert sandbox.run_javascript("1").isolation == "process"
        (directory,) = temporary.iterdir()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert service._service is not None
        pid = service._service._process.pid
    assert left(temporary) == []
    assert not alive(pid)


def test_the_environment_holds_only_what_was_passed(
    daemon: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("PLIMSOLL_TOKEN", "canary")
    monkeypatch.setenv("PLIMSOLL_CACHE_DIR", "cache")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with plimsoll.local("wasm", daemon, {"SANDBOX_MEMORY_MB": "128"}) as sandbox:
        about = json.loads(sandbox.run_javascript("1").stdout)
    environment = about["environment"]
    assert Path(environment.pop("PLIMSOLL_DATA_DIR")).parent == temporary
    shell = {"PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}
    assert {name: value for name, value in environment.items() if name not in shell} == {
        "SANDBOX_PROVIDER": "wasm",
        "SANDBOX_MEMORY_MB": "128",
        "PLIMSOLL_CACHE_DIR": "cache",
    }


def test_no_other_descriptor_is_inherited(daemon: str, temporary: Path) -> None:
    with (temporary / "canary").open("w") as canary:
        os.set_inheritable(canary.fileno(), True)
        with plimsoll.local(daemon=daemon) as sandbox:
            fds = json.loads(sandbox.run_javascript("1").stdout)["fds"]
    # stdin, stdout, stderr, the private socket, its own listener, connection and the directory it reads.
    assert len(fds) <= 7


def test_both_sorts_of_client_by_hand(daemon: str, temporary: Path) -> None:
    service = plimsoll.LocalService(daemon=daemon).start()

    async def run() -> plimsoll.Run:
        async with service.async_client() as sandbox:
            return await sandbox.run_javascript("1")

    try:
        with service.client() as sandbox:
            first = sandbox.run_javascript("1")
        assert asyncio.run(run()).instance != first.instance
    finally:
        service.close()
    service.close()
    assert left(temporary) == []
    with pytest.raises(errors.InvalidOption):
        service.client()


async def test_async_with(daemon: str, temporary: Path) -> None:
    async with plimsoll.local(daemon=daemon) as sandbox:
        assert (await sandbox.run_javascript("1")).exit_code == 0
    assert left(temporary) == []


async def test_a_start_that_is_cancelled_leaves_nothing(daemon: str, temporary: Path) -> None:
    service = plimsoll.local("wasm", daemon, {"STUB_MODE": "late"})
    task = asyncio.create_task(service.__aenter__())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left(temporary) == []


def test_an_exception_in_the_block_ends_it_too(daemon: str, temporary: Path) -> None:
    with pytest.raises(KeyError), plimsoll.local(daemon=daemon):
        raise KeyError
    assert left(temporary) == []


def test_a_service_nobody_closed_ends_with_its_last_reference(daemon: str, temporary: Path) -> None:
    service = plimsoll.local(daemon=daemon).start()
    assert service._service is not None
    pid = service._service._process.pid
    del service
    assert not alive(pid)
    assert left(temporary) == []


def test_a_stubborn_service_is_killed_with_its_group(
    daemon: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "END_S", 0.2)
    service = plimsoll.local("wasm", daemon, {"STUB_MODE": "stubborn"})
    with service as sandbox:
        sandbox.run_javascript("1")
        assert service._service is not None
        group = service._service._process.pid
        deadline = time.monotonic() + 5
    assert time.monotonic() < deadline
    while _group_lives(group):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert left(temporary) == []


def _group_lives(group: int) -> bool:
    """Whether a process of the group is there that is not merely waiting to be reaped."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            return True
    return False


def failure(daemon: str, temporary: Path, mode: str) -> errors.LocalServiceError:
    with pytest.raises(errors.LocalServiceError) as caught:
        plimsoll.local("wasm", daemon, {"STUB_MODE": mode}).start()
    assert caught.value.not_dispatched is Reason.ENVIRONMENT
    assert left(temporary) == []
    return caught.value


def test_a_service_that_cannot_start_says_why(daemon: str, temporary: Path) -> None:
    error = failure(daemon, temporary, "refuse")
    assert error.errors == ("SANDBOX_PROVIDER: unknown provider",)
    assert "unknown provider" in str(error)


def test_a_service_that_ends_leaves_its_last_words(daemon: str, temporary: Path) -> None:
    assert "cannot find the moon" in str(failure(daemon, temporary, "exit"))


def test_a_line_that_is_no_readiness_line(
    daemon: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "END_S", 0.2)
    assert "must be JSON" in str(failure(daemon, temporary, "garbage"))


def test_a_service_that_is_never_ready(daemon: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "START_S", 0.3)
    monkeypatch.setattr(private, "END_S", 0.2)
    assert "not ready within" in str(failure(daemon, temporary, "silent"))


def test_without_the_program_the_error_says_how_to_get_it(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(temporary))
    monkeypatch.delenv("PLIMSOLL_DAEMON", raising=False)
    monkeypatch.setattr(sys, "executable", str(temporary / "python"))
    with pytest.raises(errors.LocalServiceError, match="make setup"):
        plimsoll.local().start()
    with pytest.raises(errors.LocalServiceError, match="not a program"):
        plimsoll.local(daemon=temporary / "absent").start()


def test_a_program_that_cannot_be_executed(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    program = tmp_path_factory.mktemp("bin") / "plimsolld"
    program.write_bytes(b"\x7fELF nothing")
    program.chmod(0o755)
    with pytest.raises(errors.LocalServiceError, match="could not be started"):
        plimsoll.local(daemon=program).start()
    assert left(temporary) == []


def test_the_program_may_be_named_by_the_environment(
    daemon: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_DAEMON", daemon)
    with plimsoll.local() as sandbox:
        assert sandbox.run_javascript("1").exit_code == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"PLIMSOLL_DATA_DIR": "x"},
        {"SANDBOX_PROVIDER": "x"},
        {"lower": "x"},
        {"A=B": "x"},
        {"A": "x\0"},
        {"A": 1},
    ],
)
def test_a_setting_that_cannot_be_given(settings: dict[str, str]) -> None:
    with pytest.raises(errors.InvalidOption):
        plimsoll.local(settings=settings)


def test_the_service_is_in_a_group_and_session_of_its_own(daemon: str, temporary: Path) -> None:
    service = plimsoll.local(daemon=daemon)
    with service:
        assert service._service is not None
        pid = service._service._process.pid
        assert (os.getpgid(pid), os.getsid(pid)) == (pid, pid)


AFTER = """
import asyncio, sys
import plimsoll

with plimsoll.local(daemon=sys.argv[1]) as sandbox:
    sandbox.run_javascript("1")
try:
    sandbox.run_javascript("1")
except plimsoll.TransportError as error:
    print(error, error.not_dispatched)

async def main():
    async with plimsoll.local(daemon=sys.argv[1]) as sandbox:
        await sandbox.run_javascript("1")
    try:
        await sandbox.run_javascript("1")
    except plimsoll.TransportError as error:
        print(error, error.not_dispatched)

asyncio.run(main())

service = plimsoll.LocalService(daemon=sys.argv[1]).start()
with service.client() as client:
    service.close()
    try:
        client.run_javascript("1")
    except plimsoll.TransportError as error:
        print(error, error.not_dispatched)
"""


def test_a_client_used_after_its_service_says_so_and_leaves_no_socket_open(
    daemon: str, temporary: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", AFTER, daemon],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 3 * "this private service has ended: nothing was sent environment\n"


def test_a_service_that_was_killed_has_ended(daemon: str, temporary: Path) -> None:
    service = plimsoll.local(daemon=daemon)
    with service as sandbox:
        assert service._service is not None
        os.kill(service._service._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, service._service._process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(errors.TransportError, match="this private service has ended"):
            sandbox.run_javascript("1")


def test_a_service_is_no_client() -> None:
    service: Any = plimsoll.local()
    with pytest.raises(AttributeError, match=r"with plimsoll\.local\(\) as sandbox: sandbox\.run_javascript"):
        service.run_javascript("1")
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        service.walk()


@pytest.mark.parametrize("how", [{"provider": 5}, {"settings": 5}, {"settings": {5: "x"}}])
def test_an_argument_of_a_wrong_type(how: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidOption):
        plimsoll.local(**how)


def test_a_program_of_a_wrong_type() -> None:
    wrong: Any = 5
    with pytest.raises(errors.InvalidOption, match="daemon"):
        plimsoll.local(daemon=wrong).start()


def test_a_program_that_cannot_be_run_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    monkeypatch.setenv("PLIMSOLL_DAEMON", absent)
    with pytest.raises(
        errors.LocalServiceError, match=f"{absent}, named by PLIMSOLL_DAEMON, is not a program"
    ):
        plimsoll.local().start()
    with pytest.raises(errors.LocalServiceError, match=f"{absent}, named by the argument daemon, is not"):
        plimsoll.local(daemon=absent).start()


def test_a_slow_machine_has_three_minutes_to_compile_and_to_look_at_its_walls() -> None:
    assert private.START_S == 180


def test_several_providers_are_handed_on_as_they_were_named(daemon: str, temporary: Path) -> None:
    with plimsoll.local("docker@runsc,docker,wasm", daemon) as sandbox:
        about = json.loads(sandbox.run_javascript("1").stdout)
    assert about["environment"]["SANDBOX_PROVIDER"] == "docker@runsc,docker,wasm"
    assert left(temporary) == []


@pytest.mark.parametrize("entry", ["docker@", "kata", "docker@runsc,docker@runsc"])
def test_an_entry_that_the_service_refuses_is_an_error_with_its_rule(entry: str) -> None:
    with pytest.raises(errors.LocalServiceError) as caught:
        plimsoll.local(entry).start()
    (rule,) = caught.value.errors
    assert rule.startswith("SANDBOX_PROVIDER: ")
