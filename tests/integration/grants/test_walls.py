"""The whole path of a grant with guests, on every wall: service, real broker, an API, and programs that try what they like."""

import functools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest

from plimsoll.specgen import read, write
from tests.integration.grants.conftest import (
    BROKER,
    CANARY,
    Answer,
    Api,
    Granted,
    api,
    broker_pid,
    processes_of,
)
from tests.integration.service.stand import Served, Stand, bearer, http
from tests.support import mix
from tests.support.docker import Daemon
from tests.support.openapi_documents import document, parameter
from tests.support.runs import family, memory_holds
from tests.support.service import PATIENT, started
from tests.unit.broker.test_policy import (
    HOSTILE_HEADERS,
    HOSTILE_METHODS,
    HOSTILE_PATHS,
    HOSTILE_QUERIES,
    UNLISTED,
)

pytestmark = pytest.mark.timeout(600)

START_S = 240.0
WALLS = {
    "wasm": ("wasm", "seccomp"),
    "docker": ("docker",),
    "docker@runsc": ("docker", "runsc"),
}
LANGUAGES = {
    "wasm": ("javascript",),
    "docker": ("javascript", "python"),
    "docker@runsc": ("javascript", "python"),
}
CHANNEL = "/dev/shm/plimsoll-calls"
CALLS = 50
AT_ONCE = {"wasm": 64, "docker": 8, "docker@runsc": 8}


@dataclass
class Wall:
    """One service with one wall, its broker, and a profile for each test."""

    name: str
    granted: Granted
    served: Served
    docker: Daemon | None = None

    def sandboxed(self) -> set[int]:
        """Every process of every container, as this machine sees them."""
        if self.docker is None:
            return set()
        ids = [each["Id"] for each in self.docker.call("GET", "/containers/json")]
        told = [self.docker.call("GET", f"/containers/{each}/json")["State"]["Pid"] for each in ids]
        return {pid for each in told for pid in family(each)}

    def profile(self, hr: Api, max_calls: int = 400) -> None:
        self.granted.profile(hr, max_calls=max_calls)

    def run(self, code: str, kind: str = "javascript", *, timeout_ms: int = 60_000) -> dict[str, Any]:
        body = {"payload": {"kind": kind, "code": code, "grant_profile": "hr-read"}, "timeout_ms": timeout_ms}
        return self.post(body)

    def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Asked for again as long as there is no room: a refusal proves that nothing ran."""
        return mix.ask(self.served.http, body, bearer(self.granted.caller("reporting")))

    def calls(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What the run's trace says."""
        found: dict[str, Any] = self.served.get(answer["id"], token=self.granted.caller("reporting"))["calls"]
        return found


def _settings(name: str, request: pytest.FixtureRequest) -> dict[str, str]:
    settings = {
        **BROKER,
        "SANDBOX_PROVIDER": name,
        "SANDBOX_PER_CALLER_CONCURRENT": "64",
        "SANDBOX_EVIDENCE_INTERVAL_S": "3600",
    }
    if name == "wasm":
        return settings
    daemon, image = request.getfixturevalue("docker"), request.getfixturevalue("image")
    return settings | {
        **daemon.settings(image),
        "SANDBOX_MEMORY_MB": "256",
        "SANDBOX_DOCKER_POOL": "1",
    }


@pytest.fixture(scope="module")
def walls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Wall]]:
    """One service for each wall, started when a test first asks for it."""
    with ExitStack() as stack:

        @functools.cache
        def started_for(name: str) -> Wall:
            folder: Path = tmp_path_factory.mktemp("wall")
            stand = Stand(folder, "", _settings(name, request))
            command = PATIENT if name == "wasm" else ()
            running = stack.enter_context(started(stand.environ(), folder / "log", *command, start_s=START_S))
            client = stack.enter_context(http(running.url, 240))
            docker = None if name == "wasm" else request.getfixturevalue("docker")
            return Wall(name, Granted(stand), Served(running, client), docker)

        yield started_for


