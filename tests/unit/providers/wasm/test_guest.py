"""The guest is the one that was released, comes from the inputs that are committed, and prints as Node does."""

import ctypes
import hashlib
import platform
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from providers.wasm import capi, guest
from providers.wasm.guest import build, pins
from providers.wasm.vm import Ending, Engine, EngineConfig, VmResult

CONFIG = EngineConfig()

Printed: TypeAlias = Callable[[str], str]


@pytest.fixture(name="printed")
def _printed(engine: Engine) -> Printed:
    def printed(source: str) -> str:
        deadline = time.monotonic_ns() + 20 * 10**9
        result = engine.run(source.encode(), deadline_ns=deadline, seed=bytes(8))
        assert (result.exit_code, result.stderr) == (0, b"")
        return result.stdout.decode()

    return printed


def test_the_committed_guest_has_the_hash_in_the_code() -> None:
    assert hashlib.sha256(guest.WASM.read_bytes()).hexdigest() == pins.WASM_SHA256


def test_another_guest_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "quickjs.wasm"
    other.write_bytes(guest.WASM.read_bytes() + b"\0")
    with pytest.raises(guest.GuestRefused, match="SHA-256"):
        guest.load(other)


def test_the_guest_was_built_from_the_inputs_that_are_committed() -> None:
    assert build.inputs_sha256() == pins.INPUTS_SHA256, "run: python providers/wasm/guest/build.py --write"


def test_the_guest_imports_four_host_functions_and_nothing_else() -> None:
    engine = CONFIG.new_engine()
    module = capi.compile_module(engine, guest.load())
    assert set(capi.imports(module)) == {("host", name) for name in ("call", "take", "flush", "now")}
    capi.delete_module(module)
    capi.delete_engine(engine)


def test_the_lock_pins_every_input_by_hash() -> None:
    tools, sources = build.lock_blocks()
    assert sources.startswith("quickjs-ng==")
    assert "ziglang==" in tools
    assert all("--hash=sha256:" in part for part in (tools, sources))


def test_a_pre_initialiser_with_other_bytes_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = (sys.platform, platform.machine())
    monkeypatch.setitem(build.WIZER, system, ("linux-x64", "another"))

    def pack(work: Path, *command: object, **extra: str) -> None:
        (work / f"bytecodealliance-wizer-linux-x64-{build.WIZER_VERSION}.tgz").write_bytes(b"x")

    monkeypatch.setattr(build, "run", pack)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    with pytest.raises(build.CannotBuild, match="pinned"):
        build.fetch_wizer(tmp_path)


PRINTED = {
    "'a', 1, true": "a 1 true",
    "": "",
    "null, undefined, -0, 10n, Symbol('s')": "null undefined -0 10n Symbol(s)",
    "[1, 'a', [], {}]": "[ 1, 'a', [], {} ]",
    "{a: 1, 'b-c': 'x', [Symbol('k')]: null}": "{ a: 1, 'b-c': 'x', [Symbol(k)]: null }",
    "[1,,,2]": "[ 1, <2 empty items>, 2 ]",
    "[,'a']": "[ <1 empty item>, 'a' ]",
    "new Array(4e9)": "[ <4000000000 empty items> ]",
    "Object.assign([], {4294967294: 1, 5000: 2, x: 3})": "[ <5000 empty items>, 2, <4294962293 empty items>, 1, x: 3 ]",
    "[\"it's\", 'a\"b', 'a\\nb']": "[ \"it's\", 'a\"b', 'a\\nb' ]",
    "{a: {b: {c: {}}}}": "{ a: { b: { c: {} } } }",
    "{a: {b: {c: {d: 1}}}}": "{ a: { b: { c: [Object] } } }",
    "[[[[1]]]]": "[ [ [ [Array] ] ] ]",
    "(() => { const o = {}; o.self = o; return o })()": "<ref *1> { self: [Circular *1] }",
    "new (class Foo { x = 1 })": "Foo { x: 1 }",
    "Object.create(null)": "[Object: null prototype] {}",
    "new Map([['a', {b: 1}]]), new Set([1, 'x'])": "Map(1) { 'a' => { b: 1 } } Set(2) { 1, 'x' }",
    "() => 1, function f() {}, class A {}": "[Function (anonymous)] [Function: f] [class A]",
    "async function g() {}": "[AsyncFunction: g]",
    "new Date(0), new Date(NaN), /a\\/b/gi": "1970-01-01T00:00:00.000Z Invalid Date /a\\/b/gi",
    "Promise.resolve(4), new Promise(() => {})": "Promise { 4 } Promise { <pending> }",
    "new Uint8Array(3), new ArrayBuffer(2)": "Uint8Array(3) [ 0, 0, 0 ] ArrayBuffer { byteLength: 2 }",
    "new Number(3), Object('s')": "[Number: 3] [String: 's']",
    "{get a() { throw 1 }, set b(v) {}}": "{ a: [Getter], b: [Setter] }",
    "new Proxy({}, {get() { throw 1 }})": "[Proxy]",
    "'%s is %d%% and %j', 'x', 5.5, {a: 1}, 'more'": 'x is 5.5% and {"a":1} more',
    "'%i %f %o %c|', 5.5, '2.5', [1], 'css'": "5 2.5 [ 1 ] |",
    "'%s', {a: 1}": "{ a: 1 }",
    "'100%', 1": "100% 1",
    "'%s %s', 'only'": "only %s",
    "{a: undefined, f() {}}": "{ a: undefined, f: [Function: f] }",
}


@pytest.mark.component("wasm")
@pytest.mark.parametrize("values", PRINTED)
def test_the_console_prints_values_readably(printed: Printed, values: str) -> None:
    assert printed(f"console.log({values})") == f"{PRINTED[values]}\n"


