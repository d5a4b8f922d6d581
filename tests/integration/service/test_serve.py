"""The real `plimsolld`: its faults, its hints, its modes and its end."""

import json
import os
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest

from app.http.limits import SNIPPET_BODY_BYTES
from app.settings import SETTINGS
from tests.support.service import DAEMON, end, environment, make_caller, started

JSON = {"content-type": "application/json"}
LOOP = "for (;;) {}"


def plimsolld(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DAEMON, *arguments], env=environ, capture_output=True, text=True, timeout=30, check=False
    )


def test_help_lists_every_setting_and_its_default(tmp_path: Path) -> None:
    text = plimsolld(environment(tmp_path), "--help").stdout
    for row in SETTINGS:
        assert f"  {row.name}\n" in text
        assert f"Default: {row.default}." in text


def test_every_fault_of_the_settings_is_listed_at_once_and_nothing_is_served(tmp_path: Path) -> None:
    environ = environment(
        tmp_path / "data", SANDBOX_PROVIDER="dokcer", SANDBOX_RATE_PER_MIN="-1", SANDBOX_TYPO="1"
    )
    done = plimsolld(environ)
    assert done.returncode == 2
    named = [line.split(":")[1].strip() for line in done.stderr.splitlines()]
    assert named == ["SANDBOX_PROVIDER", "SANDBOX_RATE_PER_MIN", "SANDBOX_TYPO"]
    assert not (tmp_path / "data").exists()


def test_faults_of_several_providers_are_listed_with_the_rest(tmp_path: Path) -> None:
    environ = environment(
        tmp_path / "data",
        SANDBOX_PROVIDER="docker,docker@runc,wasm",
        SANDBOX_DOCKER_HOST="docker.sock",
        SANDBOX_DOCKER_PIDS="1",
        SANDBOX_MEMORY_MB="32",
    )
    done = plimsolld(environ)
    assert done.returncode == 2
    named = [line.split(":")[1].strip() for line in done.stderr.splitlines()]
    assert named == ["SANDBOX_DOCKER_HOST", "SANDBOX_DOCKER_PIDS", "SANDBOX_PROVIDER", "SANDBOX_MEMORY_MB"]
    assert not (tmp_path / "data").exists()


def test_a_docker_provider_is_not_started_when_others_can_reach_its_directory(tmp_path: Path) -> None:
    state = tmp_path / "data" / "providers" / "docker-runsc"
    state.mkdir(parents=True)
    for each in (tmp_path / "data", state.parent):
        each.chmod(0o700)
    state.chmod(0o755)
    done = plimsolld(environment(tmp_path / "data", SANDBOX_PROVIDER="wasm,docker@runsc"))
    assert done.returncode == 1
    assert f"could not start: {state} can be reached by others" in done.stderr
    assert not (tmp_path / "data" / "plimsoll.db").exists()


def test_without_a_provider_the_service_starts_and_refuses_every_run_as_not_dispatched(
    tmp_path: Path,
) -> None:
    with started(environment(tmp_path / "data", PLIMSOLL_INSECURE="1"), tmp_path / "log") as running:
        answer = running.run("1")
        assert (answer.status_code, answer.headers["plimsoll-not-dispatched"]) == (501, "unsupported")
        assert answer.json()["not_dispatched"] == {"reason": "unsupported"}
        with running.client() as client:
            described = client.get("/v1/describe").json()
            assert described["execution"] is False
            assert described["limits"]["body_bytes"] == SNIPPET_BODY_BYTES
            large = client.post("/v1/runs", content=b" " * (SNIPPET_BODY_BYTES + 1), headers=JSON)
            assert (large.status_code, large.json()["not_dispatched"]) == (413, {"reason": "request"})
            full = client.post("/v1/runs", content=b" " * SNIPPET_BODY_BYTES, headers=JSON)
            assert full.json()["code"] == "malformed_json"
            assert client.get("/v1/runs").json() == {"runs": [], "next_cursor": None}


