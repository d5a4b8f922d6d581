"""Breaks every limit for real, at every start, in a real runner: a limit that does not bite is found before a guest finds it.

Each case is a program with limits lowered so that all of them together take well under half a second.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from plimsoll.contract.results import EXIT_DEADLINE, EXIT_FLOOD, EXIT_MEMORY
from providers.seam import Break, Finish
from providers.wasm.evidence import HELD

_MEMORY_MB: Final = 16
_CAP: Final = 1024
_LONGEST_MS: Final = 5000


@dataclass(frozen=True, slots=True)
class Try:
    """One program and the limits it runs under."""

    source: str
    timeout_ms: int = 1000
    memory_bytes: int = _MEMORY_MB << 20
    cap: int = _CAP


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went."""

    step: Finish | Break
    stdout: bytes
    alive: bool
    """Whether the runner kept the limit itself. Where the host had to kill it, a limit is missing."""

    @property
    def finish(self) -> Finish:
        """The end, or one that fits nothing."""
        return self.step if self.alive and isinstance(self.step, Finish) else Finish(-1)

    @property
    def last_number(self) -> int:
        """The last whole number it printed."""
        return int(self.stdout.split()[-1]) if self.stdout.strip() else -1


RunTry = Callable[[Try], Awaitable[Outcome]]

CASES: Final[dict[str, tuple[Try, Callable[[Outcome], bool]]]] = {
    "clean": (Try("console.log(6 * 7)"), lambda it: it.stdout == b"42\n" and it.finish == Finish(0)),
    "deadline": (
        Try("console.log(1); for (;;);", timeout_ms=20),
        lambda it: it.finish.timed_out and it.finish.exit_code == EXIT_DEADLINE and it.stdout == b"1\n",
    ),
    "memory": (
        Try(
            "const all = []; for (;;) { all.push(new Uint8Array(1 << 20).fill(1)); console.log(all.length) }"
        ),
        lambda it: (
            it.finish.oom_killed and it.finish.exit_code == EXIT_MEMORY and 0 < it.last_number < _MEMORY_MB
        ),
    ),
    "stack": (
        Try("try { (function f() { f() })() } catch (e) { console.log(e instanceof RangeError) }"),
        lambda it: it.stdout == b"true\n" and it.finish == Finish(0),
    ),
    "output": (
        Try("for (let i = 0; i < 100; i++) console.log('x'.repeat(99))"),
        lambda it: len(it.stdout) == _CAP and it.finish == Finish(0, stdout_truncated=True),
    ),
    "flood": (
        Try("for (;;) console.log('x'.repeat(999))"),
        lambda it: len(it.stdout) == _CAP and it.finish.exit_code == EXIT_FLOOD,
    ),
}
_RANDOM: Final = Try("console.log(Math.random())")
_LEAVE: Final = Try("globalThis.left = 1; Array.prototype.left = 1; console.log(left)")
_LOOK: Final = Try("console.log(typeof left, typeof [].left)")


async def smoke(run: RunTry) -> dict[str, str]:
    """Every case by name: `held`, or `failed`."""
    results = {name: fits(await _begun(run, case)) for name, (case, fits) in CASES.items()}
    first, second = await run(_RANDOM), await run(_RANDOM)
    results["random"] = first.finish == second.finish == Finish(0) and first.stdout != second.stdout
    left, looked = await run(_LEAVE), await run(_LOOK)
    results["fresh"] = left.stdout == b"1\n" and looked.stdout == b"undefined undefined\n"
    return {name: HELD if good else "failed" for name, good in results.items()}


async def _begun(run: RunTry, case: Try) -> Outcome:
    """How it went once it printed something.

    On a busy machine a short deadline may come before the program's first word, and then nothing was tried.
    """
    outcome = await run(case)
    while outcome.finish.timed_out and not outcome.stdout and case.timeout_ms < _LONGEST_MS:
        case = replace(case, timeout_ms=4 * case.timeout_ms)
        outcome = await run(case)
    return outcome