@pytest.mark.component("wasm")
def test_what_is_long_is_broken_into_lines(printed: Printed) -> None:
    source = "console.log({first: 'a'.repeat(40), second: 'b'.repeat(40), third: {x: 1}})"
    a, b = "a" * 40, "b" * 40
    assert printed(source) == f"{{\n  first: '{a}',\n  second: '{b}',\n  third: {{ x: 1 }}\n}}\n"


@pytest.mark.component("wasm")
def test_a_long_array_shows_its_first_hundred_items(printed: Printed) -> None:
    text = printed("console.log(Array.from({length: 1000}, (_, i) => i))")
    assert text.startswith("[\n  0, 1, 2,")
    assert text.endswith("98, 99, ... 900 more items\n]\n")


@pytest.mark.component("wasm")
def test_an_error_is_printed_with_its_stack_and_its_cause(printed: Printed) -> None:
    text = printed("console.log(new Error('outer', {cause: new TypeError('inner')}))")
    assert text.startswith("Error: outer\n    at ")
    assert "[cause]: TypeError: inner" in text


@pytest.mark.component("wasm")
def test_an_error_class_of_the_program_shows_what_it_adds(printed: Printed) -> None:
    text = printed("class Odd extends Error { name = 'Odd'; code = 7 } console.log(new Odd('why'))")
    assert text.startswith("Odd: why\n    at ")
    assert text.endswith(" { code: 7 }\n")


@pytest.mark.component("wasm")
def test_performance_now_counts_from_its_first_reading(printed: Printed) -> None:
    text = printed("const a = performance.now(), b = performance.now(); console.log(a, b >= a, b < 10_000)")
    assert text == "0 true true\n"


@pytest.mark.component("wasm")
def test_replaced_built_ins_do_not_change_what_is_printed(printed: Printed) -> None:
    source = """
        Array.prototype.push = Array.prototype.join = String.prototype.slice = JSON.stringify = () => { throw 1 };
        Reflect.ownKeys = Object.is = Map.prototype.forEach = () => { throw 2 };
        console.log({a: ['x', -0]}, new Map([[1, 2]]), "%s".length);
    """
    assert printed(source) == "{ a: [ 'x', -0 ] } Map(1) { 1 => 2 } 2\n"


@pytest.mark.component("wasm")
@pytest.mark.parametrize(
    ("method", "stream"),
    [
        *((name, "stdout") for name in ("log", "info", "debug", "dir")),
        *((name, "stderr") for name in ("warn", "error", "trace")),
    ],
)
def test_each_console_method_has_its_stream(engine: Engine, method: str, stream: str) -> None:
    result = engine.run(
        f"console.{method}('x')".encode(), deadline_ns=time.monotonic_ns() + 10**10, seed=bytes(8)
    )
    assert getattr(result, stream).strip(b"'") in {b"x\n", b"x'\n"}


STACK_BYTES = 1 << 20
"""The guest's own stack, at the bottom of its memory (-z stack-size in build.py). JavaScript is stopped at half of it."""


@pytest.mark.component("wasm")
@pytest.mark.parametrize(
    "source",
    [
        "function f() { f() } f()",
        "function f() { f.apply(null, new Array(1000)) } f()",
        "const f = () => [1, 2, 3].sort(f); f()",
        "const f = () => 'aa'.replace(/a/g, f); f()",
        "const o = { toJSON() { return JSON.stringify(o) } }; JSON.stringify(o)",
        "const o = { valueOf() { return new Date(o) } }; new Date(o)",
        "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x",
        "function* g() { yield* g() } [...g()]",
        "new RegExp('(?='.repeat(3e4) + 'a' + ')'.repeat(3e4))",
        "new RegExp('['.repeat(1e5) + ']'.repeat(1e5), 'v')",
        "eval('{'.repeat(1e5))",
        "eval('1?'.repeat(1e5) + '1')",
        "JSON.parse('['.repeat(1e6))",
        "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a.flat(Infinity)",
    ],
)
def test_no_recursion_gets_near_the_end_of_the_guests_own_stack(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    deepest: list[int] = []
    conclude = Engine._conclude

    def measured(self: Engine, vm: capi.Instance, *rest: Any) -> VmResult:
        base, _ = vm.memory()
        deepest.append(len(ctypes.string_at(base, STACK_BYTES).lstrip(b"\0")))
        return conclude(self, vm, *rest)

    monkeypatch.setattr(Engine, "_conclude", measured)
    result = engine.run(source.encode(), deadline_ns=time.monotonic_ns() + 20 * 10**9, seed=bytes(8))
    assert result.exit_code == 1
    assert result.ending in {Ending.FINISHED, Ending.STACK}
    assert 0 < deepest[0] < STACK_BYTES * 5 // 8


@pytest.mark.component("wasm")
def test_the_image_is_kept_whole_for_the_next_run(engine: Engine) -> None:
    assert engine._layout.least_memory <= CONFIG.keep_resident_bytes
    assert STACK_BYTES < engine._layout.io < engine._layout.least_memory
    assert f"stack-size={STACK_BYTES}" in " ".join(build.FLAGS)


@pytest.mark.component("wasm")
def test_the_language_is_a_current_one(printed: Printed) -> None:
    source = """
        const grouped = Object.groupBy([1, 2, 3], (n) => n % 2 ? 'odd' : 'even');
        const { promise, resolve } = Promise.withResolvers();
        queueMicrotask(() => resolve([1, 2, 3].toSorted((a, b) => b - a).at(-1)));
        console.log(grouped.odd, await promise, /(?<y>\\d{4})/u.exec('in 2024').groups.y, 2n ** 64n);
    """
    assert printed(source) == "[ 1, 3 ] 1 2024 18446744073709551616n\n"
