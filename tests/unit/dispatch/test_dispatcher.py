"""One run over fakes: every way it can end, and what the row, the answer and the mark then say."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from app.dispatch.attempt import Cancel
from app.dispatch.killpoints import KillPoint
from app.dispatch.settler import Settler
from app.identity import Caller, Scope
from app.store.values import State, StoreUnavailable
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused
from plimsoll.contract.requests import File, Kind, Project, RunRequest
from plimsoll.contract.results import Artifact, Outcome, ProjectResult, StepResult
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import (
    Broken,
    Environment,
    Event,
    NotSent,
    Out,
    RunState,
    StepEnded,
    TicketRefused,
    WorkerLost,
    WorkerSilent,
)
from plimsoll.records import Stated, check_answer
from tests.support.fakes import (
    BOOT,
    CALLER,
    EVIDENCE,
    NOW_MS,
    Bench,
    FakeMember,
    FakeWorker,
    Script,
    accepted,
    ended,
    info,
    javascript,
    script_of,
)

RUN = f"{1:032x}"


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Settler() as settler:
        yield Bench(settler)


async def refusal_of(bench: Bench, **request: object) -> Refusal:
    with pytest.raises(Refused) as caught:
        await bench.dispatcher().run(CALLER, javascript(**request), Cancel())  # type: ignore[arg-type]
    return caught.value.refusal


async def settled(bench: Bench) -> None:
    for _ in range(200):
        if not bench.settler.waiting:
            return
        await asyncio.sleep(0.01)


async def test_a_run_is_committed_before_it_starts_and_its_record_holds(bench: Bench) -> None:
    request = javascript("console.log('hello')", minimum_isolation=Tier.PROCESS, timeout_ms=500)
    run = await bench.dispatcher().run(CALLER, request, Cancel())
    stated = Stated("wasm", "process", "guest:1", "software:1", "wasm-vm:" + "1" * 32)
    assert check_answer(request, run.result, run.record, stated) == ()
    assert (script_of(run).stdout, run.recorded, run.tier) == (b"hello\n", True, Tier.PROCESS)
    assert bench.runs.rows == {RUN: State.FINISHED}
    assert [audit.event for audit in bench.runs.audits] == ["run.finished"]
    assert EVIDENCE in bench.evidence.kept


async def test_every_kill_point_is_passed_once_in_order(bench: Bench) -> None:
    await bench.dispatcher().run(CALLER, javascript(), Cancel())
    assert bench.passed == list(KillPoint)


async def test_a_caller_without_the_scope_is_refused_before_anything_else(bench: Bench) -> None:
    reader = Caller("d" * 32, "reader", frozenset({Scope.READ_RECORDS, Scope.ADMIN}))
    with pytest.raises(Refused) as caught:
        await bench.dispatcher().run(reader, javascript(), Cancel())
    assert caught.value.refusal.reason is Reason.PERMISSION
    assert bench.members[0].worker.calls == []


async def test_a_floor_refused_reserves_nothing_and_writes_nothing(bench: Bench) -> None:
    assert (await refusal_of(bench, minimum_isolation=Tier.KERNEL)).reason is Reason.ISOLATION
    assert (bench.members[0].worker.calls, bench.runs.rows) == ([], {})


async def test_a_floor_that_cannot_be_met_is_isolation_even_when_the_service_is_full(bench: Bench) -> None:
    bench.total = 0
    assert (await refusal_of(bench, minimum_isolation=Tier.KERNEL)).reason is Reason.ISOLATION
    assert (await refusal_of(bench)).reason is Reason.CAPACITY


async def test_a_draining_service_takes_no_run(bench: Bench) -> None:
    dispatcher = bench.dispatcher()
    dispatcher.drain()
    with pytest.raises(Refused) as caught:
        await dispatcher.run(CALLER, javascript(), Cancel())
    assert (caught.value.refusal.code, caught.value.refusal.reason) == (Code.DRAINING, Reason.ENVIRONMENT)


async def test_a_full_worker_is_capacity_and_no_row_is_written(bench: Bench) -> None:
    full = Refusal(Code.CAPACITY, "no slot", Reason.CAPACITY, retry_after_s=1)
    bench.members[0].worker.refusal = full
    assert await refusal_of(bench) == full
    assert bench.runs.rows == {}


async def test_of_several_that_refuse_the_full_one_names_the_reason(bench: Bench) -> None:
    """It met the floor; that the next one's wall fell meanwhile does not change that."""
    full = Refusal(Code.CAPACITY, "no slot", Reason.CAPACITY, retry_after_s=1)
    fallen = Refusal(Code.ISOLATION_UNMET, "The wall fell.", Reason.ISOLATION)
    bench.members = [
        FakeMember(FakeWorker(now=info(provider=name), refusal=refusal), provider=name)
        for name, refusal in (("wasm", full), ("wasm@other", fallen))
    ]
    assert await refusal_of(bench, minimum_isolation=Tier.PROCESS) == full
    assert [each.worker.calls for each in bench.members] == [["reserve"], ["reserve"]]


