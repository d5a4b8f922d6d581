"""A watched run: its output leaves the guest while it runs, and nothing else about it changes. All with the real guest."""

import ctypes
import os
import time
from dataclasses import dataclass, field

import pytest
from typing_extensions import override

from providers.wasm.capture import LOOK_NS
from providers.wasm.vm import Ending, Engine, VmLimits, VmResult

pytestmark = pytest.mark.component("wasm")

CAP = 4 * 1024
BUSY = "const busy = (n = 1e6) => { let x = 0; for (let i = 0; i < n; i++) x += i % 7; return x };"
"""About 50 ms of computing without a host call."""


@dataclass
class Watch:
    """What was handed on, with times since the start."""

    engine: Engine
    began_ns: int = field(default_factory=time.monotonic_ns)
    pieces: list[tuple[int, int, bytes]] = field(default_factory=list)
    looks: list[int] = field(default_factory=list)

    def output(self, stream: int, data: bytes) -> bool:
        self.pieces.append((time.monotonic_ns() - self.began_ns, stream, data))
        return True

    def look(self) -> bool:
        self.looks.append(time.monotonic_ns() - self.began_ns)
        return True

    def handed(self, stream: int) -> bytes:
        return b"".join(data for _, number, data in self.pieces if number == stream)

    def run(self, source: str, *, seconds: float = 20, cap: int = CAP) -> VmResult:
        self.began_ns = time.monotonic_ns()
        result = self.engine.run(
            source.encode(),
            deadline_ns=self.began_ns + int(seconds * 1e9),
            seed=os.urandom(8),
            limits=VmLimits(output_cap_bytes=cap),
            on_output=self.output,
            on_look=self.look,
        )
        assert (self.handed(1), self.handed(2)) == (result.stdout, result.stderr)
        return result


@pytest.fixture
def watch(engine: Engine) -> Watch:
    return Watch(engine)


def unwatched(engine: Engine, source: str, *, seconds: float = 20, cap: int = CAP) -> VmResult:
    return engine.run(
        source.encode(),
        deadline_ns=time.monotonic_ns() + int(seconds * 1e9),
        seed=os.urandom(8),
        limits=VmLimits(output_cap_bytes=cap),
    )


@pytest.mark.parametrize(
    "pause",
    [
        "const end = Date.now() + 500; while (Date.now() < end);",
        f"{BUSY} busy(1e7)",
        "/(a+)+$/.test('a'.repeat(22) + 'b')",
        "new Array(1e5).fill(0).map((_, i) => i * 7919 % 1000).sort((a, b) => a - b)",
    ],
)
def test_what_was_printed_is_there_before_the_program_goes_on(watch: Watch, pause: str) -> None:
    result = watch.run(f"console.log('first'); {pause}; console.log('second')")
    took = time.monotonic_ns() - watch.began_ns
    assert result.stdout == b"first\nsecond\n"
    (at, _, first), *_ = watch.pieces
    assert first == b"first\n"
    assert at < took


def test_each_look_brings_stdout_before_stderr(watch: Watch) -> None:
    watch.run(f"{BUSY} console.error('e'); console.log('o'); busy()")
    assert [stream for _, stream, _ in watch.pieces] == [1, 2]


def test_endless_tiny_output_costs_a_look_at_most_every_20_ms(watch: Watch) -> None:
    result = watch.run("for (;;) { console.log(1); Date.now() }", seconds=0.5)
    assert result.ending in {Ending.DEADLINE, Ending.FLOOD}
    assert all(at >= (n + 1) * LOOK_NS for n, at in enumerate(watch.looks))


def test_a_program_that_is_done_before_the_first_look_is_never_looked_at(watch: Watch) -> None:
    assert watch.run("console.log(1 + 1)").stdout == b"2\n"
    assert watch.looks == []


def test_a_character_split_between_looks_is_whole_again_in_the_result(watch: Watch) -> None:
    source = (
        f"{BUSY} for (let i = 0; i < 300; i++) {{ console.log('é漢😀'.repeat(17)); if (i % 50 == 0) busy() }}"
    )
    result = watch.run(source, cap=1 << 20)
    assert result.stdout.decode() == ("é漢😀" * 17 + "\n") * 300
    assert len(watch.looks) > 3


SLOW = f"{BUSY} const slowly = (text) => {{ console.log(text); busy(); }};"

