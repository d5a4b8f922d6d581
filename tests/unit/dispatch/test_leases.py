"""A run's lease: asked for before its row is written, closed before its end is told, whatever happens in between."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from typing_extensions import override

from app.dispatch.attempt import Cancel
from app.dispatch.brokerlink import ELSEWHERE, BrokerDown, Elsewhere
from app.dispatch.leases import TRACE_BYTES, Held, KeptCalls, written
from app.dispatch.link import GRACE_S
from app.dispatch.outcome import Finished
from app.dispatch.settler import Settler
from app.store.values import State, StoredGrant, StoreUnavailable
from plimsoll.contract import codec
from plimsoll.contract.advice import Advice, AdviceTo
from plimsoll.contract.leases import CallTrace, Closed, TraceEntry
from plimsoll.contract.profiles import CredentialTerms, CredentialType, Profile
from plimsoll.contract.refusals import Reason, Refused
from plimsoll.contract.requests import JavaScript, Kind, RunRequest
from plimsoll.contract.worker import Broken, Environment, Lease
from tests.support.fakes import (
    CALLER,
    Bench,
    FakeBroker,
    FakeMember,
    FakeProfiles,
    FakeWorker,
    accepted,
    info,
)

REQUEST = RunRequest(JavaScript("1", "hr-read"))
PROFILE = Profile(
    "hr-read",
    "https://hr.example.com",
    ("GET /v1/x",),
    (CALLER.name,),
    CredentialTerms(CredentialType.STATIC),
)
FOUND = Advice("fan_out", "GET /v1/x", 10, "10 calls.")
CAN_CALL = info(
    environments={Kind.JAVASCRIPT: Environment("guest:1", "software:1", 300_000, ("javascript",), True)}
)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Settler() as settler:
        yield Bench(
            settler,
            [FakeMember(FakeWorker(now=CAN_CALL))],
            profiles=FakeProfiles({"hr-read": StoredGrant(PROFILE, b"box")}),
            broker=FakeBroker(),
        )


def broker_of(bench: Bench) -> FakeBroker:
    assert bench.broker is not None
    return bench.broker


async def refused(bench: Bench) -> Reason | None:
    with pytest.raises(Refused) as caught:
        await bench.dispatcher().run(CALLER, REQUEST, Cancel())
    return caught.value.refusal.reason


async def test_a_lease_is_bound_to_run_caller_and_worker_and_its_trace_kept(bench: Bench) -> None:
    run = await bench.dispatcher().run(CALLER, REQUEST, Cancel())
    broker = broker_of(bench)
    (asked,) = broker.asked
    assert (asked.run_id, asked.caller_id, asked.caller_name) == (run.run_id, CALLER.id, CALLER.name)
    assert asked.worker == f"wasm/{CAN_CALL.boot_id}"
    assert asked.budget_s == 30 + GRACE_S
    assert broker.log == ["register", "close"]
    assert bench.runs.ends[run.run_id].grant_trace == codec.dumps(KeptCalls(sent=2, delivered=1)).decode()


@pytest.mark.parametrize("how", ["fault", "down"])
async def test_without_a_lease_nothing_is_written_or_started(bench: Bench, how: str) -> None:
    broker = broker_of(bench)
    broker.fault, broker.down = ("hook_timeout", set()) if how == "fault" else ("", {"register"})
    assert await refused(bench) is Reason.ENVIRONMENT
    assert bench.runs.rows == {}
    assert bench.members[0].worker.calls == ["reserve", "void"]
    assert not broker.open


async def test_a_row_that_is_not_written_ends_the_lease(bench: Bench) -> None:
    bench.runs.fail["insert"] = StoreUnavailable("not_committed")
    assert await refused(bench) is Reason.ENVIRONMENT
    assert broker_of(bench).log == ["register", "close"]


async def test_a_broken_run_ends_the_lease_and_keeps_its_trace(bench: Bench) -> None:
    bench.members[0].worker.script = (accepted(), Broken("died"))
    assert await refused(bench) is None
    assert broker_of(bench).log == ["register", "close"]
    assert list(bench.runs.rows.values()) == [State.MAY_HAVE_RUN]


async def test_a_broker_that_cannot_be_told_of_an_end_is_given_up(bench: Bench) -> None:
    broker_of(bench).down = {"close"}
    run = await bench.dispatcher().run(CALLER, REQUEST, Cancel())
    assert bench.runs.ends[run.run_id].grant_trace is None


async def test_who_waits_for_a_close_may_be_cancelled_and_it_goes_on() -> None:
    told, go = [], asyncio.Event()

    class Slow(FakeBroker):
        @override
        async def close(self, run_id: str) -> Closed:
            await go.wait()
            told.append(run_id)
            return Closed(CallTrace(sent=1))

    held = Held("a" * 32, "hr-read", Lease("unix:///x", "w", "s"), Slow(), ELSEWHERE)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await held.close()
    go.set()
    await held.close()
    assert told == ["a" * 32]
    assert held.trace == CallTrace(sent=1)


async def test_a_lost_close_gives_the_broker_up_once() -> None:
    class Down(FakeBroker):
        @override
        async def close(self, run_id: str) -> Closed:
            raise BrokerDown("down")

    class Counted(Elsewhere):
        given_up = 0

        @override
        def give_up(self) -> None:
            self.given_up += 1

    start = Counted()
    held = Held("a" * 32, "hr-read", Lease("unix:///x", "w", "s"), Down(), start)
    await held.close()
    await held.close()
    assert start.given_up == 1
    assert held.kept() is None


def test_a_trace_is_kept_within_its_bound_and_says_what_was_left_out() -> None:
    routes = tuple(f"GET /v1/{'x' * 120}/{number}" for number in range(1_000))
    entries = tuple(
        TraceEntry(number, 200, delivered=True, bytes_back=4 << 20, ms=30_000) for number in range(1_000)
    )
    whole = CallTrace(routes, entries, 7, sent=1_007, delivered=1_000)
    told = KeptCalls(routes * 4, entries, 7, sent=1_007, advice=(FOUND,), told=AdviceTo.CALLER)
    text = written(told)
    assert len(text) <= TRACE_BYTES
    kept = codec.loads(KeptCalls, text.encode())
    assert (kept.sent, kept.advice, kept.told) == (1_007, (FOUND,), AdviceTo.CALLER)
    assert kept.left_out + len(kept.entries) == whole.left_out + len(whole.entries)
    assert all(each.route < len(kept.routes) for each in kept.entries)


async def test_a_provider_whose_guests_cannot_call_is_passed_by(bench: Bench) -> None:
    mute = FakeMember(FakeWorker(), provider="wasm")
    bench.members = [mute, FakeMember(FakeWorker(now=CAN_CALL), provider="docker")]
    run = await bench.dispatcher().run(CALLER, REQUEST, Cancel())
    assert run.provider == "docker"
    assert mute.worker.calls == []
    bench.members = [mute]
    assert await refused(bench) is Reason.UNSUPPORTED
    assert broker_of(bench).log == ["register", "close"]


TWELVE = CallTrace(
    ("GET /v1/x/*",), (TraceEntry(0, 200, delivered=True, bytes_back=1, ms=1),) * 12, sent=12, delivered=12
)


async def advised(bench: Bench, mode: str) -> tuple[Finished, KeptCalls]:
    """A run of twelve calls under a profile of this mode, and what is kept of its calls."""
    profile = replace(PROFILE, allow=("GET /v1/x/*",))
    bench.profiles.kept["hr-read"] = StoredGrant(profile, b"box", advice=mode)
    broker_of(bench).trace = TWELVE
    run = await bench.dispatcher().run(CALLER, REQUEST, Cancel())
    return run, codec.loads(KeptCalls, (bench.runs.ends[run.run_id].grant_trace or "").encode())


@pytest.mark.parametrize(
    ("mode", "caller", "operator"),
    [
        ("off", None, None),
        ("operator", None, ["fan_out"]),
        ("caller", ["fan_out"], ["fan_out"]),
        ("somebody wrote this past the command", None, None),
    ],
)
async def test_advice_goes_to_whom_the_profile_says(
    bench: Bench, mode: str, caller: list[str] | None, operator: list[str] | None
) -> None:
    run, kept = await advised(bench, mode)
    assert codes(run.advice) == codes(kept.advice_for(operator=False)) == caller
    assert codes(kept.advice_for(operator=True)) == operator


def codes(found: tuple[Advice, ...] | None) -> list[str] | None:
    return None if found is None else [each.code for each in found]


async def test_a_run_that_called_well_is_told_that_nothing_was_found(bench: Bench) -> None:
    bench.profiles.kept["hr-read"] = StoredGrant(PROFILE, b"box", advice="caller")
    run = await bench.dispatcher().run(CALLER, REQUEST, Cancel())
    assert run.advice == ()


async def test_records_are_the_same_with_and_without_advice(bench: Bench) -> None:
    runs = [(await advised(bench, mode))[0] for mode in ("off", "operator", "caller")]
    assert [run.advice is None for run in runs] == [True, True, False]
    assert len({run.record for run in runs}) == 1


@pytest.mark.parametrize("routes", [("GET /v1/x/*",), ("no route",)], ids=["broken trace", "broken grant"])
async def test_advice_that_fails_costs_no_run(
    bench: Bench, caplog: pytest.LogCaptureFixture, routes: tuple[str, ...]
) -> None:
    profile = replace(PROFILE, allow=routes)
    bench.profiles.kept["hr-read"] = StoredGrant(profile, b"box", advice="caller")
    broker_of(bench).trace = replace(TWELVE, routes=())
    run = await bench.dispatcher().run(CALLER, REQUEST, Cancel())
    assert (run.advice, run.recorded, run.ended.exit_code) == (None, True, 0)
    kept = codec.loads(KeptCalls, (bench.runs.ends[run.run_id].grant_trace or "").encode())
    assert (kept.sent, kept.told) == (12, None)
    assert [each.message for each in caplog.records].count("grant.advice_failed") == 1


async def test_a_lost_trace_has_no_advice(bench: Bench) -> None:
    bench.profiles.kept["hr-read"] = StoredGrant(PROFILE, b"box", advice="caller")
    broker_of(bench).down = {"close"}
    run = await bench.dispatcher().run(CALLER, REQUEST, Cancel())
    assert run.advice is None


def test_what_was_kept_before_there_was_advice_is_still_read() -> None:
    kept = codec.loads(KeptCalls, codec.dumps(TWELVE))
    assert (kept.sent, len(kept.entries), kept.advice_for(operator=True)) == (12, 12, None)