@pytest.fixture
def wall(request: pytest.FixtureRequest, walls: Callable[[str], Wall]) -> Wall:
    return walls(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test on every wall that can have it, in each language that is spoken behind it."""
    if "wall" not in metafunc.fixturenames:
        return
    spoken = "language" in metafunc.fixturenames
    alone = metafunc.definition.get_closest_marker("containers") is not None
    found = []
    for name, needs in WALLS.items():
        marks = [pytest.mark.component(each) for each in needs]
        for language in LANGUAGES[name] if spoken else ("",):
            if not (alone and name == "wasm"):
                values = (name, language) if spoken else (name,)
                found.append(pytest.param(*values, marks=marks, id="-".join(filter(None, (name, language)))))
    names = ["wall", "language"] if spoken else ["wall"]
    metafunc.parametrize(names, found, indirect=["wall"])


# What a guest asks for, message by message as its channel takes them, and what it hears: one program for each language.
_ASK = {
    "javascript": """
const asked = %s;
for (const [method, path, options] of asked) {
  try {
    const r = await host.call(method, path, options);
    console.log(JSON.stringify([r.status, r.body]));
  } catch (e) {
    console.log(JSON.stringify([e.code ?? e.name, e.reason ?? '']));
  }
}
""",
    "python": """
import host, json
for method, path, options in json.loads(%r):
    try:
        r = host.call(method, path, **options)
        print(json.dumps([r.status, r.body]))
    except host.HostError as e:
        print(json.dumps([e.code, e.reason]))
    except Exception as e:
        print(json.dumps([type(e).__name__, ""]))
""",
}
Ask = tuple[str, str, dict[str, Any]]


def asking(language: str, *asked: Ask) -> str:
    return _ASK[language] % json.dumps(asked)


def get(path: str, **options: Any) -> Ask:
    return "GET", path, options


def said(answer: dict[str, Any]) -> list[Any]:
    """What a program that ended well printed, a value a line."""
    assert (answer["result"]["exit_code"], answer["result"]["stderr"]) == (0, ""), answer["result"]
    return [json.loads(line) for line in answer["result"]["stdout"].splitlines()]


def test_a_permitted_call_succeeds_and_a_refused_one_reaches_nobody(
    wall: Wall, language: str, hr: Api
) -> None:
    wall.profile(hr)
    answer = wall.run(asking(language, get("/v1/employees/7"), get("/v1/salaries")), language)
    permitted, refused = said(answer)
    assert permitted == [200, '{"path": "/v1/employees/7"}']
    assert refused[0] == "denied"
    ((method, path, headers),) = hr.seen
    assert (method, path, headers["authorization"]) == ("GET", "/v1/employees/7", f"Bearer {CANARY}")
    calls = wall.calls(answer)
    assert (calls["sent"], calls["delivered"], calls["failed"]) == (1, 1, {"denied": 1})
    assert answer["provider"] == wall.name


def hostile() -> Iterator[Ask]:
    # A lonely `?` is an empty query for the client, and so no trick.
    yield from (get(path) for path in (*HOSTILE_PATHS, *UNLISTED) if not path.endswith("?"))
    yield from ((method, "/v1/employees", {}) for method in HOSTILE_METHODS if method.upper() != "GET")
    yield from (get("/v1/employees", headers=dict(pairs)) for pairs in HOSTILE_HEADERS)
    yield from (get("/v1/employees", query=dict(pairs)) for pairs in HOSTILE_QUERIES)
    yield "GET", "/v1/employees", {"body": "x"}
    yield from (("POST", path, {"body": "x"}) for path in ("/v1/employees", "/v1/notes/7"))


def test_no_trick_of_a_path_method_header_or_query_sends_a_byte(wall: Wall, language: str, hr: Api) -> None:
    wall.profile(hr)
    tricks = list(hostile())
    answer = wall.run(asking(language, *tricks), language)
    heard = said(answer)
    assert len(heard) == len(tricks) > 130
    wrong = [each for each in zip(tricks, heard, strict=True) if each[1][0] not in {"denied", "TypeError"}]
    assert wrong == []
    assert hr.seen == []
    assert wall.calls(answer)["sent"] == 0


_BY_HAND = """
import json, socket, struct
def ask(message):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(%r)
        s.sendall(struct.pack(">I", len(message)) + message)
        length = struct.unpack(">I", s.recv(4, socket.MSG_WAITALL))[0]
        return s.recv(length, socket.MSG_WAITALL).decode()
for message in %r:
    print(ask(message))
"""
_MESSAGES = (
    {"method": "GET", "path": "/v1/salaries"},
    {"method": "GET", "path": "/v1/employees/../salaries"},
    {"method": "GET", "path": "/v1/employees", "headers": {"authorization": "Bearer mine"}},
    {"method": "GET", "path": "/v1/employees", "headers": {"host": "evil.example"}},
    {"method": "GET", "path": "/v1/employees", "run": "0" * 32},
    {"method": "GET", "path": "/v1/employees", "origin": "http://127.0.0.1:9"},
)


@pytest.mark.containers
def test_past_the_client_by_hand_the_same_rules_hold(wall: Wall, hr: Api) -> None:
    wall.profile(hr)
    messages = [json.dumps(each).encode() for each in _MESSAGES]
    nonsense = [b"{", b"[]", b"\xff", b"null", b'{"method":"GET","method":"GET","path":"/v1/employees"}']
    answer = wall.run(_BY_HAND % (CHANNEL, messages + nonsense), "python")
    heard = [each.get("error", {}).get("code") for each in said(answer)]
    assert set(heard) == {"denied"}, heard
    assert hr.seen == []


def test_the_budget_is_kept_exactly(wall: Wall, language: str, hr: Api) -> None:
    wall.profile(hr, max_calls=20)
    answer = wall.run(asking(language, *starmap(get, [("/v1/employees/1",)] * 30)), language)
    assert [each[0] for each in said(answer)] == [200] * 20 + ["budget"] * 10
    assert len(hr.seen) == 20


def busy(_: Any) -> tuple[int, dict[str, str], bytes]:
    return 503, {"retry-after": "20"}, b"busy"


def moved(hr: Api) -> Answer:
    return lambda _: (302, {"location": f"{hr.origin}/v1/secret"}, b"")


def echo(headers: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"x-sent": headers["authorization"]}, json.dumps(dict(headers)).encode()


def test_an_api_that_asks_for_rest_gets_it(wall: Wall, language: str, hr: Api) -> None:
    wall.profile(hr)
    hr.answers["/v1/employees/busy"] = busy
    answer = wall.run(asking(language, get("/v1/employees/busy"), *[get("/v1/employees/1")] * 5), language)
    heard = said(answer)
    assert (heard[0], [each[0] for each in heard[1:]]) == ([503, "busy"], ["shed"] * 5)
    assert len(hr.seen) == 1
    assert wall.calls(answer)["failed"] == {"shed": 5}


def test_redirects_are_not_followed_and_echoes_are_withheld(wall: Wall, language: str, hr: Api) -> None:
    wall.profile(hr)
    hr.answers |= {"/v1/employees/moved": moved(hr), "/v1/employees/echo": echo}
    answer = wall.run(asking(language, get("/v1/employees/moved"), get("/v1/employees/echo")), language)
    redirect, echoed = said(answer)
    assert redirect[0] in {302, "upstream"}
    assert echoed[0] == "credential_echoed"
    assert [path for _, path, _ in hr.seen] == ["/v1/employees/moved", "/v1/employees/echo"]
    assert CANARY not in json.dumps(answer)


_HELD = {
    "javascript": "console.log('before'); await host.get('/v1/employees/held')",
    "python": "import host; print('before', flush=True); host.get('/v1/employees/held')",
}


def test_a_call_ends_with_its_run(wall: Wall, language: str, hr: Api) -> None:
    wall.profile(hr)
    hold = hr.holds["/v1/employees/held"] = threading.Event()
    answer = wall.run(_HELD[language], language, timeout_ms=3_000)
    assert (answer["result"]["timed_out"], answer["result"]["stdout"]) == (True, "before\n")
    calls = wall.calls(answer)
    assert (calls["sent"], calls["delivered"]) == (1, 0)
    hold.set()


_LINGER = """
import os, host
if os.fork() == 0:
    os.setsid()
    while True:
        try:
            host.get("/v1/employees/late")
        except host.HostError:
            pass
host.get("/v1/employees/1")
"""


@pytest.mark.containers
def test_what_a_program_leaves_behind_makes_no_calls(wall: Wall, hr: Api) -> None:
    wall.profile(hr)
    wall.run(_LINGER, "python")
    after = len(hr.seen)
    time.sleep(0.5)  # nothing to wait for: it is to stay so
    assert len(hr.seen) == after >= 1


_SEARCH = """
import host, glob, os, re
host.get("/v1/employees/1")
word = re.compile(b"canary-" + b"3f9b1c77[0-9a-f]{8}-of")
places = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/dev/shm/*") + glob.glob("/tmp/*")
found = []
for place in places:
    try:
        with open(place, "rb") as f:
            if word.search(f.read(1 << 20)):
                found.append(place)
    except OSError:
        pass
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        span, rights = line.split()[:2]
        start, end = (int(each, 16) for each in span.split("-"))
        if "r" in rights and end - start < 256 << 20 and not line.rstrip().endswith(("[vvar]", "[vsyscall]")):
            memory.seek(start)
            try:
                if word.search(memory.read(end - start)):
                    found.append(line)
            except (OSError, ValueError):
                pass
print(found)
"""
_SEARCH_JS = """
const r = await host.get('/v1/employees/1');
const seen = new Set(), found = [];
const look = (value, path) => {
  if (typeof value === 'string' && value.includes('canary-' + '3f9b1c77')) found.push(path);
  if (value === null || !['object', 'function'].includes(typeof value) || seen.has(value)) return;
  seen.add(value);
  for (const key of Reflect.ownKeys(value)) {
    let inner;
    try { inner = value[key]; } catch { continue; }
    if (inner instanceof Promise) inner.catch(() => {});  // a getter of another kind of object
    look(inner, `${path}.${String(key)}`);
  }
};
look(globalThis, 'globalThis');
look(r, 'r');
console.log(JSON.stringify(found));
"""


def test_a_program_that_searches_for_the_credential_finds_nothing(wall: Wall, language: str, hr: Api) -> None:
    wall.profile(hr)
    answer = wall.run({"python": _SEARCH, "javascript": _SEARCH_JS}[language], language)
    assert (answer["result"]["stdout"], answer["result"]["stderr"]) == ("[]\n", "")
    assert len(hr.seen) == 1


_HOLDING = """
const here = ['in-the-', 'sandbox-5e1c'].join('');
await host.get('/v1/employees/1');
await host.get('/v1/employees/held');
console.log(here);
"""


def holds(pid: int, needle: bytes) -> bool:
    """Also of one that has ended meanwhile, and with it its memory."""
    try:
        return memory_holds(pid, needle)
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read the memory of a process that forbids it")
def test_the_credential_is_in_no_memory_of_worker_or_sandbox(wall: Wall, hr: Api) -> None:
    wall.profile(hr)
    hold = hr.holds["/v1/employees/held"] = threading.Event()
    service = wall.served.running.process.pid
    with ThreadPoolExecutor() as pool:
        running = pool.submit(wall.run, _HOLDING)
        end = time.monotonic() + 120
        while len(hr.seen) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        broker = broker_pid(service)
        others = {service, *processes_of(service), *wall.sandboxed()} - {broker}
        holding = [pid for pid in others if holds(pid, CANARY.encode())]
        inside = [pid for pid in others if holds(pid, b"in-the-sandbox-5e1c")]
        found = memory_holds(broker, CANARY.encode())
        hold.set()
        assert running.result(120)["result"]["stdout"] == "in-the-sandbox-5e1c\n"
    assert (holding, found) == ([], True)
    assert inside  # the search goes as far as a program's own memory


_USING = {
    "javascript": """
const r = await api.show_employee({id: "7"});
console.log(JSON.stringify([r.status, r.body]));
try { await api.show_employee({id: "a/b"}); } catch (e) { console.log(JSON.stringify([e.code, ""])); }
try { await api.pay({amount: 1}); } catch (e) { console.log(JSON.stringify([e.code, ""])); }
""",
    "python": """
import json
r = api.show_employee(id="7")
print(json.dumps([r.status, r.body]))
for call in (lambda: api.show_employee(id="a/b"), lambda: api.pay(amount=1)):
    try:
        call()
    except Exception as e:
        print(json.dumps([e.code, ""]))
""",
}
_DOCUMENT = document(
    {
        "/v1/employees/{id}": {
            "get": {"operationId": "showEmployee", "parameters": [parameter("id", "path")]}
        },
        "/v1/payments": {"get": {"operationId": "pay", "parameters": [parameter("amount", kind="integer")]}},
    }
)


def test_a_generated_client_calls_the_api(wall: Wall, language: str, hr: Api) -> None:
    wall.profile(hr)
    made = write(read(_DOCUMENT).api, "hr-read")
    preamble = {"javascript": made.javascript, "python": made.python}[language]
    answer = wall.run(preamble + _USING[language], language)
    assert said(answer) == [[200, '{"path": "/v1/employees/7"}'], ["argument", ""], ["denied", ""]]
    assert [path for _, path, _ in hr.seen] == ["/v1/employees/7"]


_STEPS = {
    "files": [
        {"path": "a.mjs", "content": "console.log((await host.get('/v1/employees/1')).status)"},
        {"path": "a.py", "content": "import host; print(host.get('/v1/employees/2').status)"},
    ],
    "steps": ["node a.mjs", "python3 a.py"],
}


@pytest.mark.containers
def test_every_step_of_a_project_has_the_grant(wall: Wall, hr: Api) -> None:
    wall.profile(hr)
    payload = {"kind": "project", "grant_profile": "hr-read", **_STEPS}
    answer = wall.post({"payload": payload, "timeout_ms": 60_000})
    assert [each["stdout"] for each in answer["result"]["steps"]] == ["200\n", "200\n"]
    assert [path for _, path, _ in hr.seen] == ["/v1/employees/1", "/v1/employees/2"]


def test_many_runs_at_once_lose_no_call_and_count_exactly(wall: Wall) -> None:
    code = f"""
        let right = 0;
        for (let n = 0; n < {CALLS}; n++) {{
          const r = await host.get(`/v1/employees/NAME-${{n}}`);
          if (r.json().path === `/v1/employees/NAME-${{n}}`) right++;
        }}
        console.log(right);
    """
    runs = AT_ONCE[wall.name]
    with api() as hr, ThreadPoolExecutor(runs) as pool:
        wall.profile(hr)
        wall.granted.caller("reporting")
        programs = [code.replace("NAME", f"r{number}") for number in range(runs)]
        answers = list(pool.map(functools.partial(wall.run, timeout_ms=120_000), programs))
        assert [each["result"]["stdout"] for each in answers] == [f"{CALLS}\n"] * runs
        assert sorted(path for _, path, _ in hr.seen) == sorted(
            f"/v1/employees/r{number}-{n}" for number in range(runs) for n in range(CALLS)
        )
        sums = [wall.calls(each) for each in answers]
        assert [(each["sent"], each["delivered"], each["failed"]) for each in sums] == [
            (CALLS, CALLS, {})
        ] * runs
