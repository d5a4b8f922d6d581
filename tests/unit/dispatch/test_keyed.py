"""What a key's run means for the request that brings the key again; and that a lost race never runs twice."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from typing_extensions import override

from app.dispatch.attempt import Cancel
from app.dispatch.disk import DiskWatch
from app.dispatch.dispatcher import Live
from app.dispatch.keyed import Again, Keeper, Pending, Room, Stored, fingerprint, verdict
from app.dispatch.outcome import Finished
from app.dispatch.replica import Replica
from app.dispatch.settler import Settler
from app.store.values import (
    Keep,
    KeptRun,
    Key,
    KeyTaken,
    QuotaExceeded,
    StartingRun,
    State,
    StorageExceeded,
    StoredRun,
    StoreUnavailable,
)
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused
from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier
from tests.support.fakes import CALLER, Bench, FakeRuns, javascript, script_of

MINE = "f" * 64


def stored(state: State, *, settled: bool = True, run_id: str = "a" * 32) -> StoredRun:
    return StoredRun(
        id=run_id,
        caller_id=CALLER.id,
        kind=Kind.JAVASCRIPT,
        floor="",
        provider="wasm",
        tier=Tier.PROCESS,
        boot_id="b",
        trace_id="",
        request_sha256="",
        evidence_sha256="",
        environment="",
        software_identity="",
        code_bytes=1,
        created_unix_ms=1,
        state=state,
        reason="",
        settled=settled,
        kept=True,
        owner="",
    )


def kept(state: State, *, body: bytes | None = None, settled: bool = True, mark: str = MINE) -> KeptRun:
    return KeptRun(stored(state, settled=settled), mark, body)


def test_a_new_key_runs() -> None:
    assert verdict(None, MINE) == Again(None)


@pytest.mark.parametrize("state", list(State))
def test_another_fingerprint_is_a_conflict_in_every_state(state: State) -> None:
    refusal = verdict(kept(state, body=b"{}", mark="0" * 64), MINE)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.reason) == (Code.KEY_CONFLICT, Reason.REQUEST)


def test_every_state_has_its_answer() -> None:
    finished = kept(State.FINISHED, body=b"{}")
    assert verdict(finished, MINE) == Stored(finished.run, b"{}")
    assert verdict(kept(State.NOT_DISPATCHED), MINE) == Again("a" * 32)
    assert isinstance(verdict(kept(State.STARTING, settled=False), MINE), Pending)
    assert isinstance(verdict(kept(State.MAY_HAVE_RUN, settled=False), MINE), Pending)
    final = verdict(kept(State.MAY_HAVE_RUN), MINE)
    assert isinstance(final, Refusal)
    assert (final.code, final.reason) == (Code.MAY_HAVE_RUN, None)


def test_the_fingerprint_covers_route_session_and_request_and_no_trace_id() -> None:
    marks = {
        fingerprint("POST /v1/runs", javascript("1")),
        fingerprint("POST /v1/runs", javascript("2")),
        fingerprint("POST /v1/runs", javascript("1", timeout_ms=1)),
        fingerprint("POST /v1/sessions/{fingerprint}/runs", javascript("1")),
        fingerprint("POST /v1/runs", javascript("1"), "s" * 64),
    }
    assert len(marks) == 5
    assert fingerprint("r", javascript("1", trace_id="x")) == fingerprint("r", javascript("1"))


@dataclass
class KeyedRuns(FakeRuns):
    """Rows with keys, as atomic as the real ones: no await between look and change."""

    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)

    @override
    async def insert_starting(self, run: StartingRun, keep: Keep | None = None) -> None:
        await asyncio.sleep(0)
        self._fail("insert")
        if keep and keep.key:
            holder = self.keys.get(keep.key.sha256)
            if holder and not (
                holder[0] == keep.replaces_run_id and self.rows[holder[0]] is State.NOT_DISPATCHED
            ):
                raise KeyTaken
            self.keys[keep.key.sha256] = (run.id, keep.key.fingerprint)
        self.rows[run.id] = State.STARTING

    @override
    async def finish(self, run_id: str, end: Any, body: bytes | None = None) -> bool:
        if body is not None:
            self.bodies[run_id] = body
        return await super().finish(run_id, end)

    async def by_key(self, caller_id: str, key_sha256: str) -> KeptRun | None:
        await asyncio.sleep(0)
        self._fail("by_key")
        if key_sha256 not in self.keys:
            return None
        run_id, mark = self.keys[key_sha256]
        state = self.rows[run_id]
        settled = state is not State.STARTING
        return KeptRun(stored(state, settled=settled, run_id=run_id), mark, self.bodies.get(run_id))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Settler() as settler:
        yield Bench(settler, runs=KeyedRuns())


def render(run: Finished) -> bytes:
    return f"{run.run_id} {run.recorded} {script_of(run).stdout!r}".encode()


async def begin(keeper: Keeper, key: str | None = "k", code: str = "1") -> Live | Stored | Pending:
    request = javascript(code)
    made = Key(key, fingerprint("r", request)) if key else None
    return await keeper.begin(CALLER, request, Cancel(), key=made, render=render, now_unix_ms=1)


def keeper_of(bench: Bench) -> Keeper:
    assert isinstance(bench.runs, KeyedRuns)
    return Keeper(bench.dispatcher(), bench.runs, Room(1 << 20, 1 << 20, 1024))


async def test_a_repeat_gets_the_first_answer_byte_for_byte_and_one_execution(bench: Bench) -> None:
    keeper = keeper_of(bench)
    first = await begin(keeper)
    assert isinstance(first, Live)
    body = (await first.end()).body
    again = await begin(keeper)
    assert isinstance(again, Stored)
    assert again.body == body
    assert bench.members[0].worker.calls.count("start") == 1


async def test_many_at_once_run_once(bench: Bench) -> None:
    keeper = keeper_of(bench)
    begun = await asyncio.gather(*(begin(keeper) for _ in range(30)), return_exceptions=True)
    assert sum(isinstance(each, Live) for each in begun) == 1
    assert all(isinstance(each, Live | Pending | Stored) for each in begun), begun
    assert bench.members[0].worker.calls.count("start") <= 1


async def test_another_request_under_the_key_is_a_conflict_and_nothing_runs(bench: Bench) -> None:
    keeper = keeper_of(bench)
    first = await begin(keeper)
    assert isinstance(first, Live)
    await first.end()
    with pytest.raises(Refused) as caught:
        await begin(keeper, code="2")
    assert caught.value.refusal.code is Code.KEY_CONFLICT
    assert bench.members[0].worker.calls.count("start") == 1


async def test_a_run_that_was_not_dispatched_is_admitted_again_under_a_new_id(bench: Bench) -> None:
    keeper = keeper_of(bench)
    assert isinstance(bench.runs, KeyedRuns)
    bench.runs.rows["0" * 32] = State.NOT_DISPATCHED
    bench.runs.keys["k"] = ("0" * 32, fingerprint("r", javascript("1")))
    live = await begin(keeper)
    assert isinstance(live, Live)
    assert live.run_id != "0" * 32
    assert bench.runs.keys["k"][0] == live.run_id


async def test_no_room_is_capacity_and_nothing_starts(bench: Bench) -> None:
    bench.runs.fail["insert"] = QuotaExceeded("caller")
    with pytest.raises(Refused) as caught:
        await begin(keeper_of(bench))
    assert caught.value.refusal.reason is Reason.CAPACITY
    assert bench.members[0].worker.calls == ["reserve", "void"]


async def test_a_caller_that_stored_as_much_as_it_may_is_told_so_and_nothing_starts(bench: Bench) -> None:
    bench.runs.fail["insert"] = StorageExceeded("stored")
    with pytest.raises(Refused) as caught:
        await begin(keeper_of(bench))
    refusal = caught.value.refusal
    assert (refusal.code, refusal.reason) == (Code.STORAGE_LIMIT, Reason.CAPACITY)
    assert bench.members[0].worker.calls == ["reserve", "void"]


async def test_a_key_nobody_can_look_up_is_refused_without_a_mark(bench: Bench) -> None:
    bench.runs.fail["by_key"] = StoreUnavailable("not_committed")
    with pytest.raises(Refused) as caught:
        await begin(keeper_of(bench))
    assert (caught.value.refusal.code, caught.value.refusal.reason) == (Code.UNAVAILABLE, None)


async def test_a_kept_run_outlives_its_listener(bench: Bench) -> None:
    live = await begin(keeper_of(bench), key=None)
    assert isinstance(live, Live)
    listener = asyncio.create_task(live.end())
    await asyncio.sleep(0)
    listener.cancel()
    await asyncio.wait([live.task], timeout=5)
    assert bench.runs.rows[live.run_id] is State.FINISHED


def test_a_disk_under_five_percent_is_full_and_is_looked_at_rarely() -> None:
    now, share, looks = [0.0], [0.04], [0]

    def free() -> float:
        looks[0] += 1
        return share[0]

    watch = DiskWatch(free, lambda: now[0])
    assert watch.full()
    share[0] = 0.06
    assert watch.full()
    assert looks[0] == 1
    now[0] = 2.0
    assert not watch.full()


async def test_a_replica_renews_its_lease_cares_for_orphans_and_carries_out_cancels() -> None:
    said: list[str] = []

    class Database:
        async def beat(self, replica_id: str, ttl_ms: int) -> None:
            said.append(f"beat {replica_id}")

        async def leave(self, replica_id: str) -> None:
            said.append(f"leave {replica_id}")

        async def adopt_orphans(self, own_id: str, reason: str, final_after_ms: int) -> int:
            said.append("adopt")
            return 1

        async def cancel_requests(self, owner: str) -> list[str]:
            return ["run-1"]

    def cancel(run_id: str) -> bool:
        said.append(f"cancel {run_id}")
        return True

    database = Database()
    async with Replica(database, database, cancel, "me"):
        for _ in range(20):
            await asyncio.sleep(0)
    assert said == ["beat me", "beat me", "adopt", "cancel run-1", "leave me"]
