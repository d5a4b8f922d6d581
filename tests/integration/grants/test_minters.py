"""Minters of the operator's own through the whole service: the real broker starts a program or asks a service, once for a run.

Whatever a minter does wrong, nothing runs, nothing reaches the API, and nothing that it said is anywhere to be read.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from typing_extensions import override

from broker.hooks import HOOK_S, OUTPUT_BYTES
from tests.integration.grants.conftest import BROKER, Api, Granted, api, broker_pid
from tests.integration.service.stand import Json, Served, Stand, json_of
from tests.support.runs import alive

CANARY = "canary-5d1e77c0b94a-of-a-minter"
SLOW_S = 1.5
"""Long enough for a program that starts another one, and well within the time that the service waits."""
PROGRAM = """
import json, os, subprocess, sys, time
what, folder = sys.argv[1:]
def note(name, text):
    with open(f"{folder}/{name}", "a") as file:
        file.write(text + "\\n")
told = sys.stdin.read()
note(what, told.strip())
CANARY = os.environ["CANARY"]
sys.stderr.write(CANARY)
if what == "slow":
    child = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(1000)"])
    note("pids", f"{os.getpid()} {child.pid}")
    print(CANARY, flush=True)
    time.sleep(1000)
if what == "loud":
    while True:
        print(CANARY * 100)
print({"escape": f"{CANARY}\\x1b[2J", "lines": f"{CANARY}\\n{CANARY}", "crlf": f"{CANARY}\\r", "tab": f"{CANARY}\\tx",
    "header": f"{CANARY}\\r\\nx-evil: 1", "spaces": f"{CANARY} x", "nothing": "", "short": "x",
    "long": "x" * 17000}.get(what, f"{CANARY}-{os.getpid()}"))
sys.exit(3 if what == "failing" else 0)
"""
EXEC = (
    "good",
    "slow",
    "loud",
    "escape",
    "lines",
    "crlf",
    "tab",
    "header",
    "spaces",
    "nothing",
    "short",
    "long",
    "failing",
)
ANSWERS: dict[str, tuple[int, bytes]] = {
    "good": (200, json.dumps({"credential": CANARY}).encode()),
    "moved": (302, b""),
    "moved-for-good": (307, b""),
    "created": (201, json.dumps({"credential": CANARY}).encode()),
    "refused": (403, json.dumps({"credential": CANARY}).encode()),
    "broken": (500, CANARY.encode()),
    "text": (200, CANARY.encode()),
    "list": (200, json.dumps([CANARY]).encode()),
    "number": (200, b'{"credential": 12345678}'),
    "missing": (200, json.dumps({"token": CANARY}).encode()),
    "header": (200, json.dumps({"credential": f"{CANARY}\r\nx-evil: 1"}).encode()),
    "letters": (200, json.dumps({"credential": f"{CANARY}\u00e9"}).encode()),
    "deep": (200, b"[" * 20_000),
    "large": (200, json.dumps({"credential": CANARY, "more": "x" * OUTPUT_BYTES}).encode()),
    "slow": (200, json.dumps({"credential": CANARY}).encode()),
}


class Minting(BaseHTTPRequestHandler):
    """Answers as the path says, once the whole request is there."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, Api)
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.seen.append((self.command, self.path, {**self.headers, "body": body}))
        name = self.path.rpartition("/")[2]
        status, said = ANSWERS[name]
        self.send_response(status)
        if status in {302, 307}:
            self.send_header("location", "/mint/good")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        if name == "slow":
            for byte in said:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.5)
        self.wfile.write(said)

    @override
    def log_message(self, *_: object) -> None:
        """Nothing."""


