"""The library against the service itself, started by the library: every check holds on a real answer."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import plimsoll
from plimsoll.contract.refusals import Reason

pytestmark = pytest.mark.component("wasm")


@pytest.fixture(scope="module")
def service() -> Iterator[plimsoll.LocalService]:
    started = plimsoll.local().start()
    yield started
    started.close()


@pytest.fixture
def sandbox(service: plimsoll.LocalService) -> Iterator[plimsoll.Client]:
    with service.client() as client:
        yield client


def test_a_run_its_record_and_its_evidence(sandbox: plimsoll.Client) -> None:
    run = sandbox.run_javascript("console.log(6 * 7); console.error('x')", floor="process", timeout=5)
    assert (run.stdout, run.stderr, run.ok) == (b"42\n", b"x\n", True)
    assert sandbox.record(run.id) == run.record
    assert sandbox.get_run(run.id).record is not None
    assert run.id in {view.id for view in sandbox.runs(limit=10).runs}
    assert sandbox.evidence(run.evidence_sha256).tier is run.isolation


def test_a_failing_program_is_a_result(sandbox: plimsoll.Client) -> None:
    run = sandbox.run_javascript("throw new Error('no')")
    assert run.exit_code != 0
    assert b"no" in run.stderr


def test_a_deadline_is_a_result(sandbox: plimsoll.Client) -> None:
    run = sandbox.run_javascript("for (;;) {}", timeout=0.2)
    assert (run.exit_code, run.timed_out) == (124, True)


def test_refusals_are_marked(sandbox: plimsoll.Client) -> None:
    with pytest.raises(plimsoll.InsufficientIsolation) as isolation:
        sandbox.run_javascript("1", floor="vm")
    assert isolation.value.not_dispatched is Reason.ISOLATION
    with pytest.raises(plimsoll.Unsupported) as unsupported:
        sandbox.run_python("print(1)")
    assert unsupported.value.not_dispatched is Reason.UNSUPPORTED
    with pytest.raises(plimsoll.NotFound):
        sandbox.get_run("0" * 32)


def test_many_at_once(service: plimsoll.LocalService) -> None:
    async def main() -> list[plimsoll.Run]:
        async with service.async_client() as sandbox:
            return await asyncio.gather(
                *(sandbox.run_javascript(f"console.log({number})") for number in range(16))
            )

    runs = asyncio.run(main())
    assert [run.text for run in runs] == [f"{number}\n" for number in range(16)]
    assert len({run.instance for run in runs}) == 16


RANDOM = "console.log(Math.random())"


def test_a_keyed_retry_is_the_same_run_byte_for_byte(service: plimsoll.LocalService) -> None:
    with service.client() as one, service.client() as other:
        runs = [client.run_javascript(RANDOM, idempotency_key="real-1") for client in (one, one, other)]
        plain = one.run_javascript(RANDOM)
        assert {run.stdout for run in runs} == {runs[0].stdout} != {plain.stdout}
        assert {run.record for run in runs} == {runs[0].record}
        with other.stream_javascript(RANDOM, idempotency_key="real-1") as stream:
            output = b"".join(event.data for event in stream if isinstance(event, plimsoll.Output))
        assert output == stream.result.stdout == runs[0].stdout
        assert other.start_javascript(RANDOM, idempotency_key="real-1").wait().record == runs[0].record
        with pytest.raises(plimsoll.KeyConflict) as conflict:
            one.run_javascript("1", idempotency_key="real-1")
        assert conflict.value.not_dispatched is Reason.REQUEST


def test_a_run_for_later_is_waited_for_and_cancelled(sandbox: plimsoll.Client) -> None:
    handle = sandbox.start_javascript("console.log(6 * 7)", floor="process")
    run = handle.wait(30)
    assert (run.id, run.text, run.isolation) == (handle.id, "42\n", plimsoll.Tier.PROCESS)
    assert handle.wait().record == run.record == sandbox.record(handle.id)
    assert (handle.cancel(), handle.view().state) == ("already_finished", "finished")
    assert sandbox.wait_run(handle.id).result is not None

    endless = sandbox.start_javascript("for (;;);", idempotency_key="real-2")
    with pytest.raises(plimsoll.RunPending) as waited:
        endless.wait(0)
    with pytest.raises(plimsoll.RunPending) as again:
        sandbox.run_javascript("for (;;);", idempotency_key="real-2")
    for pending in (waited.value, again.value):
        assert (pending.run_id, pending.not_dispatched) == (endless.id, None)
    assert endless.cancel() == "cancelled"
    assert (endless.wait().exit_code, endless.wait().cancelled) == (130, True)
    with pytest.raises(plimsoll.InsufficientIsolation) as refused:
        sandbox.start_javascript("1", floor="vm")
    assert refused.value.not_dispatched is Reason.ISOLATION


SLOW = "console.log('one'); const t = Date.now(); while (Date.now() - t < 500); console.error('\u00fc'.repeat(5))"


def test_a_stream_says_the_wall_and_gives_output_before_the_end(sandbox: plimsoll.Client) -> None:
    at: dict[object, float] = {}
    with sandbox.stream_javascript(SLOW, floor="process") as stream:
        for event in stream:
            at[event] = time.monotonic()
    first, *outputs = at
    assert isinstance(first, plimsoll.Accepted)
    assert first.isolation is plimsoll.Tier.PROCESS
    assert outputs == [
        plimsoll.Output("stdout", b"one\n"),
        plimsoll.Output("stderr", "\u00fc".encode() * 5 + b"\n"),
    ]
    assert at[outputs[1]] - at[outputs[0]] > 0.3
    assert (stream.result.text, stream.result.id) == ("one\n", first.id)
    with pytest.raises(plimsoll.InsufficientIsolation) as refused, sandbox.stream_javascript("1", floor="vm"):
        pass
    assert refused.value.not_dispatched is Reason.ISOLATION


def test_a_stream_over_the_cap_and_of_bytes_that_are_no_text(sandbox: plimsoll.Client) -> None:
    with sandbox.stream_javascript("console.log('\\u0001'.repeat(70000)); console.log('x')") as stream:
        output = b"".join(event.data for event in stream if isinstance(event, plimsoll.Output))
    assert (len(output), stream.result.stdout_truncated) == (65536, True)
    assert stream.result.stdout == output


async def test_leaving_a_stream_cancels_its_run(service: plimsoll.LocalService) -> None:
    async with service.async_client() as sandbox:
        async with sandbox.stream_javascript("console.log(1); for (;;);") as stream:
            async for event in stream:
                if isinstance(event, plimsoll.Output):
                    break
        assert stream.accepted is not None
        view = await sandbox.wait_run(stream.accepted.id, 10)
    assert (view.exit_code, view.cancelled, view.result) == (130, True, None)


async def test_streams_and_handles_of_the_async_client(service: plimsoll.LocalService) -> None:
    async with service.async_client() as sandbox:
        handles = await asyncio.gather(*(sandbox.start_javascript(f"console.log({n})") for n in range(4)))
        runs = await asyncio.gather(*(handle.wait() for handle in handles))
        assert [run.text for run in runs] == ["0\n", "1\n", "2\n", "3\n"]
        async with sandbox.stream_javascript("console.log(1)", floor="process") as stream:
            assert [type(event) async for event in stream] == [plimsoll.Accepted, plimsoll.Output]
        assert stream.result.ok


def test_a_program_that_is_killed_leaves_no_kept_output_behind(tmp_path: Path) -> None:
    """The service of a program that was killed ends by itself and removes the directory that was made for it."""
    program = (
        "import os, plimsoll\n"
        "with plimsoll.local() as sandbox:\n"
        "    sandbox.run_javascript('console.log(\"kept-canary\")', idempotency_key='k')\n"
        "    print('ran', flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (-9, b"ran\n")
    until = time.monotonic() + 20
    while list(tmp_path.iterdir()):
        assert time.monotonic() < until, list(tmp_path.iterdir())
        time.sleep(0.05)
