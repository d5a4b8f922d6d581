"""The engine keeps its promises against programs that try to break them. Every test runs the real guest."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from providers.wasm import capi
from providers.wasm.guest import GuestRefused
from providers.wasm.vm import (
    EXIT_CODES,
    MIB,
    STDERR,
    STDOUT,
    THREAD_STACK_BYTES,
    Ending,
    Engine,
    EngineConfig,
    OnOutput,
    VmLimits,
    VmResult,
    compile_module,
)

pytestmark = pytest.mark.component("wasm")

CONFIG = EngineConfig()
CAP = 64 * 1024

Run: TypeAlias = Callable[..., VmResult]


@pytest.fixture(name="run")
def _run(engine: Engine) -> Run:
    def run(source: str | bytes, *, seconds: float = 20, **options: Any) -> VmResult:
        text = source.encode() if isinstance(source, str) else source
        deadline = time.monotonic_ns() + int(seconds * 1e9)
        return engine.run(text, deadline_ns=deadline, seed=options.pop("seed", os.urandom(8)), **options)

    return run


def test_a_program_that_ends_well(run: Run) -> None:
    assert run("console.log(1+1)") == VmResult(
        Ending.FINISHED, 0, b"2\n", b"", stdout_truncated=False, stderr_truncated=False
    )


def test_output_is_in_no_repr(run: Run) -> None:
    assert "canary" not in repr(run("console.log('canary'); console.error('canary')"))


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 5_000_000])
def test_a_source_of_any_size_runs(run: Run, size: int) -> None:
    head = "console.log('ran');"
    assert run(head.ljust(size)[: max(size, len(head))]).stdout == b"ran\n"


def test_a_source_larger_than_the_memory_ends_as_memory(run: Run) -> None:
    assert run(b" " * (80 * MIB)).ending is Ending.MEMORY


@pytest.mark.parametrize(
    ("source", "stderr"),
    [
        ("throw new TypeError('bad')", b"TypeError: bad\n    at <eval> (main.js:1:11)\n"),
        ("await Promise.reject(new Error('late'))", b"Error: late\n"),
        ("Promise.reject(new Error('lost')); console.log('on')", b"Error: lost\n"),
        ("throw 5", b"Uncaught 5\n"),
        ("throw {a: 1}", b"Uncaught { a: 1 }\n"),
        ("throw undefined", b"Uncaught undefined\n"),
        ("let 1", b"SyntaxError: "),
        ("await import('fs')", b"ReferenceError: "),
        ("throw {get message() { throw 1 }, get stack() { throw 2 }}", b"Uncaught { message: [Getter]"),
        ("throw new Proxy({}, {get() { throw 1 }, getPrototypeOf() { throw 2 }})", b"Uncaught"),
    ],
)
def test_an_uncaught_error_is_exit_1_with_its_story_on_stderr(run: Run, source: str, stderr: bytes) -> None:
    result = run(source)
    assert (result.ending, result.exit_code) == (Ending.FINISHED, 1)
    assert result.stderr.startswith(stderr)


def test_a_rejection_that_is_handled_in_time_is_none(run: Run) -> None:
    source = (
        "const p = Promise.reject(1), q = Promise.reject(2); await null; p.catch(() => 0); q.catch(() => 0)"
    )
    assert run(source).exit_code == 0


def test_the_second_rejection_counts_when_the_first_is_handled(run: Run) -> None:
    result = run("const p = Promise.reject(1); Promise.reject(2); await null; p.catch(() => 0)")
    assert (result.exit_code, result.stderr) == (1, b"Uncaught 2\n")


def test_a_promise_that_never_settles_is_exit_13(run: Run) -> None:
    result = run("console.log('before'); await new Promise(() => {}); console.log('after')")
    assert (result.ending, result.exit_code, result.stdout) == (Ending.FINISHED, 13, b"before\n")
    assert result.stderr == b"Warning: top-level await never settled\n"


@pytest.mark.parametrize(
    "source",
    [
        "for (;;);",
        "for (;;) { try { for (;;); } catch {} finally { continue } }",
        "/(a+)+$/.test('a'.repeat(40) + 'b')",
        "const a = [3, 2, 1]; a.sort(() => { for (;;); })",
        "(async function again() { for (;;) await 0 })()",
        "const again = () => Promise.resolve().then(again); again()",
        "for (;;) { const a = new Array(1e5).fill(0); a.sort() }",
        "for (;;) Math.random()",
        "new Promise(() => { for (;;); })",
        "const o = {toString() { for (;;); }}; `${o}`",
        "console.log(new Date(0)); for (;;) JSON.stringify('x'.repeat(1e5))",
    ],
)
def test_a_program_without_end_ends_at_the_deadline(run: Run, source: str) -> None:
    started = time.monotonic()
    result = run(source, seconds=0.1)
    assert (result.ending, result.exit_code, result.timed_out) == (Ending.DEADLINE, 124, True)
    assert time.monotonic() - started < 60


def test_output_before_the_deadline_is_kept(run: Run) -> None:
    result = run("console.log('so far'); console.error('and'); for (;;);", seconds=0.1)
    assert (result.stdout, result.stderr) == (b"so far\n", b"and\n")


def test_a_deadline_that_has_passed_runs_nothing(run: Run) -> None:
    result = run("console.log(1)", seconds=-1)
    assert (result.ending, result.stdout) == (Ending.DEADLINE, b"")


def test_a_deadline_of_one_run_never_ends_the_next(run: Run) -> None:
    for _ in range(30):
        assert run("for (;;);", seconds=0.006).ending is Ending.DEADLINE
        assert run("console.log(1)").stdout == b"1\n"


@pytest.mark.parametrize(
    "source",
    [
        "const a = []; for (;;) a.push({})",
        "const a = []; for (;;) a.push('x'.repeat(1e6) + a.length)",
        "const m = new Map(); for (let i = 0;; i++) m.set(i, [i])",
        "let a = [1]; for (;;) a = a.concat(a)",
        "let s = 'xy'; for (;;) s = (s + s).split('').join('')",
        "new Array(1e9).fill(1)",
        "new Uint8Array(1e9)",
        "class A extends Array {}; for (let a = new A();;) a.push(new A(1000).fill(0))",
        "await (async () => { const a = []; for (;;) a.push(await {}) })()",
        "let o = {}; for (;;) o = {o}",
        "await Promise.all(Array.from({length: 1e6}, (_, i) => Promise.reject(i)))",
        "'a'.repeat(1e6).replace(/a/g, '$&'.repeat(100))",
    ],
)
def test_a_program_that_memory_ends_is_137(run: Run, source: str) -> None:
    result = run(source)
    assert (result.ending, result.exit_code, result.oom) == (Ending.MEMORY, 137, True)
    assert result.stderr.endswith(b"out of memory\n")


def test_a_failed_allocation_that_the_program_survives_is_its_own_affair(run: Run) -> None:
    source = (
        "let a = []; try { for (;;) a.push(new Uint8Array(1e6)) } catch (e) { a = 0; console.log(e.message) }"
    )
    result = run(source)
    assert (result.ending, result.exit_code, result.stdout) == (Ending.FINISHED, 0, b"out of memory\n")


def test_a_program_cannot_claim_to_be_out_of_memory(run: Run) -> None:
    result = run("throw new InternalError('out of memory')")
    assert (result.ending, result.exit_code) == (Ending.FINISHED, 1)


def test_a_guests_own_137_or_124_cannot_be_made_by_throwing(run: Run) -> None:
    assert run("throw 137").exit_code == 1


def test_doubling_a_string_ends(run: Run) -> None:
    assert run("let s = 'x'; for (;;) s += s").exit_code in {1, 137}


def test_a_lower_memory_limit_holds(run: Run) -> None:
    source = "new Uint8Array(20e6); console.log('fits')"
    assert run(source).stdout == b"fits\n"
    assert run(source, limits=VmLimits(memory_bytes=16 * MIB)).ending is Ending.MEMORY


def test_recursion_is_an_error_that_the_program_can_catch(run: Run) -> None:
    source = "function f() { f() } try { f() } catch (e) { console.log(e instanceof RangeError) }"
    assert run(source).stdout == b"true\n"


@pytest.mark.parametrize(
    "source",
    [
        "JSON.parse('['.repeat(1e6))",
        "JSON.parse('{\"a\":'.repeat(1e6))",
        "eval('('.repeat(1e5))",
        "eval('['.repeat(1e5))",
        "new Function('a => '.repeat(1e5))",
        "new RegExp('('.repeat(1e5))",
        "let a = []; for (let i = 0; i < 1e6; i++) a = [a]; JSON.stringify(a)",
        "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a.flat(Infinity)",
        "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; console.log(String(a))",
        "let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x",
        "let f = () => 0; for (let i = 0; i < 1e5; i++) f = f.bind(null); f()",
        "const f = () => { try { f() } finally { f() } }; f()",
    ],
)
def test_nesting_too_deep_ends_the_run_and_not_the_process(run: Run, source: str) -> None:
    result = run(source, seconds=2)
    assert result.ending in {Ending.FINISHED, Ending.STACK, Ending.DEADLINE, Ending.MEMORY}
    assert run("console.log('alive')").stdout == b"alive\n"


def test_a_stack_trap_is_exit_1_and_says_so(run: Run) -> None:
    result = run("console.log('first'); JSON.parse('['.repeat(1e6))")
    assert (result.ending, result.exit_code, result.stdout) == (Ending.STACK, 1, b"first\n")
    assert result.stderr == b"RangeError: the program nests too deeply\n"


@pytest.mark.parametrize(("method", "stream"), [("log", "stdout"), ("error", "stderr")])
@pytest.mark.parametrize(("size", "truncated"), [(CAP - 1, False), (CAP, False), (CAP + 1, True)])
def test_the_cap_is_exact_to_the_byte(
    run: Run, method: str, stream: str, size: int, truncated: object
) -> None:
    result = run(f"console.{method}('x'.repeat({size - 1}))")
    whole = b"x" * (size - 1) + b"\n"
    assert getattr(result, stream) == whole[:CAP]
    assert getattr(result, f"{stream}_truncated") is truncated
    other = "stderr" if stream == "stdout" else "stdout"
    assert (getattr(result, other), getattr(result, f"{other}_truncated")) == (b"", False)
    assert (result.ending, result.exit_code) == (Ending.FINISHED, 0)


def test_a_program_goes_on_after_the_cap(run: Run) -> None:
    result = run("for (let i = 0; i < 5000; i++) console.log('x'.repeat(99)); console.error('end')")
    assert (result.exit_code, len(result.stdout), result.stderr) == (0, CAP, b"end\n")
    assert (result.stdout_truncated, result.stderr_truncated) == (True, False)


@pytest.mark.parametrize(("size", "ending"), [(16 * CAP, Ending.FINISHED), (16 * CAP + 1, Ending.FLOOD)])
def test_a_flood_begins_beyond_sixteen_caps(run: Run, size: int, ending: Ending) -> None:
    result = run(f"console.log('x'.repeat({size - 1}))")
    assert result.ending is ending
    assert result.exit_code == (153 if ending is Ending.FLOOD else 0)
    assert len(result.stdout) == CAP
    assert result.stdout_truncated


@pytest.mark.parametrize("method", ["log", "error"])
def test_an_endless_flood_is_ended(run: Run, method: str) -> None:
    result = run(f"for (;;) console.{method}('x'.repeat(1000))")
    assert (result.ending, result.exit_code, result.flooded) == (Ending.FLOOD, 153, True)


def test_a_flood_of_empty_lines_is_ended(run: Run) -> None:
    assert run("for (;;) console.log()").ending is Ending.FLOOD


def test_output_arrives_in_order_while_the_program_runs(run: Run) -> None:
    heard: list[tuple[int, bytes]] = []

    def listen(stream: int, data: bytes) -> bool:
        heard.append((stream, data))
        return True

    result = run("for (let i = 0; i < 20000; i++) console.log(i); console.error('e')", on_output=listen)
    assert b"".join(data for stream, data in heard if stream == STDOUT) == result.stdout
    assert b"".join(data for stream, data in heard if stream == STDERR) == b"e\n"
    assert len(heard) > 3


def _refuse(stream: int, data: bytes) -> bool:
    return False


def _break(stream: int, data: bytes) -> bool:
    raise BrokenPipeError


@pytest.mark.parametrize("receiver", [_refuse, _break])
def test_a_receiver_that_is_gone_cancels_the_run(run: Run, receiver: OnOutput) -> None:
    result = run("for (;;) console.log('x'.repeat(100))", on_output=receiver)
    assert (result.ending, result.exit_code) == (Ending.CANCELLED, 130)


def _asked_after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


@pytest.mark.parametrize("watched", [False, True])
def test_a_cancelled_run_ends_like_one_at_its_deadline(run: Run, watched: object) -> None:
    looks = {"on_look": lambda: True} if watched else {}
    source = "console.log('x'.repeat(70_000)); console.error('é'); for (;;);"
    pieces: list[tuple[int, bytes]] = []

    def keep(stream: int, data: bytes) -> bool:
        pieces.append((stream, data))
        return True

    late = run(source, seconds=0.2, **looks)
    ended = run(source, is_cancelled=_asked_after(0.2), on_output=keep, **looks)
    assert (late.ending, ended.ending, ended.exit_code) == (Ending.DEADLINE, Ending.CANCELLED, 130)
    assert (ended.stdout, ended.stderr) == (late.stdout, late.stderr) == (b"x" * CAP, "é\n".encode())
    assert (ended.stdout_truncated, ended.stderr_truncated) == (True, False)
    assert b"".join(data for stream, data in pieces if stream == STDERR) == ended.stderr


def test_whoever_can_no_longer_say_whether_a_run_is_cancelled_has_cancelled_it(run: Run) -> None:
    def gone() -> bool:
        raise ConnectionResetError

    assert run("for (;;);", is_cancelled=gone).ending is Ending.CANCELLED
    assert run("for (;;);", seconds=0.1).ending is Ending.DEADLINE


def test_host_calls_are_counted(run: Run) -> None:
    result = run("for (;;) Date.now()", limits=VmLimits(host_calls=1000))
    assert (result.ending, result.exit_code) == (Ending.HOST_CALLS, 1)
    assert result.stderr == b"the program made too many host calls\n"


def test_waiting_by_the_clock_does_not_use_up_the_host_calls(run: Run) -> None:
    source = "const end = Date.now() + 600; while (Date.now() < end); console.log('waited')"
    assert run(source, limits=VmLimits(host_calls=50_400)).stdout == b"waited\n"


@pytest.mark.parametrize(
    ("source", "stdout"),
    [
        (r"console.log('a\0b')", b"a\0b\n"),
        ("console.log('h\u00e9llo \U0001f600')", "h\u00e9llo \U0001f600\n".encode()),
        (r"console.log('x\ud800y', '\udc00')", "x\ufffdy \ufffd\n".encode()),
        (r"console.log('\ud83d\ude00')", "\U0001f600\n".encode()),
        (r"console.log(['\ud800'])", b"[ '\\ud800' ]\n"),
        (r"console.log('\ud7ff\ue000')", "\ud7ff\ue000\n".encode()),
    ],
)
def test_output_is_utf8_whatever_the_string(run: Run, source: str, stdout: bytes) -> None:
    assert run(source).stdout == stdout


def test_a_thrown_lone_surrogate_is_utf8_too(run: Run) -> None:
    assert run(r"throw new Error('\ud800')").stderr.decode().startswith("Error: \ufffd\n")


def test_nothing_of_a_run_is_found_by_the_next(run: Run) -> None:
    plant = "globalThis.left = 'tenant-' + 'secret'; Array.prototype.left = 1; Math.random = () => 7; a = left.repeat(999)"
    look = """
        const all = [typeof left, [].left, typeof a, Math.random() === 7, Object.keys(globalThis).length];
        console.log(all.join());
    """
    clean = run(look).stdout
    assert clean.startswith(b"undefined,,undefined,false,")
    for _ in range(300):
        run(plant)
        assert run(look).stdout == clean


def test_freshly_allocated_memory_holds_nothing_of_the_previous_run(run: Run) -> None:
    fill = "const a = []; for (let i = 0; i < 40; i++) a.push(new Uint8Array(1e6).fill(0xA5)); 0"
    look = "let n = 0; for (let i = 0; i < 40; i++) n += new Uint8Array(1e6).includes(0xA5); console.log(n)"
    for _ in range(3):
        run(fill)
        assert run(look).stdout == b"0\n"


def test_linear_memory_holds_nothing_of_the_previous_run(engine: Engine, run: Run) -> None:
    needle = os.urandom(16).hex().encode()
    run(b"globalThis.x = '" + needle + b"'.repeat(10000); console.log(x)")
    with engine._fresh(CONFIG.memory_bytes) as vm:
        base, size = vm.memory()
        assert needle not in ctypes.string_at(base, size)


def test_the_first_random_number_is_distinct_in_every_run(run: Run) -> None:
    assert len({run("console.log(Math.random())").stdout for _ in range(1000)}) == 1000


def test_a_seed_decides_the_random_numbers(run: Run) -> None:
    first, again = (run("console.log(Math.random())", seed=b"12345678").stdout for _ in range(2))
    assert first == again != run("console.log(Math.random())", seed=b"12345679").stdout


def test_the_clock_is_the_hosts(code: bytes) -> None:
    with Engine.load(code, CONFIG, wall_clock_ns=lambda: 86_400 * 10**9) as engine:
        engine.start_ticker()
        result = engine.run(
            b"console.log(new Date().toISOString(), Date.now())",
            deadline_ns=time.monotonic_ns() + 10**10,
            seed=bytes(8),
        )
    assert result.stdout == b"1970-01-02T00:00:00.000Z 86400000\n"


def test_the_program_sees_nothing_of_the_host_but_what_it_may_call(run: Run) -> None:
    names = "process, require, std, os, fetch, Deno, print, scriptArgs, WebAssembly, setTimeout"
    source = "console.log(" + ", ".join(f"typeof {name}" for name in names.split(", ")) + ")"
    assert set(run(source).stdout.split()) == {b"undefined"}


def test_the_process_keeps_to_the_memory_cap(run: Run) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    for _ in range(5):
        run("const a = []; for (;;) a.push(new Uint8Array(1e6).fill(1))")
    assert resident() - before < CONFIG.memory_bytes + 8 * MIB


def test_it_works_on_a_thread_with_the_stack_it_asks_for(run: Run) -> None:
    results: list[VmResult] = []
    before = threading.stack_size(THREAD_STACK_BYTES)
    try:
        thread = threading.Thread(target=lambda: results.append(run("JSON.parse('['.repeat(1e6))")))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert results[0].ending is Ending.STACK


FORKING = """
import os, sys, threading, time
from pathlib import Path
from providers.wasm.vm import Engine, EngineConfig

