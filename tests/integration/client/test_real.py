"""The library against the service itself, started by the library: every check holds on a real answer."""

import asyncio
from collections.abc import Iterator

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
