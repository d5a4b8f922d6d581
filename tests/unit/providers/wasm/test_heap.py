"""The guest's heap: a program gets nearly all of its memory, whatever it does with it, and what it is given is its own."""

import os
import time
from collections.abc import Callable
from typing import TypeAlias

import pytest

from providers.wasm.vm import Ending, Engine, VmResult

pytestmark = pytest.mark.component("wasm")

Run: TypeAlias = Callable[[str], VmResult]


@pytest.fixture(name="run")
def _run(engine: Engine) -> Run:
    def run(source: str) -> VmResult:
        deadline = time.monotonic_ns() + int(60e9)
        return engine.run(source.encode(), deadline_ns=deadline, seed=os.urandom(8))

    return run


@pytest.mark.parametrize(
    ("kib", "least"), [(1, 50), (3, 55), (64, 60), (100, 60), (1024, 60), (1025, 60), (4096, 56)]
)
def test_blocks_of_any_size_fill_the_memory(run: Run, kib: int, least: int) -> None:
    code = f"""
    const held = [];
    try {{ for (;;) held.push(new Uint8Array({kib} * 1024)); }} catch {{}}
    const count = held.length; held.length = 0; console.log(count)"""
    result = run(code)
    assert (result.ending, result.exit_code) == (Ending.FINISHED, 0), result
    assert int(result.stdout) * kib >= least * 1024


def test_an_array_that_grows_by_and_by_gets_most_of_it(run: Run) -> None:
    code = (
        "const a = []; try { for (;;) a.push(1.5) } catch {} const n = a.length; a.length = 0; console.log(n)"
    )
    assert int(run(code).stdout) * 16 >= 40 << 20


def test_what_is_given_back_is_given_out_again_in_any_size(run: Run) -> None:
    code = """
    for (const kib of [2000, 3, 700, 64, 1, 15000]) {
        for (let round = 0; round < 3; round++) {
            let held = [];
            for (let n = 0; n < 40 * 1024 / kib; n++) held.push(new Uint8Array(kib * 1024));
            held = null;
        }
    }
    console.log('through')"""
    assert run(code).stdout == b"through\n"


def test_blocks_never_overlap_and_keep_what_was_written(run: Run) -> None:
    code = """
    let seed = 12345;
    const random = (below) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % below;
    const held = new Map();
    for (let step = 0; step < 6000; step++) {
        const at = random(400);
        if (held.has(at)) {
            const [mark, bytes] = held.get(at);
            if (!bytes.every((each) => each === mark)) throw new Error(`block ${at} at ${step}`);
            held.delete(at);
            if (random(3)) continue;
        }
        const size = random(8) ? random(600) : random(9000);
        const bytes = new Uint8Array(size);
        if (bytes.some((each) => each)) throw new Error('not empty');
        held.set(at, [random(255) + 1, bytes]);
        bytes.fill(held.get(at)[0]);
    }
    let text = '';
    for (let n = 0; n < 200000; n++) text += 'ab';
    console.log(text.length, held.size > 0)"""
    result = run(code)
    assert (result.ending, result.stdout, result.stderr) == (Ending.FINISHED, b"400000 true\n", b"")


def test_a_resized_buffer_keeps_its_head(run: Run) -> None:
    code = """
    const parts = [];
    for (let n = 1; n < 3000; n++) { parts.push('x'.repeat(n % 50) + n); if (n % 7 == 0) parts.shift(); }
    const joined = parts.join(',');
    const list = []; for (let n = 0; n < 300000; n++) list.push(n);
    console.log(list.every((each, n) => each === n), joined.endsWith('2999'))"""
    assert run(code).stdout == b"true true\n"


def test_a_message_that_a_program_made_empty_is_an_error_it_can_catch(engine: Engine) -> None:
    code = """
    JSON.stringify = () => '';
    try { await host.call('GET', '/'); console.log('no error') } catch (error) { console.log(error.message) }"""
    asked: list[bytes] = []
    deadline = time.monotonic_ns() + int(60e9)
    result = engine.run(code.encode(), deadline_ns=deadline, seed=bytes(8), on_call=asked.append)
    assert (result.ending, result.stdout, asked) == (
        Ending.FINISHED,
        b"host.call: the message is empty\n",
        [],
    )
