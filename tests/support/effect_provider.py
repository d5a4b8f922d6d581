"""A provider for tests whose only wall is that it runs nothing: a run appends its id to a side-effect file.

That line is the "side effect" of the code, so a test can compare what the service said with what happened: a run marked as not
dispatched must not be in the file, and no run may be in it twice. Start it like any provider, with this module as the entry:

    process = spawn("effect", {"slots": 4, "effects": "/tmp/…/effects"}, module="tests.support.effect_provider")

The code of a run (kind `javascript`) is a list of words, one after the other:

    effect          append the run id to the file, durably (O_APPEND, fsync)
    effect:LABEL    the same, and before it the label to the file `<effects>.labels`
    out:TEXT        print TEXT on stdout;  err:TEXT on stderr
    hex:DIGITS      print these bytes on stdout
    fill:COUNT      print COUNT bytes on each stream, in chunks of 4 KiB; of each the cap is kept and the rest dropped
    sleep:MS        take that long;  deaf:MS  the same, whether cancelled or not
    refuse          say, before Begun, that nothing started (NotStarted): the host refuses the ticket
    refuse:NAME     the same, but only while the file `<effects>.NAME` exists
    die             exit this process at once, in the middle of whatever there is
    begin           say Begun; every word before it happens before the API hears of acceptance. Implied at the end and
                    before `out`, `err`, `hex`, `fill`, `exit`, `break`
    hang            never end (the host gives up `GRACE_S` after the run's timeout)
    freeze          SIGSTOP this process: the link falls silent, the socket stays open
    raise           raise inside the provider
    exit:CODE       end with that exit code (default 0);  break  end as Broken("effect")

So `die` is "died before accepting", `effect die` "died after the effect, before accepting", `begin effect die` "died after
accepting", `effect hang` a run that had its effect and never ends, `freeze` a worker that is silent from the start.

A file beside the effects makes faults switchable from outside while the process runs: `<effects>.fault`, if it exists,
holds the code of one required fact that is now missing, seen at the next look (`evidence_interval_s`).
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from plimsoll.contract.requests import JavaScript, Kind
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Environment, Out, Resources
from providers.main import main
from providers.seam import Begun, Break, Findings, Finish, NotStarted, Observation, Order, Step

SOFTWARE = "effect:v1"
CHUNK = 4096


def printed(name: str, value: str) -> Iterator[Out]:
    """What one word prints."""
    if name == "fill":
        for at in range(0, int(value), CHUNK):
            size = min(CHUNK, int(value) - at)
            yield from (Out("stdout", b"o" * size), Out("stderr", b"e" * size))
    else:
        yield Out(
            "stderr" if name == "err" else "stdout", bytes.fromhex(value) if name == "hex" else value.encode()
        )


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
        return Out(out.stream, out.data[:left]) if left else None


class EffectProvider:
    """See the module's docstring."""

    environments: Mapping[Kind, Environment] = {
        Kind.JAVASCRIPT: Environment("effect-env:v1", SOFTWARE, 300_000, ("javascript",))
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
        assert isinstance(order.payload, JavaScript)
        cancelled = self._cancelled[order.run_id] = asyncio.Event()
        begun, room = False, Room(order.output_bytes)
        try:
            for word in [*order.payload.code.split(), "exit:0"]:
                name, _, value = word.partition(":")
                if not begun and name in {"begin", "out", "err", "hex", "fill", "exit", "break"}:
                    begun = True
                    yield Begun(f"effect:{os.urandom(16).hex()}")
                if name in {"out", "err", "hex", "fill"}:
                    for out in printed(name, value):
                        if kept := room.take(out):
                            yield kept
                        await asyncio.sleep(0)
                elif name == "exit":
                    yield Finish(
                        int(value or 0),
                        stdout_truncated=room.over["stdout"],
                        stderr_truncated=room.over["stderr"],
                    )
                    return
                elif name == "break":
                    yield Break("effect")
                    return
                elif await self._act(name, value, order, cancelled):
                    if not begun:
                        yield Begun(f"effect:{os.urandom(16).hex()}")
                    yield Finish(130, cancelled=True)
                    return
        finally:
            del self._cancelled[order.run_id]

    async def _act(self, name: str, value: str, order: Order, cancelled: asyncio.Event) -> bool:
        """Do one word that says nothing to the host; whether the run was cancelled meanwhile."""
        match name:
            case "begin":
                pass
            case "effect":
                if value:
                    self._append(value, ".labels")
                self._append(order.run_id)
            case "deaf":
                await asyncio.sleep(int(value) / 1000)
            case "sleep" | "hang":
                try:
                    async with asyncio.timeout(int(value) / 1000 if name == "sleep" else None):
                        await cancelled.wait()
                except TimeoutError:
                    return False
                return True
            case "refuse":
                if not value or self._effects.with_name(f"{self._effects.name}.{value}").exists():
                    raise NotStarted
            case "die":
                os._exit(7)
            case "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
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
    raise SystemExit(main({"effect": EffectProvider}))
