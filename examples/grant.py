"""Grants from end to end: a program calls an API with a credential that it never has.

It needs no network, no token and no running service: it starts an API of its own that wants a credential, and a private service
with a broker, applies two grant profiles, and runs programs that call. What is so is said by what the API saw. At last it looks
for the credential wherever this service could have left it. Exit status 1 if one fact is another than expected.
"""

import base64
import re
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

from typing_extensions import override

import plimsoll

READ, PAY = secrets.token_hex(24), secrets.token_hex(24)  # two credentials that the API takes
BROKER = {"PLIMSOLL_BROKER_SAME_USER": "1", "PLIMSOLL_BROKER_ALLOW_PRIVATE": "127.0.0.0/8"}
PROFILES = """
[hr-read]
origin = "{origin}"
allow = ["GET /v1/employees/*"]
allowed_callers = ["local"]
credential = {{ type = "static", env = "HR_READ_TOKEN" }}

[hr-pay]
origin = "{origin}"
allow = ["GET /v1/salaries/*"]
allowed_callers = ["local"]
credential = {{ type = "static", env = "HR_PAY_TOKEN" }}
"""

PERMITTED = "const r = await host.get('/v1/employees/7'); console.log(r.status, r.body);"
HELD = "console.log((await host.get('/v1/employees/held')).status);"
SALARY = """
const said = (r) => console.log(r.status, r.body);
await host.get('/v1/salaries/7').then(said, (error) => console.log(error.code));
"""
# The client sends what JSON.stringify gives it, and that is the program's to replace: each message below leaves as it stands
# here, through the one door that the virtual machine has. The first one shows that this works.
BY_HAND = """
const write = JSON.stringify;
for (const message of [
  { method: 'GET', path: '/v1/employees/8', headers: {} },
  { method: 'GET', path: '/v1/salaries/7', headers: {} },
  { method: 'GET', path: '/v1/employees/../salaries/7', headers: {} },
  { method: 'GET', path: '/v1/employees/%2e%2e%2fsalaries%2f7', headers: {} },
  { method: 'GET', path: 'http://127.0.0.1/v1/salaries/7', headers: {} },
  { method: 'GET', path: '/v1/employees/7', headers: { host: 'elsewhere.example' } },
  { method: 'GET', path: '/v1/employees/7', headers: { authorization: 'Bearer another' } },
  { method: 'GET', path: '/v1/salaries/7', profile: 'hr-pay', headers: {} },
]) {
  JSON.stringify = () => write(message);
  await host.get('/').then((r) => console.log(r.status), (error) => console.log(error.code));
}
"""


class Api(ThreadingHTTPServer):
    """Answers whoever shows a credential, and notes what came."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a free port of this machine."""
        super().__init__(("127.0.0.1", 0), Answer)
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.seen: list[str] = []
        self.asked, self.go_on = threading.Event(), threading.Event()


