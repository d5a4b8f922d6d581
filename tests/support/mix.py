"""Runs of every kind that end in every way, asked for over HTTP by several callers at once; each end is checked."""

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx2

from plimsoll.contract.results import EXIT_FLOOD, EXIT_MEMORY

CALLERS: Final = 4
PATIENCE_S: Final = 120.0
"""For one run, with every refusal before it, on a machine that does much else."""
Json = dict[str, Any]
_NONE: Final[Mapping[str, str]] = {}
_LONG: Final = "import time; print('began', flush=True); time.sleep(60)"


def _body(code: str, kind: str = "python", timeout_ms: int = 60_000) -> Json:
    return {"payload": {"kind": kind, "code": code}, "timeout_ms": timeout_ms}


_SHORT: Final = (
    _body("print(6 * 7)"),
    _body(_LONG, timeout_ms=3_000),
    _body("while True: print('x' * 10000)"),
    _body("console.log(6 * 7)", "javascript"),
    _body("while True: pass", timeout_ms=1_000),
)
"""Runs that are over soon by themselves."""


def ask(http: httpx2.Client, body: Json, headers: Mapping[str, str] = _NONE) -> Json:
    """Once it is not refused for want of a place: the answer."""
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = http.post("/v1/runs", json=body, headers=dict(headers))
        if answer.status_code in {200, 202}:
            said: Json = answer.json()
            return said
        assert "plimsoll-not-dispatched" in answer.headers, answer.text
        assert time.monotonic() < end, answer.text
        time.sleep(0.1)


def _ends(http: httpx2.Client, body: Json, exit_code: int = 0, stdout: str | None = None) -> Json:
    said = ask(http, body)
    assert said["result"]["exit_code"] == exit_code, said
    assert stdout in {None, said["result"].get("stdout")}, said
    return said


def python(http: httpx2.Client) -> None:
    _ends(http, _body("print(6 * 7)"), stdout="42\n")


def javascript(http: httpx2.Client) -> None:
    _ends(http, _body("console.log(6 * 7)", "javascript"), stdout="42\n")


def failing(http: httpx2.Client) -> None:
    _ends(http, _body("raise SystemExit(3)"), 3)


def failing_javascript(http: httpx2.Client) -> None:
    _ends(http, _body("throw new Error('no')", "javascript"), 1)


def late(http: httpx2.Client) -> None:
    said = ask(http, _body("while True: pass", timeout_ms=300))
    assert said["result"]["timed_out"], said


def flood(http: httpx2.Client) -> None:
    _ends(http, _body("while True: print('x' * 10000)"), EXIT_FLOOD)


def hungry(http: httpx2.Client) -> None:
    said = _ends(http, _body("held = []\nwhile True: held.append(bytearray(1 << 20))"), EXIT_MEMORY)
    assert said["oom_killed"], said


def cancelled(http: httpx2.Client) -> None:
    run = ask(http, _body(_LONG), {"prefer": "respond-async"})["id"]
    answer = http.post(f"/v1/runs/{run}/cancel")
    assert answer.status_code in {200, 202}, answer.text
    end = time.monotonic() + PATIENCE_S
    while not (row := http.get(f"/v1/runs/{run}?wait=10").json())["settled"]:
        assert time.monotonic() < end, row
    assert row["state"] in {"finished", "not_dispatched"}, row


def hung_up(http: httpx2.Client) -> None:
    """A caller that goes away in the middle of a stream."""
    events = {"accept": "text/event-stream"}
    with http.stream("POST", "/v1/runs", json=_body(_LONG, timeout_ms=2_000), headers=events) as answer:
        if answer.status_code == 200:
            next(answer.iter_bytes())


def project(http: httpx2.Client) -> None:
    payload = {
        "kind": "project",
        "files": [{"path": "sum.py", "content": "open('out', 'w').write(str(6 * 7))"}],
        "steps": ["python3 sum.py", "cat out"],
        "artifacts": ["out"],
    }
    result = ask(http, {"payload": payload, "timeout_ms": 60_000})["result"]
    assert result["outcome"] == "completed", result
    assert [each["content"] for each in result["artifacts"]] == ["42"], result


WAYS: Final[tuple[Callable[[httpx2.Client], None], ...]] = (
    *(python, javascript, late, flood, python, project, failing, cancelled, javascript, hungry),
    *(python, failing_javascript, late, flood, project, failing, cancelled, javascript, hung_up, python),
)
"""In turn, so that every twenty runs are alike."""


def run(
    http: httpx2.Client, numbers: Iterable[int], told: Callable[[int], None] = lambda _: None
) -> Counter[str]:
    """The runs of these numbers, several at once; how many of each way there were. `told(n)` after each."""
    done: Counter[str] = Counter()
    with ThreadPoolExecutor(CALLERS) as pool:

        def one(number: int) -> str:
            way = WAYS[number % len(WAYS)]
            way(http)
            return way.__name__

        for name in pool.map(one, numbers):
            done[name] += 1
            told(done.total())
    return done


@contextlib.contextmanager
def load(url: str) -> Iterator[None]:
    """Runs of all ways without a pause, whatever they are answered, until the block ends."""
    over = threading.Event()

    def caller(first: int) -> None:
        for number in itertools.count(first):
            if over.is_set():
                return
            with (
                contextlib.suppress(OSError, httpx2.HTTPError),
                httpx2.Client(base_url=url, trust_env=False, timeout=5) as http,
            ):
                http.post("/v1/runs", json=_SHORT[number % len(_SHORT)])
            over.wait(0.01)

    with ThreadPoolExecutor(CALLERS) as pool:
        for each in range(CALLERS):
            pool.submit(caller, each)
        try:
            yield
        finally:
            over.set()
