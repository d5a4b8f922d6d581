"""A VM that was made before its run, and a result that is told before the VM is gone: neither changes what a run is."""

import os
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from providers.wasm.guest import load
from providers.wasm.vm import MIB, Ending, Engine, EngineConfig, VmLimits, VmResult, compile_module

pytestmark = pytest.mark.component("wasm")

CONFIG = EngineConfig()
LESS = VmLimits(memory_bytes=16 * MIB)
BOMB = "const a = []; for (;;) a.push(new Uint8Array(1e6).fill(1))"

Run: TypeAlias = Callable[..., VmResult]


@pytest.fixture(name="run")
def _run(engine: Engine) -> Run:
    def run(
        source: str, *, seconds: float = 20, prepared: int = CONFIG.memory_bytes, **options: Any
    ) -> VmResult:
        engine.prepare(prepared)
        deadline_ns = time.monotonic_ns() + int(seconds * 1e9)
        return engine.run(source.encode(), deadline_ns=deadline_ns, seed=os.urandom(8), **options)

    return run


def test_every_run_finds_a_fresh_vm(run: Run) -> None:
    for _ in range(3):
        assert run("console.log(typeof x); globalThis.x = 1").stdout == b"undefined\n"


def test_the_seed_is_the_runs_own(run: Run) -> None:
    assert len({run("console.log(Math.random())").stdout for _ in range(100)}) == 100


def test_a_deadline_is_met_however_long_the_vm_waited(engine: Engine, run: Run) -> None:
    assert run("for (;;);", seconds=0.05).ending is Ending.DEADLINE
    engine.prepare(CONFIG.memory_bytes)
    time.sleep(0.2)
    began = time.monotonic()
    assert run("for (;;);", seconds=0.1).ending is Ending.DEADLINE
    assert 0.1 <= time.monotonic() - began < 60
    assert run("let n = 0; for (let i = 0; i < 1e5; i++) n += i; console.log(n)").exit_code == 0


def test_the_limit_is_the_runs_own(run: Run) -> None:
    large = "new Uint8Array(24e6).fill(1); console.log('kept')"
    assert run(large).stdout == b"kept\n"
    assert run(large, limits=LESS).stdout == b""
    assert run(large, prepared=LESS.memory_bytes).stdout == b"kept\n"


def test_an_engine_can_be_closed_with_a_vm_that_nobody_used(engine: Engine) -> None:
    with Engine.load(compile_module(load(), CONFIG), CONFIG) as other:
        for _ in range(3):
            other.prepare(CONFIG.memory_bytes)
    assert engine is not other


@pytest.mark.parametrize("source", ["console.log(1)", BOMB, "for (;;);", "throw new Error('x')"])
def test_the_result_is_told_once_before_the_run_returns(run: Run, source: str) -> None:
    told: list[VmResult] = []
    result = run(source, seconds=0.3, on_end=told.append)
    assert told == [result]


def test_whoever_is_told_may_fail(run: Run) -> None:
    def fail(_: VmResult) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        run("console.log(1)", on_end=fail)
    assert run("console.log(1)").stdout == b"1\n"
