"""Whatever happens to runs that keep answers, in whatever order: the counts are the sums, and no quota is exceeded."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.store.answers import TOTAL
from app.store.store import Store, open_store
from app.store.values import KeyTaken, QuotaExceeded, State
from tests.integration.store.counts import counted, held
from tests.integration.store.samples import ALICE, BOB, Clock, finished, keep, new_id, settle, starting

QUOTA, ALL = 2_500, 4_000
KEYS = (None, "01" * 32, "02" * 32)
_run = st.integers(0, 7)

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("start"),
            st.sampled_from((ALICE, BOB)),
            st.sampled_from(KEYS),
            st.sampled_from((0, 700, 1_200)),
        ),
        st.tuples(st.just("retry"), _run, st.sampled_from((300, 1_200))),
        st.tuples(st.just("finish"), _run, st.sampled_from((None, 0, 5, 700, 1_300))),
        st.tuples(
            st.just("settle"),
            _run,
            st.sampled_from((State.NOT_DISPATCHED, State.MAY_HAVE_RUN)),
            st.booleans(),
        ),
        st.tuples(st.just("adopt"), st.sampled_from((0, 60_000))),
        st.tuples(st.just("pass"), st.sampled_from((10, 50))),
        st.tuples(st.just("prune"), st.integers(1, 3)),
    ),
    max_size=30,
)


@dataclass
class World:
    """One store, and the runs that were started on it with what they were started with."""

    store: Store
    clock: Clock
    runs: list[tuple[str, str, str | None]] = field(default_factory=list)

    async def start(self, caller_id: str, key: str | None, size: int, replaces: str | None = None) -> None:
        run_id = new_id()
        room = {"caller_quota_bytes": QUOTA, "total_quota_bytes": ALL, "replaces_run_id": replaces}
        wanted = keep(key, reserve_bytes=size, expires_unix_ms=self.clock.now + 100, **room)
        try:
            await self.store.runs.insert_starting(starting(run_id, caller_id=caller_id), wanted)
        except (KeyTaken, QuotaExceeded):
            return
        self.runs.append((run_id, caller_id, key))

    async def step(self, what: str, *given: Any) -> None:
        match what, *given:
            case "start", caller_id, key, size:
                await self.start(caller_id, key, size)
            case "retry", number, size if self.runs:
                run_id, caller_id, key = self.runs[-1 - number % len(self.runs)]
                await self.start(caller_id, key, size, run_id if key else None)
            case "finish", number, size if self.runs:
                run_id = self.runs[-1 - number % len(self.runs)][0]
                await self.store.runs.finish(run_id, finished(run_id), None if size is None else bytes(size))
            case "settle", number, state, settled if self.runs:
                await settle(self.store, self.runs[-1 - number % len(self.runs)][0], state, settled=settled)
            case "adopt", after:
                await self.store.runs.adopt_orphans("r1", "replica_lost", after)
            case "pass", ms:
                self.clock.now += ms
            case "prune", batch:
                await self.store.prune(0, batch)
            case _:
                pass  # there is no run yet that it could be about

    async def check(self) -> None:
        counts = await counted(self.store)
        assert counts == await held(self.store)
        assert counts.get(TOTAL, 0) <= ALL
        assert max((size for scope, size in counts.items() if scope != TOTAL), default=0) <= QUOTA

    async def everything_expires(self) -> None:
        self.clock.now += 1_000
        while await self.store.prune(0):
            pass
        assert await counted(self.store) == {}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_counts_equal_sums_after_any_sequence(database_url: str, steps: list[tuple[Any, ...]]) -> None:
    async def play() -> None:
        clock = Clock()
        async with open_store(database_url, clock=clock) as store:
            world = World(store, clock)
            for each in steps:
                await world.step(*each)
                await world.check()
            await world.everything_expires()

    asyncio.run(play())
