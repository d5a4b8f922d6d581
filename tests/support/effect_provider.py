"""A provider for tests whose only wall is that it runs nothing: a run appends its id to a side-effect file.

That line is the "side effect" of the code, so a test can compare what the service said with what happened: a run marked as not
dispatched must not be in the file, and no run may be in it twice. Start it like any provider, with this module as the entry:

    process = spawn("effect", {"slots": 4, "effects": "/tmp/…/effects"}, module="tests.support.effect_provider")

The code of a run (kinds `javascript` and `python`) is a list of words, one after the other:

    effect          append the run id to the file, durably (O_APPEND, fsync)
    effect:LABEL    the same, and before it the label to the file `<effects>.labels`
    call:TEXT       call the broker with the run's lease, `METHOD=/path`, and print its answer; `call:show` prints the lease
    out:TEXT        print TEXT on stdout;  err:TEXT on stderr
    hex:DIGITS      print these bytes on stdout
    fill:COUNT      print COUNT bytes on each stream, in chunks of 4 KiB; of each the cap is kept and the rest dropped
    sleep:MS        take that long;  deaf:MS  the same, whether cancelled or not
    refuse          say, before Begun, that nothing started (NotStarted): the host refuses the ticket
    refuse:NAME     the same, but only while the file `<effects>.NAME` exists
    die             exit this process at once, in the middle of whatever there is
    begin           say Begun; every word before it happens before the API hears of acceptance. Implied at the end and
                    before `out`, `err`, `hex`, `fill`, `exit`, `break`, …
    hang            never end (the host gives up `GRACE_S` after the run's timeout)
    freeze          SIGSTOP this process: the link falls silent, the socket stays open
    raise           raise inside the provider;  uncalled  the same, a cancellation that nobody asked for
    exit:CODE       end with that exit code (default 0);  break  end as Broken("effect")

A project's steps are such lists, each with its own output and exit code; the first that fails is the last. What a step can do
besides:

    write:PATH=TEXT   make a file in the project's own memory;  size:PATH=COUNT  of so many bytes, all of them `x`
    cat:PATH          print that file, or one that was sent, on stdout
    slow              end as a step at its deadline, and with it the project (exit 124)
    fail              end as a project whose runner failed in this step (exit 1)
    lie:NAME          say something that does not fit the request: one of LIES

Files that were asked for as artifacts and exist are given back; `truncate` anywhere says that not all could be. A project
whose files hold the path `setup` fails in its setup.

So `die` is "died before accepting", `effect die` "died after the effect, before accepting", `begin effect die` "died after
accepting", `effect hang` a run that had its effect and never ends, `freeze` a worker that is silent from the start.

A file beside the effects makes faults switchable from outside while the process runs: `<effects>.fault`, if it exists,
holds the code of one required fact that is now missing, seen at the next look (`evidence_interval_s`).
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plimsoll.contract.requests import JavaScript, Kind, Project, Python
from plimsoll.contract.results import Artifact, Outcome
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Environment, Out, Resources, StepEnded
from providers.main import main
from providers.seam import Begun, Break, Findings, Finish, NotStarted, Observation, Order, Step
from tests.support.broker_client import called, watch_leases

SOFTWARE = "effect:v1"
CHUNK = 4096
LIES = ("step", "output", "artifact", "twice", "more", "after", "outcome", "detail", "missing")
"""A step or output out of order, an artifact not asked for or given twice, more steps than asked, one after a failure, the
wrong sort of end for the kind, endless words about it, a completion without its steps."""


PRINTING = frozenset({"out", "err", "hex", "fill", "cat"})
ENDING = frozenset({"exit", "slow", "fail", "break", "lie"})


@dataclass
class Guest:
    """What a run's code has in its hands."""

    order: Order
    cancelled: asyncio.Event
    begun: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    outcome: Outcome = Outcome.COMPLETED
    truncated: bool = False
    lies: set[str] = field(default_factory=set)

    def printed(self, name: str, value: str, step: int) -> Iterator[Out]:
        """What one word prints."""
        if name == "fill":
            for at in range(0, int(value), CHUNK):
                size = min(CHUNK, int(value) - at)
                yield from (Out("stdout", b"o" * size, step), Out("stderr", b"e" * size, step))
            return
        data = {"hex": bytes.fromhex, "cat": self.files.__getitem__}.get(name, str.encode)(value)
        yield Out("stderr" if name == "err" else "stdout", data, step)

    def begin(self) -> Iterator[Begun]:
        """Once."""
        if not self.begun:
            self.begun = True
            yield Begun(f"effect:{os.urandom(16).hex()}")