async def test_a_full_worker_never_sends_a_run_to_a_weaker_wall(bench: Bench) -> None:
    full = Refusal(Code.CAPACITY, "no slot", Reason.CAPACITY, retry_after_s=1)
    strong = FakeWorker(now=info(provider="docker@runsc", tier=Tier.KERNEL), refusal=full)
    bench.members = [FakeMember(strong, provider="docker@runsc"), FakeMember()]
    assert await refusal_of(bench) == full
    assert bench.members[1].worker.calls == []


async def test_a_worker_lost_at_reserve_is_skipped_for_the_next_equal_one(bench: Bench) -> None:
    bench.members = [FakeMember(FakeWorker(refusal=WorkerLost())), FakeMember(provider="wasm2")]
    bench.members[1].worker.now = info(provider="wasm2")
    refusal = await refusal_of(bench)  # a second wasm has no ceiling in service, so it proves nothing
    assert refusal.reason is Reason.ENVIRONMENT
    assert bench.runs.rows == {}


async def test_a_ticket_below_the_floor_is_not_used(bench: Bench) -> None:
    """The tier fell between choice and reservation."""
    worker = bench.members[0].worker
    dispatcher = bench.dispatcher()
    candidates = dispatcher.candidates()
    worker.now = info(tier=Tier.NONE)
    dispatcher.candidates = lambda: candidates  # type: ignore[method-assign]
    with pytest.raises(Refused) as caught:
        await dispatcher.run(CALLER, javascript(minimum_isolation=Tier.PROCESS), Cancel())
    assert caught.value.refusal.reason is Reason.ENVIRONMENT
    assert "start" not in worker.calls


async def test_a_database_that_is_down_before_the_commit_starts_nothing(bench: Bench) -> None:
    bench.runs.fail["insert"] = StoreUnavailable("not_committed")
    refusal = await refusal_of(bench)
    assert (refusal.code, refusal.reason) == (Code.UNAVAILABLE, Reason.ENVIRONMENT)
    assert bench.members[0].worker.calls == ["reserve", "void"]


async def test_an_unknown_commit_starts_nothing_and_is_settled_as_not_dispatched(bench: Bench) -> None:
    bench.runs.fail["insert"] = StoreUnavailable("unknown")
    bench.runs.rows[RUN] = State.STARTING  # the commit had happened after all
    assert (await refusal_of(bench)).reason is Reason.ENVIRONMENT
    await settled(bench)
    assert bench.runs.rows == {RUN: State.NOT_DISPATCHED}
    assert "start" not in bench.members[0].worker.calls


async def test_evidence_that_cannot_be_kept_starts_nothing(bench: Bench) -> None:
    bench.evidence.fail = StoreUnavailable("not_committed")
    assert (await refusal_of(bench)).reason is Reason.ENVIRONMENT
    assert bench.runs.rows == {}


@pytest.mark.parametrize("proof", [NotSent(), TicketRefused("expired")])
async def test_what_the_worker_proves_never_started_is_marked(bench: Bench, proof: Exception) -> None:
    bench.members[0].worker.script = (proof,)
    refusal = await refusal_of(bench)
    assert (refusal.reason, refusal.run_id) == (Reason.ENVIRONMENT, RUN)
    assert bench.runs.rows == {RUN: State.NOT_DISPATCHED}