class Answer(BaseHTTPRequestHandler):
    """One request of the API; `held` is answered when `go_on` is set."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """401 without a credential."""
        api = cast("Api", self.server)
        known = self.headers["authorization"] in {f"Bearer {READ}", f"Bearer {PAY}"}
        api.seen.append(self.path)
        if self.path.endswith("/held"):
            api.asked.set()
            api.go_on.wait(30)
        body = f"this is {self.path}".encode()
        self.send_response(200 if known else 401)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


class Facts:
    """One fact a line; `wrong` counts those that were not expected."""

    def __init__(self) -> None:
        """None yet."""
        self.wrong = 0

    def say(self, name: str, found: object, expected: object) -> None:
        """Print a fact, and beside it what was expected if that is something else."""
        differs = f"   EXPECTED {expected}" if found != expected else ""
        self.wrong += bool(differs)
        print(f"{name:<36} {found}{differs}")


def calls(facts: Facts, sandbox: plimsoll.Client, api: Api) -> str:
    """What programs get, and what the API sees of it; everything that their answers said."""
    said = []

    def run(code: str, profile: str) -> str:
        done = sandbox.run_javascript(code, grant_profile=profile, timeout=10)
        said.append(f"{asdict(done)}{sandbox.record(done.id)}{sandbox.get_run(done.id).model_dump_json()}")
        return " ".join(done.text.split())

    facts.say("a permitted call", run(PERMITTED, "hr-read"), "200 this is /v1/employees/7")
    facts.say("the API saw", api.seen, ["/v1/employees/7"])
    api.seen.clear()
    facts.say("a route that is not listed", run(SALARY, "hr-read"), "denied")
    facts.say("messages made by hand", run(BY_HAND, "hr-read"), f"200{' denied' * 7}")
    facts.say("the API saw of these", api.seen, ["/v1/employees/8"])
    api.seen.clear()
    facts.say("the same call, another grant", run(SALARY, "hr-pay"), "200 this is /v1/salaries/7")
    facts.say("the API saw", api.seen, ["/v1/salaries/7"])
    try:
        found = run(SALARY, "hr-write")
    except plimsoll.PermissionDenied as refused:
        found = f"nothing ran: {refused.not_dispatched}"
    facts.say("a profile that is not there", found, "nothing ran: permission")
    return "".join(said)


# Each credential itself, and in base64 the part that does not depend on what stands around it, at each alignment.
FORMS = [
    form
    for token in (READ.encode(), PAY.encode())
    for form in (token, *(base64.b64encode(bytes(shift) + token)[6:-8] for shift in range(3)))
]


def look(facts: Facts, name: str, data: Iterable[bytes], expected: str = "not found") -> None:
    """Whether a credential is in any of it."""
    try:
        found = any(form in each for each in data for form in FORMS)
    except PermissionError:
        print(f"{name:<36} not looked: only root may")
    else:
        facts.say(name, "found" if found else "not found", expected)


def below(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for child in of(pid, f"task/{pid}/children").split():
        yield from below(int(child))


def of(pid: int, name: str) -> bytes:
    """What the kernel says of a process; nothing of one that ended. Raises PermissionError."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def memory_of(pid: int) -> Iterator[bytes]:
    """All memory of a process that can be written, in pieces. Raises PermissionError."""
    regions = re.findall(rb"^([0-9a-f]+)-([0-9a-f]+) rw", of(pid, "maps"), re.MULTILINE)
    with (
        suppress(FileNotFoundError, ProcessLookupError),
        Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory,
    ):
        for start, end in regions:
            try:
                memory.seek(int(start, 16))
                yield memory.read(int(end, 16) - int(start, 16))
            except (OSError, ValueError, OverflowError):
                continue  # given back meanwhile, or the kernel's own


def search(facts: Facts, service: plimsoll.LocalService, sandbox: plimsoll.Client, api: Api) -> None:
    """Look everywhere while a call is under way, so that the broker surely has the credential."""
    run = sandbox.start_javascript(HELD, grant_profile="hr-read", timeout=30)
    facts.say("a call is under way", api.asked.wait(20), expected=True)
    everyone = set(below(service.pid))
    (broker,) = (pid for pid in everyone if b"broker.main" in of(pid, "cmdline"))
    print(f"{'processes of the service':<36} {len(everyone)}, one of them the broker")
    files = (path for path in Path(service.data_dir).rglob("*") if path.is_file())
    others = (piece for pid in everyone - {broker} for piece in memory_of(pid))
    look(facts, "the credential in their arguments", (of(pid, "cmdline") for pid in everyone))
    look(facts, "in their environments", (of(pid, "environ") for pid in everyone))
    look(facts, "in memory of all but the broker", others)
    look(facts, "in the broker's, where it must be", memory_of(broker), "found")
    look(facts, "in their files and database", (path.read_bytes() for path in files))
    api.go_on.set()
    facts.say("the call ended", run.wait().text.strip(), "200")


def main() -> int:
    """Print one fact a line."""
    facts = Facts()
    with ExitStack() as stack:
        api = stack.enter_context(Api())
        threading.Thread(target=api.serve_forever, daemon=True).start()
        stack.callback(api.shutdown)
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        service = plimsoll.local(provider="wasm", settings=BROKER, log=log)
        with service as sandbox:
            service.apply_grants(
                PROFILES.format(origin=api.origin), {"HR_READ_TOKEN": READ, "HR_PAY_TOKEN": PAY}
            )
            facts.say(
                "this caller may use", " ".join(each.name for each in sandbox.grants()), "hr-pay hr-read"
            )
            answers = calls(facts, sandbox, api)
            search(facts, service, sandbox, api)
        look(facts, "in an answer, a record, a kept run", [answers.encode()])
        look(facts, "in the log", [log.read_bytes()])
    return 1 if facts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
