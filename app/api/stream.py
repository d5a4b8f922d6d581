"""One run as server-sent events: `accepted`, `stdout` and `stderr` as they come, then exactly one `result` or `error`.

Of a project, output names its `step`, and one event `step` says how each step ended, after all its output. Artifacts are in the
result alone.

Every event's data is one line of ASCII JSON, so that no byte of the guest can end a field or make an event, not even where a
reader breaks lines at characters of Unicode. A stream that ends without `result` or `error` was cut. Bytes that are no UTF-8
travel as base64; a character split across chunks stays whole.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from app.api.shapes import answer_bytes
from app.dispatch.dispatcher import Live
from app.dispatch.outcome import Finished
from app.http.problems import problem_document
from plimsoll.contract.content import stream_text
from plimsoll.contract.refusals import Refused
from plimsoll.contract.requests import Payload, Project
from plimsoll.contract.results import ProjectResult, ScriptResult, StepResult
from plimsoll.contract.worker import Accepted, Out, StepEnded

KEEP_ALIVE_S = 10.0
COMMENT = b": still running\n\n"
STREAMS = ("stdout", "stderr")


_NO_ASCII = re.compile(r"[^\x00-\x7f]+")


def frame(name: str, data: str) -> bytes:
    """One event; `data` is JSON, which holds no raw line break, and other characters than ASCII in its texts only."""
    text = data if data.isascii() else _NO_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], data)
    return f"event: {name}\ndata: {text}\n\n".encode()


def accepted_frame(run_id: str, provider: str, accepted: Accepted) -> bytes:
    """The first event: who runs it, behind which wall."""
    said = {"id": run_id, "provider": provider, "isolation": accepted.tier.value}
    return frame("accepted", json.dumps(said | {"evidence_sha256": accepted.evidence_sha256}))


def step_frame(number: int, step: StepEnded | StepResult) -> bytes:
    """How a project's step ended."""
    said = {
        "step": number,
        "exit_code": step.exit_code,
        "timed_out": step.timed_out,
        "duration_ms": step.duration_ms,
    }
    cut = {"stdout_truncated": step.stdout_truncated, "stderr_truncated": step.stderr_truncated}
    return frame("step", json.dumps(said | cut))


class Cutter:
    """Cuts one stream's bytes into texts without splitting a character; counts what it gave. `step` only of a project."""

    def __init__(self, name: str, step: int | None = None) -> None:
        self.name = name
        self._more = {} if step is None else {"step": step}
        self.seen = 0
        self._tail = b""

    def feed(self, data: bytes, *, last: bool = False) -> list[bytes]:
        """The events for `data`, none while a character is incomplete."""
        self.seen += len(data)
        whole = self._tail + data
        cut = len(whole) - (0 if last else incomplete(whole))
        head, self._tail = whole[:cut], whole[cut:]
        if not head:
            return []
        text, encoding = stream_text(head)
        return [frame(self.name, json.dumps({"data": text, "encoding": encoding, **self._more}))]

    def rest(self, whole: bytes) -> list[bytes]:
        """The events for what is left of the stream's bytes."""
        return self.feed(whole[self.seen :], last=True)


class Teller:
    """The events of one run's output and steps."""

    def __init__(self, payload: Payload) -> None:
        self._steps = isinstance(payload, Project)
        self._cutters: dict[tuple[int, str], Cutter] = {}
        self._ended = 0

    def tell(self, said: Out | StepEnded) -> list[bytes]:
        """What the worker said, as it came."""
        if isinstance(said, Out):
            return self._cutter(said.step, said.stream).feed(said.data)
        self._ended += 1
        left = [each for name in STREAMS for each in self._cutter(said.step, name).feed(b"", last=True)]
        return [*left, step_frame(said.step, said)]

    def rest(self, result: ScriptResult | ProjectResult) -> list[bytes]:
        """What was not told yet of a run that has its result."""
        if isinstance(result, ScriptResult):
            return self._output(0, result)
        steps = list(enumerate(result.steps))[self._ended :]
        return [each for at, step in steps for each in (*self._output(at, step), step_frame(at, step))]

    def _output(self, step: int, of: ScriptResult | StepResult) -> list[bytes]:
        whole = {"stdout": of.stdout, "stderr": of.stderr}
        return [each for name in STREAMS for each in self._cutter(step, name).rest(whole[name])]

    def _cutter(self, step: int, name: str) -> Cutter:
        new = Cutter(name, step if self._steps else None)
        return self._cutters.setdefault((step, name), new)


_CONTINUES, _TWO, _THREE, _FOUR = 0x80, 0xC0, 0xE0, 0xF0
"""First bytes of UTF-8: a continuation, and the leads of characters of two, three and four bytes."""


def incomplete(data: bytes) -> int:
    """How many bytes at the end begin a UTF-8 character that is not whole yet: 0 to 3."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & _TWO != _CONTINUES:
            needed = 4 if byte >= _FOUR else 3 if byte >= _THREE else 2 if byte >= _TWO else 1
            return back if needed > back else 0
    return 0


async def run_events(live: Live, request_id: str, *, kept: bool) -> AsyncIterator[bytes]:
    """The events of a live run. A reader that goes away cancels the run, unless its answer is kept."""
    try:
        async for each in _events(live, request_id):
            yield each
    finally:
        if not kept and not live.task.done():
            live.attempt.cancel.request()


async def _events(live: Live, request_id: str) -> AsyncIterator[bytes]:
    heard, told, given = live.attempt.heard, False, 0
    teller = Teller(live.attempt.request.payload)
    live.task.add_done_callback(lambda _: heard.changed.set())
    while True:
        heard.changed.clear()
        done = live.task.done()
        if heard.accepted and not told:
            told = True
            yield accepted_frame(live.run_id, live.attempt.row.provider, heard.accepted)
        while given < len(heard.told):
            given += 1
            for each in teller.tell(heard.told[given - 1]):
                yield each
        if done:
            break
        if not await _changed(heard.changed):
            yield COMMENT
    for each in await _last(live, request_id, teller, told=told):
        yield each


async def _changed(changed: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            await changed.wait()
    except TimeoutError:
        return False
    return True


async def _last(live: Live, request_id: str, teller: Teller, *, told: bool) -> list[bytes]:
    """What was not streamed yet, then the one `result` or `error`."""
    try:
        run = await live.end()
    except Refused as refused:
        problem = problem_document(refused.refusal, request_id)
        return [frame("error", json.dumps(problem))]
    first = [] if told else [accepted_frame(run.run_id, run.provider, run.accepted)]
    return [*first, *teller.rest(run.result), frame("result", answer_text(run))]


def answer_text(run: Finished) -> str:
    """The run answer as one line of JSON; the kept bytes where there are any."""
    return (run.body or answer_bytes(run)).decode()


async def replay_events(body: bytes) -> AsyncIterator[bytes]:
    """A stored answer as a stream: `accepted` and one `result`."""
    answer: dict[str, Any] = json.loads(body)
    said = {name: answer[name] for name in ("id", "provider", "isolation", "evidence_sha256")}
    yield frame("accepted", json.dumps(said))
    yield frame("result", body.decode())