def test_without_a_caller_the_401_says_how_to_make_one_and_that_works_at_once(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    with started(environ, tmp_path / "log") as running:
        answer = running.run("1")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json()["not_dispatched"] == {"reason": "permission"}
        hint = answer.json()["detail"]
        assert "plimsoll-admin callers create" in hint
        assert str(tmp_path / "data") in hint
        token = make_caller(environ, "me")
        assert running.run("1", token).status_code == 501  # known now: refused for another reason


@pytest.mark.parametrize(
    ("settings", "headers"),
    [
        ({"PLIMSOLL_ALLOWED_HOSTS": "127.0.0.1"}, {}),
        ({"PLIMSOLL_TRUSTED_PROXIES": "127.0.0.1"}, {}),
        ({}, {"x-forwarded-for": "192.0.2.1"}),
        ({}, {"via": "1.1 gate"}),
    ],
)
def test_behind_a_proxy_the_401_names_no_place_of_this_machine(
    tmp_path: Path, settings: dict[str, str], headers: dict[str, str]
) -> None:
    with (
        started(environment(tmp_path / "data", **settings), tmp_path / "log") as running,
        running.client() as client,
    ):
        answer = client.get("/v1/runs", headers=headers)
        assert answer.status_code == 401
        assert "plimsoll-admin callers create NAME" in answer.json()["detail"]
        assert str(tmp_path) not in answer.text


def test_reads_and_refused_requests_of_a_caller_have_a_rate(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data", SANDBOX_RATE_PER_MIN="1")
    with started(environ, tmp_path / "log") as running:
        with running.client(make_caller(environ, "busy")) as busy:
            said = [busy.get("/v1/describe").status_code for _ in range(1000)]
            assert set(said[:600]) == {200}
            assert 429 in said
            answer = busy.post("/v1/runs", json=[])
            assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
        with running.client(make_caller(environ, "other")) as other:
            assert other.get("/v1/describe").status_code == 200


def test_a_revoked_token_is_refused_from_the_next_request_on(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    with started(environ, tmp_path / "log") as running:
        token = make_caller(environ, "me")
        with running.client(token) as client:
            assert client.get("/v1/describe").status_code == 200
            admin = Path(DAEMON).with_name("plimsoll-admin")
            subprocess.run(
                [admin, "callers", "revoke", "me"], env=environ, check=True, timeout=30, capture_output=True
            )
            assert client.get("/v1/describe").status_code == 401


def test_the_database_is_private_to_its_owner(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(environment(data), tmp_path / "log"):
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in data.iterdir()} == {0o600}


def test_a_second_service_on_the_same_data_is_refused_by_name(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    with started(environ, tmp_path / "log"):
        done = plimsolld(environ)
        assert done.returncode == 1
        assert "could not start" in done.stderr


def test_an_address_in_use_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = plimsolld(environment(tmp_path / "data", PLIMSOLL_ADDR=address))
    assert done.returncode == 1
    assert "in use" in done.stderr


def connected(path: Path) -> socket.socket:
    """A connection, once somebody listens there."""
    until = time.monotonic() + 20
    while True:
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(str(path))
        except OSError:
            peer.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return peer


def test_the_unix_listener_is_private_and_serves(tmp_path: Path) -> None:
    door = tmp_path / "run"
    door.mkdir(mode=0o700)
    environ = environment(tmp_path / "data", PLIMSOLL_ADDR=f"unix:{door}/api.sock", PLIMSOLL_INSECURE="1")
    process = subprocess.Popen([DAEMON], env=environ, stderr=subprocess.DEVNULL)
    try:
        connected(door / "api.sock").close()
        assert stat.S_IMODE((door / "api.sock").stat().st_mode) == 0o600
        with connected(door / "api.sock") as peer:
            peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert peer.recv(12) == b"HTTP/1.1 200"
    finally:
        end(process)


def test_the_service_ignores_a_world_readable_directory_for_its_socket(tmp_path: Path) -> None:
    door = tmp_path / "run"
    door.mkdir(mode=0o755)
    done = plimsolld(environment(tmp_path / "data", PLIMSOLL_ADDR=f"unix:{door}/api.sock"))
    assert done.returncode == 1
    assert "could not start" in done.stderr


def test_the_process_can_not_be_dumped(tmp_path: Path) -> None:
    with started(environment(tmp_path / "data"), tmp_path / "log") as running:
        # A process that is not dumpable has /proc entries of root; run as root this tells by the memory map's owner only.
        if os.geteuid() != 0:
            with pytest.raises(PermissionError):
                Path(f"/proc/{running.process.pid}/environ").read_bytes()
        uid = Path(f"/proc/{running.process.pid}/mem").stat().st_uid
        assert uid == 0


def private(environ: dict[str, str], token: bytes) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [str(DAEMON), "--private-fd", str(theirs.fileno())]
        process = subprocess.Popen(
            command, env=environ, pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL
        )
    ours.sendall(token + b"\n")
    ours.settimeout(30)
    return process, ours


def test_a_private_service_takes_its_token_from_the_socket_and_ends_with_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    process, door = private(environment(data), b"plim_a-token-of-the-library")
    with door:
        ready = json.loads(door.makefile().readline())
        assert ready["ready"] is True
        for token, status in ((b"plim_a-token-of-the-library", b"200"), (b"plim_another", b"401")):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(ready["socket"])
                peer.sendall(
                    b"GET /v1/describe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                    b"Authorization: Bearer " + token + b"\r\n\r\n"
                )
                assert peer.recv(12) == b"HTTP/1.1 " + status
    assert process.wait(15) == 0


def test_a_private_service_with_faulty_settings_says_so_through_the_socket(tmp_path: Path) -> None:
    process, door = private(environment(tmp_path, SANDBOX_PROVIDER="dokcer"), b"plim_x")
    with door:
        answer = json.loads(door.makefile().readline())
    assert answer["ready"] is False
    assert answer["errors"][0].startswith("SANDBOX_PROVIDER")
    assert process.wait(15) == 2


@pytest.mark.component("wasm")
def test_sigterm_takes_no_new_run_lets_running_ones_finish_and_tells_the_rest(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    settings = {"PLIMSOLL_INSECURE": "1", "SANDBOX_PROVIDER": "wasm", "PLIMSOLL_DRAIN_GRACE_S": "4"}
    with (
        started(environment(tmp_path / "data", **settings), tmp_path / "log") as running,
        ThreadPoolExecutor(4) as pool,
    ):
        short = "const until = Date.now() + 1000; while (Date.now() < until); console.log('whole')"
        finishing = pool.submit(running.run, short)
        endless = pool.submit(running.run, LOOP, timeout_ms=60_000)
        running.until_begun(2)
        running.process.send_signal(signal.SIGTERM)
        asked = (running.run("1") for _ in range(1_000))  # the signal may not have come yet
        refused = next(each for each in asked if each.is_error)
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")
        assert refused.json()["not_dispatched"] == {"reason": "environment"}
        assert finishing.result(20).json()["result"]["stdout"] == "whole\n"
        told = endless.result(20).json()
        assert (told["cancelled"], told["result"]["exit_code"]) == (True, 130)
        assert running.process.wait(15) == 0


def test_a_data_directory_is_only_removed_by_a_private_service_that_was_told_to(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    done = plimsolld(environment(data), "--private-data")
    assert (done.returncode, data.exists()) == (2, True)
    process, door = private(environment(data), b"plim_x")
    with door:
        assert json.loads(door.makefile().readline())["ready"] is True
    assert process.wait(15) == 0
    assert (data / "plimsoll.db").exists()