@pytest.mark.parametrize("state", ["unknown", "void"])
async def test_silence_and_a_fence_that_holds_is_marked(bench: Bench, state: str) -> None:
    worker = bench.members[0].worker
    worker.script, worker.state = (WorkerLost(),), RunState(RUN, BOOT, state)  # type: ignore[arg-type]
    assert (await refusal_of(bench)).reason is Reason.ENVIRONMENT
    assert bench.runs.rows == {RUN: State.NOT_DISPATCHED}


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ((WorkerLost(),), WorkerLost()),
        ((accepted(), WorkerLost()), WorkerLost()),
        ((accepted(), Out("stdout", b"x"), WorkerLost()), RunState(RUN, "another boot", "unknown")),
        ((accepted(), Broken("runner_died")), None),
        ((WorkerLost(),), RunState(RUN, BOOT, "broken")),
        ((accepted(),), WorkerLost()),
        ((ended(),), WorkerLost()),
    ],
)
async def test_everything_else_may_have_run_and_carries_no_mark(
    bench: Bench, script: tuple[object, ...], state: RunState | Exception | None
) -> None:
    worker = bench.members[0].worker
    worker.script, worker.state = script, state  # type: ignore[assignment]
    refusal = await refusal_of(bench)
    assert (refusal.code, refusal.reason, refusal.run_id) == (Code.MAY_HAVE_RUN, None, RUN)
    assert bench.runs.rows == {RUN: State.MAY_HAVE_RUN}
    assert worker.calls.count("start") == 1


@pytest.mark.parametrize("script", [(WorkerSilent(),), (accepted(), WorkerSilent())], ids=["start", "end"])
@pytest.mark.parametrize(
    ("state", "code"),
    [("void", Code.UNAVAILABLE), ("broken", Code.MAY_HAVE_RUN), ("running", Code.MAY_HAVE_RUN)],
)
async def test_a_worker_that_fell_silent_is_asked_what_became_of_the_run(
    bench: Bench, script: Script, state: Literal["void", "broken", "running"], code: Code
) -> None:
    worker = bench.members[0].worker
    worker.script, worker.state = script, RunState(RUN, BOOT, state)
    assert (await refusal_of(bench)).code is code
    assert bench.runs.reasons == {
        RUN: {"void": "environment", "broken": "broken", "running": "no_answer"}[state]
    }


async def test_an_end_that_only_the_query_brings_is_the_result(bench: Bench) -> None:
    worker = bench.members[0].worker
    worker.script = (accepted(), WorkerLost())
    worker.state = RunState(RUN, BOOT, "finished", accepted(), ended(exit_code=3), (Out("stdout", b"late"),))
    run = await bench.dispatcher().run(CALLER, javascript(), Cancel())
    assert (script_of(run).exit_code, script_of(run).stdout) == (3, b"late")
    assert bench.runs.rows == {RUN: State.FINISHED}


async def test_a_result_behind_less_than_the_floor_is_an_incident_and_never_a_success(bench: Bench) -> None:
    bench.members[0].worker.script = (accepted(), ended(tier=Tier.NONE))
    refusal = await refusal_of(bench, minimum_isolation=Tier.PROCESS)
    assert (refusal.code, refusal.reason) == (Code.MAY_HAVE_RUN, None)
    assert bench.runs.reasons == {RUN: "below_floor"}


async def test_a_failed_end_commit_still_delivers_the_result_and_is_written_later(bench: Bench) -> None:
    bench.runs.fail["finish"] = StoreUnavailable("unknown")
    run = await bench.dispatcher().run(CALLER, javascript(), Cancel())
    assert (run.recorded, script_of(run).stdout) == (False, b"hello\n")
    await settled(bench)
    assert bench.runs.rows == {RUN: State.FINISHED}


async def test_a_caller_gone_before_the_start_runs_nothing(bench: Bench) -> None:
    cancel = Cancel()
    cancel.request()
    with pytest.raises(Refused) as caught:
        await bench.dispatcher().run(CALLER, javascript(), cancel)
    assert caught.value.refusal.reason is Reason.REQUEST
    assert bench.members[0].worker.calls == ["reserve", "void"]
    assert bench.runs.rows == {RUN: State.NOT_DISPATCHED}


async def test_slots_come_back_after_every_kind_of_end(bench: Bench) -> None:
    dispatcher = bench.dispatcher()
    scripts: list[tuple[object, ...]] = [
        (accepted(), ended()),
        (NotSent(),),
        (accepted(), Broken("x")),
        (WorkerLost(),),
    ]
    for script in scripts:
        bench.members[0].worker.script = script  # type: ignore[assignment]
        with contextlib.suppress(Refused):
            await dispatcher.run(CALLER, javascript(), Cancel())
        assert dispatcher.running == 0


async def test_the_record_s_times_are_the_worker_s(bench: Bench) -> None:
    run = await bench.dispatcher().run(CALLER, javascript(), Cancel())
    assert (run.record.started_unix_ms, run.record.ended_unix_ms) == (NOW_MS, NOW_MS + 5)