PROGRAMS = {
    "nothing": "",
    "one line": f"{SLOW} slowly('x')",
    **{
        f"the cap {by:+}": f"{SLOW} slowly('x'.repeat(1000)); slowly('y'.repeat({CAP + by} - 1002)); console.error('e')"
        for by in (-1, 0, 1)
    },
    "the cap in one piece": f"{SLOW} slowly('x'.repeat({CAP} - 1)); console.log('more')",
    "over the cap and on": f"{SLOW} slowly('x'.repeat({CAP} * 2)); slowly('y'); console.error('on')",
    "several buffers": f"{SLOW} for (let i = 0; i < 5; i++) slowly('é'.repeat(5000))",
    "both streams": f"{SLOW} for (let i = 0; i < 5; i++) {{ slowly('o' + i); console.error('e' + i); busy() }}",
    "an uncaught error": f"{SLOW} slowly('x'); throw new TypeError('bad')",
    "never settled": f"{SLOW} slowly('x'); await new Promise(() => {{}})",
    "too much memory": f"{SLOW} slowly('x'); const a = []; for (;;) a.push([1, 2, 3])",
    "too deep": f"{SLOW} slowly('x'); JSON.parse('['.repeat(1e6))",
    "a flood": f"{SLOW} slowly('x'); for (;;) console.log('x'.repeat(1000))",
    "a flood just avoided": f"{SLOW} slowly('x'); console.log('x'.repeat({CAP} * 16 - 3))",
    "a flood by one byte": f"{SLOW} slowly('x'); console.log('x'.repeat({CAP} * 16 - 2))",
}


@pytest.mark.parametrize("source", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_the_result_is_the_same_as_without_watching(engine: Engine, watch: Watch, source: str) -> None:
    plain, watched = unwatched(engine, source), watch.run(source)
    # The engine's own stack traces and texts are equal too; only times could differ, and none is printed.
    assert watched == plain


def test_a_deadline_ends_a_watched_run_in_time(watch: Watch) -> None:
    result = watch.run("console.log('x'); for (;;);", seconds=0.2)
    assert (result.ending, result.exit_code, result.stdout) == (Ending.DEADLINE, 124, b"x\n")
    assert 0.2 <= (time.monotonic_ns() - watch.began_ns) / 1e9 < 20


@pytest.mark.parametrize("fails", [False, True])
def test_a_receiver_that_is_gone_ends_the_run(watch: Watch, fails: object) -> None:
    def gone() -> bool:
        if fails:
            raise BrokenPipeError
        return False

    watch.look = gone  # type: ignore[method-assign]
    result = watch.run("console.log('x'); for (;;);")
    assert (result.ending, result.exit_code, result.stdout) == (Ending.CANCELLED, 130, b"x\n")


def test_a_run_after_a_watched_one_is_not_watched(engine: Engine, watch: Watch) -> None:
    watch.run(f"{BUSY} console.log('x'); busy()")
    seen = len(watch.looks)
    assert seen
    assert unwatched(engine, "for (;;);", seconds=0.1).ending is Ending.DEADLINE
    assert len(watch.looks) == seen


# --- a guest that is no longer QuickJS: whatever it writes into its buffers, its own result is what was handed on ------------


@dataclass
class Hostile(Watch):
    """Writes into the guest's memory at every look, as a guest could that took itself over."""

    length: int = 0
    bytes_: bytes = b""

    @override
    def look(self) -> bool:
        run = self.engine._run
        assert run
        base, _ = run._vm.memory()
        layout = self.engine._layout
        for index in (0, 1):
            ctypes.c_uint32.from_address(base + layout.io + 4 + 4 * index).value = self.length
            ctypes.memmove(base + layout.streams[index], self.bytes_, len(self.bytes_))
        return super().look()


@pytest.mark.parametrize("length", [0, 1, 5, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_what_was_handed_on_stays_whatever_the_guest_rewrites(engine: Engine, length: int) -> None:
    hostile = Hostile(engine, length=length, bytes_=b"rewritten")
    result = hostile.run(f"{BUSY} console.log('first'); busy(); busy(); console.error('second')", seconds=5)
    # `run` compares what was handed on with the result; here: what went first is still first.
    assert result.stdout.startswith(b"first\n")
    assert max(len(result.stdout), len(result.stderr)) <= CAP
    assert (
        engine.run(b"console.log(1)", deadline_ns=time.monotonic_ns() + 10**10, seed=bytes(8)).stdout
        == b"1\n"
    )