engine = Engine.load(Path(sys.argv[1]).read_bytes(), EngineConfig())
assert len(os.listdir("/proc/self/task") if os.path.exists("/proc/self/task") else [0]) == 1, "a thread before the fork"

def child():
    engine.start_ticker()
    run = lambda source, ns: engine.run(source, deadline_ns=time.monotonic_ns() + ns, seed=os.urandom(8))
    good, late = run(b"console.log(1)", 10**10), run(b"for(;;);", 10**8)
    return 0 if (good.stdout, late.exit_code) == (b"1\\n", 124) else 2

children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        os._exit(child())
    children.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""


def test_it_works_in_forks_of_a_parent_that_has_loaded_it(code: bytes, tmp_path: Path) -> None:
    (tmp_path / "code").write_bytes(code)
    command = [sys.executable, "-c", FORKING, str(tmp_path / "code")]
    root = Path(capi.__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_needs_the_ticker(code: bytes) -> None:
    with Engine.load(code, CONFIG) as engine, pytest.raises(RuntimeError, match="ticker"):
        engine.run(b"1", deadline_ns=time.monotonic_ns() + 10**9, seed=bytes(8))


def test_an_engine_runs_one_program_at_a_time(engine: Engine, run: Run) -> None:
    def again(stream: int, data: bytes) -> bool:
        with pytest.raises(RuntimeError, match="one program"):
            run("1")
        return True

    assert run("console.log(1)", on_output=again).exit_code == 0


@pytest.mark.parametrize(
    "options",
    [
        {"seed": b"short"},
        {"limits": VmLimits(memory_bytes=CONFIG.memory_bytes + 1)},
        {"limits": VmLimits(memory_bytes=MIB)},
    ],
)
def test_a_callers_mistake_is_told_to_the_caller(run: Run, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"seed|memory"):
        run("1", **options)


def test_a_module_that_wants_more_than_the_host_offers_is_refused() -> None:
    for room, name in (("wasi_snapshot_preview1", "fd_write"), ("host", "open")):
        kind = b"\x01\x04\x01\x60\x00\x00"
        entry = b"".join(bytes([len(part)]) + part.encode() for part in (room, name)) + b"\x00\x00"
        section = b"\x02" + bytes([len(entry) + 1]) + b"\x01" + entry
        greedy = compile_module(b"\0asm\x01\0\0\0" + kind + section, CONFIG)
        with pytest.raises(GuestRefused, match=f"{room}.{name}"):
            Engine.load(greedy, CONFIG)


def test_a_module_without_our_exports_is_refused() -> None:
    with pytest.raises(capi.CApiError, match="lacks an export"):
        Engine.load(compile_module(b"\0asm\x01\0\0\0", CONFIG), CONFIG)


def test_bytes_that_are_no_module_are_refused() -> None:
    with pytest.raises(capi.CApiError):
        Engine.load(b"not machine code", CONFIG)


def test_every_ending_has_an_exit_code() -> None:
    assert set(EXIT_CODES) == set(Ending) - {Ending.FINISHED}