PROJECT = RunRequest(Project((File("in", b"x"),), ("one", "two"), ("out",)))
SAID: tuple[Event, ...] = (
    accepted(),
    Out("stdout", b"abc", 0),
    StepEnded(0, 0, duration_ms=3),
    Out("stdout", b"de", 1),
    Out("stderr", b"f", 1),
    StepEnded(1, 5, stderr_truncated=True),
    Artifact("out", b"\x00\xff"),
    ended(exit_code=5, outcome=Outcome.COMPLETED),
)
RESULT = ProjectResult(
    Outcome.COMPLETED,
    steps=(
        StepResult("one", stdout=b"abc", duration_ms=3),
        StepResult("two", 5, stdout=b"de", stderr=b"f", stderr_truncated=True),
    ),
    artifacts=(Artifact("out", b"\x00\xff"),),
)


@pytest.fixture
def projects(bench: Bench) -> Bench:
    """A bench whose worker runs projects too."""
    environment = Environment("guest:1", "software:1", 300_000, ("python",))
    bench.members[0].worker.now = info(environments={Kind.PROJECT: environment})
    return bench


async def test_a_project_becomes_a_result_whose_record_holds_and_a_row_with_sums(projects: Bench) -> None:
    projects.members[0].worker.script = SAID
    run = await projects.dispatcher().run(CALLER, PROJECT, Cancel())
    assert run.result == RESULT
    stated = Stated("wasm", "process", "guest:1", "software:1", "wasm-vm:" + "1" * 32)
    assert check_answer(PROJECT, run.result, run.record, stated) == ()
    end = projects.runs.ends[RUN]
    assert (end.exit_code, end.stdout_bytes, end.stderr_bytes) == (5, 5, 1)
    assert (end.stdout_truncated, end.stderr_truncated) == (False, True)


async def test_a_project_whose_events_were_lost_has_the_same_record_from_the_query(projects: Bench) -> None:
    worker = projects.members[0].worker
    worker.script = SAID
    whole = await projects.dispatcher().run(CALLER, PROJECT, Cancel())
    worker.script = (*SAID[:4], WorkerLost())
    output = (Out("stdout", b"abc", 0), Out("stdout", b"de", 1), Out("stderr", b"f", 1))
    worker.state = RunState(
        RUN, BOOT, "finished", accepted(), ended(exit_code=5, outcome=Outcome.COMPLETED), output,
        (StepEnded(0, 0, duration_ms=3), StepEnded(1, 5, stderr_truncated=True)), (Artifact("out", b"\x00\xff"),),
    )  # fmt: skip
    asked = await projects.dispatcher().run(CALLER, PROJECT, Cancel())
    assert (asked.result, asked.record) == (whole.result, whole.record)


@pytest.mark.parametrize("when", ["in events", "in the answer to a query", "in a late answer"])
async def test_a_worker_that_says_what_does_not_fit_may_have_run_it(
    when: str, projects: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = projects.members[0].worker
    astray = (Artifact("never/asked", b"x"),)
    steps = (StepEnded(0, 0), StepEnded(1, 0))
    told = RunState(RUN, BOOT, "finished", accepted(), ended(outcome=Outcome.COMPLETED), (), steps, astray)
    worker.script = (accepted(), WorkerLost())
    if when == "in events":
        worker.script = (accepted(), *steps, *astray, ended(outcome=Outcome.COMPLETED))
    elif when == "in a late answer":
        monkeypatch.setattr("app.dispatch.attempt._SETTLE_PAUSE_S", 0.01)
        worker.state = RunState(RUN, BOOT, "running", accepted())
    else:
        worker.state = told
    with pytest.raises(Refused) as caught:
        await projects.dispatcher().run(CALLER, PROJECT, Cancel())
    assert (caught.value.refusal.code, caught.value.refusal.reason) == (Code.MAY_HAVE_RUN, None)
    worker.state = told
    for _ in range(200):
        if projects.runs.reasons.get(RUN) == "artifact_not_asked_for":
            break
        await asyncio.sleep(0.01)
    assert projects.runs.rows == {RUN: State.MAY_HAVE_RUN}
    assert projects.runs.reasons == {RUN: "artifact_not_asked_for"}
    assert projects.runs.ends == {}


async def test_a_worker_that_lies_is_told_to_end_the_run(projects: Bench) -> None:
    worker = projects.members[0].worker
    worker.script = (accepted(), StepEnded(1, 0))
    with pytest.raises(Refused):
        await projects.dispatcher().run(CALLER, PROJECT, Cancel())
    for _ in range(200):
        if "cancel" in worker.calls:
            break
        await asyncio.sleep(0.01)
    assert worker.calls[-1] == "cancel"