class House:
    """A service whose broker has all these minters, the API, and the minting service."""

    def __init__(self, granted: Granted, served: Served, hr: Api, minting: Api) -> None:
        self.granted, self.served, self.hr, self.minting = granted, served, hr, minting

    def notes(self, name: str) -> list[str]:
        file = self.granted.stand.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def apply(self, kind: str, hook: str, origin: str = "") -> None:
        text = (
            f'[minted]\norigin = "{origin or self.hr.origin}"\nallow = ["GET /v1/employees/*"]\n'
            f'allowed_callers = ["reporting"]\n[minted.credential]\ntype = "{kind}"\nhook = "{hook}"\naudience = "hr"\n'
        )
        done = self.granted.admin("grants", "apply", "-", stdin=text)
        assert done.returncode == 0, done.stderr

    def refused(self, kind: str, hook: str) -> str:
        """The fault for which a run under this minter was not dispatched."""
        self.apply(kind, hook)
        self.hr.seen.clear()
        answer = self.granted.run(
            self.served, f"effect:{kind}-{hook} call:GET=/v1/employees/7", profile="minted"
        )
        assert (answer.status_code, answer.json()["not_dispatched"]["reason"]) == (503, "environment")
        assert CANARY not in answer.text
        assert self.hr.seen == []
        assert f"{kind}-{hook}" not in self.granted.stand.labels()
        line = [each for each in self.served.running.lines() if each.get("event") == "grant.refused"][-1]
        fault: str = line["fault"]
        return fault


def minters(folder: Path, hr: Api, minting: Api) -> Path:
    script = folder / "minter.py"
    script.write_text(PROGRAM)
    lines = []
    for name in EXEC:
        command = json.dumps([sys.executable, "-I", str(script), name, str(folder)])
        lines += [f"[exec.{name}]", f"command = {command}", f'origins = ["{hr.origin}"]']
        lines += [
            f'environment = {{ CANARY = "{CANARY}" }}',
            f"timeout_s = {SLOW_S if name == 'slow' else HOOK_S}",
        ]
    for name in ANSWERS:
        lines += [f"[http.http-{name}]", f'url = "{minting.origin}"', f'path = "/mint/{name}"']
        lines += [f'origins = ["{hr.origin}"]', f'headers = {{ Authorization = "Bearer {CANARY}" }}']
    file = folder / "minters.toml"
    file.write_text("\n".join(lines))
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    with api() as hr, api() as minting:
        minting.RequestHandlerClass = Minting
        settings = BROKER | {"PLIMSOLL_BROKER_MINTERS": str(minters(folder, hr, minting))}
        granted = Granted(Stand(folder, "", settings))
        with granted.stand.service() as served:
            yield House(granted, served, hr, minting)


def called(house: House) -> Json:
    """A run of three calls that has its credential."""
    house.hr.seen.clear()
    code = " ".join(f"call:GET=/v1/employees/{number}" for number in range(3))
    answer = json_of(house.granted.run(house.served, code, profile="minted"))
    assert [json.loads(line)["status"] for line in answer["result"]["stdout"].splitlines()] == [200] * 3
    assert CANARY not in json.dumps(answer)
    return answer


def told(house: House, text: str, answer: Json) -> None:
    """What a minter was told is for whom it was."""
    order = json.loads(text)
    callers = house.granted.admin("callers", "list").stdout
    assert (order["profile"], order["run_id"], order["audience"]) == ("minted", answer["id"], "hr")
    assert order["caller"] in callers.split()
    assert set(order) == {"profile", "caller", "run_id", "audience", "budget_s"}


def test_a_program_is_started_once_for_a_run_and_its_credential_reaches_the_api(house: House) -> None:
    house.apply("exec", "good")
    before = len(house.notes("good"))
    first = called(house)
    (note,) = house.notes("good")[before:]
    told(house, note, first)
    (credential,) = {headers["authorization"] for _, _, headers in house.hr.seen}
    assert credential.startswith(f"Bearer {CANARY}-")
    called(house)
    assert len(house.notes("good")) == before + 2
    (another,) = {headers["authorization"] for _, _, headers in house.hr.seen}
    assert another != credential