class Room:
    """Keeps the cap of each stream: the host trusts a provider to."""

    def __init__(self, cap: int) -> None:
        self.left = {"stdout": cap, "stderr": cap}
        self.over = {"stdout": False, "stderr": False}

    def take(self, out: Out) -> Out | None:
        """What of it is kept."""
        left = self.left[out.stream]
        self.over[out.stream] |= len(out.data) > left
        self.left[out.stream] -= min(left, len(out.data))
        return Out(out.stream, out.data[:left], out.step) if left else None


class EffectProvider:
    """See the module's docstring."""

    environments: Mapping[Kind, Environment] = {
        kind: Environment("effect-env:v1", SOFTWARE, 300_000, languages, grants=kind is not Kind.PYTHON)
        for kind, languages in {
            Kind.JAVASCRIPT: ("javascript",),
            Kind.PYTHON: ("python",),
            Kind.PROJECT: ("javascript", "python"),
        }.items()
    }
    policy = "effect-policy:v1"
    resources = Resources(memory_mb=64)

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._effects = Path(settings["effects"])
        self._cancelled: dict[str, asyncio.Event] = {}

    async def open(self, dropped: Callable[[str], None]) -> None:
        """Nothing to get ready."""

    async def collect(self) -> Findings:
        fault = self._effects.with_name(self._effects.name + ".fault")
        faults = (fault.read_text().strip(),) if fault.exists() else ()
        seen = Observation("effect.present", "yes", "host", "by being here", Tier.PROCESS)
        return Findings(Tier.PROCESS, (seen,), faults)

    def cancel(self, run_id: str) -> None:
        if event := self._cancelled.get(run_id):
            event.set()

    async def close(self) -> None:
        """Nothing to end."""

    async def run(self, order: Order) -> AsyncIterator[Step]:
        cancelled = self._cancelled[order.run_id] = asyncio.Event()
        guest, payload = Guest(order, cancelled), order.payload
        try:
            if isinstance(payload, Project):
                said = self._project(guest, payload)
            else:
                assert isinstance(payload, JavaScript | Python)
                said = self._snippet(guest, payload.code)
            async for each in said:
                yield each
        finally:
            del self._cancelled[order.run_id]

    async def _snippet(self, guest: Guest, code: str) -> AsyncIterator[Step]:
        async for each in self._words(guest, code, 0):
            lying = isinstance(each, Finish) and "outcome" in guest.lies
            yield replace(each, outcome=Outcome.COMPLETED) if lying and isinstance(each, Finish) else each

    async def _project(self, guest: Guest, asked: Project) -> AsyncIterator[Step]:
        guest.files = {file.path: file.content for file in asked.files}
        end = Finish(1 if "setup" in guest.files else 0)
        if "setup" in guest.files:
            guest.outcome = Outcome.SETUP_FAILED
        for number, step in enumerate(asked.steps if end.exit_code == 0 else ()):
            async for each in self._words(guest, step, number):
                if isinstance(each, Finish):
                    end = each
                    cut = {
                        "stdout_truncated": each.stdout_truncated,
                        "stderr_truncated": each.stderr_truncated,
                    }
                    yield StepEnded(number, each.exit_code, each.timed_out, **cut, duration_ms=number + 1)
                else:
                    yield each
                    if isinstance(each, Break):
                        return
            if (end.exit_code and "after" not in guest.lies) or "missing" in guest.lies:
                break
        for begun in guest.begin():
            yield begun
        for last in self._last(guest, asked, end):
            yield last

    def _last(self, guest: Guest, asked: Project, end: Finish) -> Iterator[Step]:
        """The artifacts and the end of a project."""
        if "more" in guest.lies:
            yield StepEnded(len(asked.steps), 0)
        paths = [path for path in asked.artifacts if path in guest.files]
        for path in [*paths, *(paths if "twice" in guest.lies else ())]:
            yield Artifact(path, guest.files[path])
        outcome = Outcome.UNSPECIFIED if "outcome" in guest.lies else guest.outcome
        detail = "" if guest.outcome is Outcome.COMPLETED else f"it was {guest.outcome.name.lower()}"
        detail = "so much " * 1000 if "detail" in guest.lies else detail
        yield replace(end, outcome=outcome, outcome_detail=detail, artifacts_truncated=guest.truncated)

    async def _words(self, guest: Guest, code: str, step: int) -> AsyncIterator[Step]:
        """What a list of words makes of one step, to its end."""
        room = Room(guest.order.output_bytes)
        for word in [*code.split(), "exit:0"]:
            name, _, value = word.partition(":")
            if name in {"begin", "call"} or name in PRINTING | ENDING:
                for begun in guest.begin():
                    yield begun
            if name == "call":
                if kept := room.take(Out("stdout", await called(guest.order, value), step)):
                    yield kept
            elif name in PRINTING:
                for out in guest.printed(name, value, step):
                    if kept := room.take(out):
                        yield kept
                    await asyncio.sleep(0)
            elif name == "lie":
                for lie in self._lie(guest, value, step):
                    yield lie
            elif name in ENDING:
                yield Break("effect") if name == "break" else self._finish(guest, name, value, room)
                return
            elif await self._act(name, value, guest):
                for begun in guest.begin():
                    yield begun
                guest.outcome = Outcome.RUNNER_FAILED
                yield Finish(130, cancelled=True)
                return

    def _finish(self, guest: Guest, name: str, value: str, room: Room) -> Finish:
        cut: dict[str, Any] = {
            "stdout_truncated": room.over["stdout"],
            "stderr_truncated": room.over["stderr"],
        }
        if name == "slow":
            guest.outcome = Outcome.TIMED_OUT
            return Finish(124, timed_out=True, **cut)
        if name == "fail":
            guest.outcome = Outcome.RUNNER_FAILED
            return Finish(1, **cut)
        return Finish(int(value or 0), **cut)

    def _lie(self, guest: Guest, name: str, step: int) -> Iterator[Step]:
        assert name in LIES, name
        match name:
            case "step":
                yield StepEnded(step + 1, 0)
            case "output":
                yield Out("stdout", b"astray", step + 1)
            case "artifact":
                yield Artifact("never/asked/for", b"surprise")
            case _:
                guest.lies.add(name)

    async def _act(self, name: str, value: str, guest: Guest) -> bool:
        """Do one word that says nothing to the host; whether the run was cancelled meanwhile."""
        match name:
            case "begin":
                pass
            case "effect":
                if value:
                    self._append(value, ".labels")
                self._append(guest.order.run_id)
            case "deaf":
                await asyncio.sleep(int(value) / 1000)
            case "sleep" | "hang":
                try:
                    async with asyncio.timeout(int(value) / 1000 if name == "sleep" else None):
                        await guest.cancelled.wait()
                except TimeoutError:
                    return False
                return True
            case "refuse":
                if not value or self._effects.with_name(f"{self._effects.name}.{value}").exists():
                    raise NotStarted
            case "write" | "size":
                path, _, content = value.partition("=")
                guest.files[path] = content.encode() if name == "write" else b"x" * int(content)
            case "truncate":
                guest.truncated = True
            case "die":
                os._exit(7)
            case "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "uncalled":
                raise asyncio.CancelledError
            case _:
                raise RuntimeError(name)
        return False

    def _append(self, word: str, suffix: str = "") -> None:
        file = self._effects.with_name(self._effects.name + suffix)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, word.encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


if __name__ == "__main__":
    watch_leases()
    raise SystemExit(main({"effect": EffectProvider}))
