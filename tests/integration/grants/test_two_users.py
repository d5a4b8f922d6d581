"""The whole service as root with a broker of another user, and a broker that somebody else started."""

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.grants.conftest import Api, Granted, broker_pid
from tests.integration.service.stand import Stand, bearer, json_of

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a broker as another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    # Directly under /tmp: the broker's user must get to its key.
    with TemporaryDirectory(prefix="pg-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@ROOT
def test_a_service_of_roots_has_a_broker_of_another_user_and_says_so(folder: Path, hr: Api) -> None:
    key = folder / "key" / "private"
    settings = {
        "PLIMSOLL_BROKER_USER": pwd.getpwuid(65534).pw_name,
        "PLIMSOLL_BROKER_KEY": str(key),
        "PLIMSOLL_BROKER_ALLOW_PRIVATE": "127.0.0.0/8",
    }
    granted = Granted(Stand(folder, "", settings))
    made = granted.admin("vault", "init")
    assert made.returncode == 0, made.stderr
    assert (key.stat().st_uid, key.stat().st_mode & 0o777) == (65534, 0o600)
    again = granted.admin("vault", "init")
    assert (again.returncode, "File exists" in again.stderr) == (1, True)
    with granted.stand.service() as served:
        granted.profile(hr)
        answer = json_of(granted.run(served, "call:GET=/v1/employees/7"))
        assert '"status":200' in answer["result"]["stdout"]
        described = served.http.get("/v1/describe", headers=bearer(granted.caller("reporting")))
        assert json_of(described)["grants"] == {"served": True, "broker": "own_user"}
        assert (
            "Uid:\t65534\t65534" in Path(f"/proc/{broker_pid(served.running.process.pid)}/status").read_text()
        )


def test_a_key_that_others_can_read_makes_no_broker_and_runs_without_grants_go_on(
    folder: Path, hr: Api
) -> None:
    granted = Granted(
        Stand(folder, "", {"PLIMSOLL_BROKER_SAME_USER": "1", "PLIMSOLL_BROKER_ALLOW_PRIVATE": "127.0.0.0/8"})
    )
    assert granted.admin("vault", "init").returncode == 0
    granted.profile(hr)
    (folder / "data" / "vault.private").chmod(0o644)
    with granted.stand.service() as served:
        refused = granted.run(served, "effect")
        assert (refused.status_code, refused.json()["not_dispatched"]["reason"]) == (503, "environment")
        assert json_of(granted.run(served, "out:x", profile=""))["result"]["stdout"] == "x"
        faults = [each["fault"] for each in served.running.lines() if each.get("event") == "broker.faulty"]
        assert [fault.endswith("vault.private can be reached by others") for fault in faults] == [True]
        assert "broker:away" in served.http.get("/readyz").json()["reasons"]
        assert not granted.stand.effects()


def test_a_broker_that_somebody_else_started_is_used_by_its_url(folder: Path, hr: Api) -> None:
    door = folder / "door"
    door.mkdir(mode=0o700)
    control = folder / "control"
    control.write_text("a-control-secret-of-forty-characters-12345\n")
    control.chmod(0o600)
    settings = {
        "PLIMSOLL_BROKER_URL": f"unix://{door / 'socket'}",
        "PLIMSOLL_BROKER_SECRET_FILE": str(control),
    }
    granted = Granted(Stand(folder, "", settings))
    assert granted.admin("vault", "init").returncode == 0
    told = folder / "broker.toml"
    told.write_text(
        f'key = "{folder / "data" / "vault.private"}"\nlisten = "unix:{door / "socket"}"\n'
        f'control_file = "{control}"\nnetworks = "127.0.0.0/8"\n'
    )
    told.chmod(0o600)
    with subprocess.Popen(
        [sys.executable, "-I", "-m", "broker.main", "--settings", str(told)], env={}
    ) as broker:
        try:
            with granted.stand.service() as served:
                granted.profile(hr)
                end = time.monotonic() + 60
                while not json_of(
                    served.http.get("/v1/describe", headers=bearer(granted.caller("reporting")))
                )["grants"]["served"]:
                    assert time.monotonic() < end
                    time.sleep(0.1)
                answer = json_of(granted.run(served, "call:GET=/v1/employees/7"))
                assert '"status":200' in answer["result"]["stdout"]
                described = served.http.get("/v1/describe", headers=bearer(granted.caller("reporting")))
                assert json_of(described)["grants"] == {"served": True, "broker": "remote"}
                assert json.loads(served.http.get("/.well-known/jwks.json").content) == {"keys": []}
        finally:
            broker.terminate()
            assert broker.wait(20) == 0