def test_a_program_beyond_its_deadline_is_ended_with_all_it_started(house: House) -> None:
    begun = time.monotonic()
    assert house.refused("exec", "slow") == "hook_timeout"
    assert time.monotonic() - begun > SLOW_S
    pids = [int(pid) for line in house.notes("pids") for pid in line.split()]
    assert len(pids) == 2
    end = time.monotonic() + 20
    while any(map(alive, pids)):
        assert time.monotonic() < end
        time.sleep(0.02)
    os.kill(house.served.running.process.pid, 0)


def test_a_program_does_not_outlive_a_broker_that_is_killed(house: House) -> None:
    house.apply("exec", "slow")
    before = len(house.notes("pids"))
    end = time.monotonic() + 20
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(house.granted.run, house.served, "effect", profile="minted")
        while len(house.notes("pids")) == before:
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(broker_pid(house.served.running.process.pid), signal.SIGKILL)
        program, child = map(int, house.notes("pids")[-1].split())
        while alive(program):
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)  # what it started is on its own
        answer = asked.result(60)
    assert (answer.status_code, answer.json()["not_dispatched"]["reason"]) == (503, "environment")
    while house.served.http.get("/readyz").status_code != 200:  # for those who come after
        assert time.monotonic() < end + 40
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("loud", "hook_output"),
        *((name, "hook_output") for name in EXEC[3:-1]),
        ("failing", "hook_failed"),
    ],
)
def test_a_program_that_does_not_do_its_part_lets_nothing_run(house: House, name: str, fault: str) -> None:
    assert house.refused("exec", name) == fault
    assert len(house.notes(name)) == 1


def test_a_service_is_asked_once_for_a_run_and_its_credential_reaches_the_api(house: House) -> None:
    house.apply("http", "http-good")
    house.minting.seen.clear()
    answer = called(house)
    ((method, path, headers),) = house.minting.seen
    assert (method, path, headers["authorization"]) == ("POST", "/mint/good", f"Bearer {CANARY}")
    assert "cookie" not in headers
    told(house, headers["body"], answer)
    assert {headers["authorization"] for _, _, headers in house.hr.seen} == {f"Bearer {CANARY}"}


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *((name, "hook_failed") for name in ("moved", "moved-for-good", "created", "refused", "broken")),
        *(
            (name, "hook_output")
            for name in ("text", "list", "number", "missing", "header", "letters", "deep", "large")
        ),
        ("slow", "hook_timeout"),
    ],
)
def test_a_service_that_does_not_do_its_part_lets_nothing_run(house: House, name: str, fault: str) -> None:
    house.minting.seen.clear()
    assert house.refused("http", f"http-{name}") == fault
    assert [path for _, path, _ in house.minting.seen] == [f"/mint/{name}"]


@pytest.mark.parametrize(("kind", "hook"), [("exec", "nobodys"), ("http", "good"), ("exec", "http-good")])
def test_a_minter_that_is_not_there_or_of_another_kind_mints_nothing(
    house: House, kind: str, hook: str
) -> None:
    house.minting.seen.clear()
    before = len(house.notes("good"))
    assert house.refused(kind, hook) == "hook_not_for_this"
    assert (house.minting.seen, len(house.notes("good"))) == ([], before)


def test_a_minter_mints_for_the_origins_that_it_lists_and_for_no_other(house: House) -> None:
    before = len(house.notes("good"))
    with api() as evil:
        house.apply("exec", "good", evil.origin)
        answer = house.granted.run(house.served, "call:GET=/v1/employees/7", profile="minted")
        assert (answer.status_code, evil.seen) == (503, [])
    assert len(house.notes("good")) == before


def test_nothing_that_a_minter_said_or_was_given_is_in_a_log_or_a_file_of_the_service(house: House) -> None:
    """On stdout, on stderr, as an answer, and in the settings."""
    house.apply("exec", "good")
    called(house)
    house.refused("exec", "failing")
    house.refused("http", "http-broken")
    ours = {house.granted.stand.folder / name for name in ("minters.toml",)}
    files = [path for path in house.granted.stand.folder.rglob("*") if path.is_file() and path not in ours]
    assert any(path.suffix == ".db" for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
