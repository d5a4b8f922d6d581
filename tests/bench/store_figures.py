"""Figure 8: what one commit costs, through the store and by the bare driver, in the same directory."""

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.store.store import Store, open_store
from tests.bench.report import Report
from tests.bench.sampling import Series, Timed
from tests.integration.store.samples import finished, new_id, starting


@dataclass(slots=True)
class Commits:
    """A store of its own, and the same two commits' worth of bytes written by the bare driver."""

    store: Store
    bare: sqlite3.Connection
    waiting: list[str] = field(default_factory=list)

    async def insert(self) -> None:
        """The commit before a run."""
        run_id = new_id()
        await self.store.runs.insert_starting(starting(run_id))
        self.waiting.append(run_id)

    async def finish(self) -> None:
        """The commit after it."""
        run_id = self.waiting.pop()
        if not await self.store.runs.finish(run_id, finished(run_id)):
            raise RuntimeError("the run was not open")

    async def plain(self) -> None:
        """One small row, durable, by the bare driver."""
        self.write_plain()

    def write_plain(self) -> None:
        self.bare.execute("INSERT INTO rows VALUES (?, ?)", (new_id(), "x" * 600))
        self.bare.commit()

    def plain_rate(self, seconds: float) -> float:
        """Such rows a second, one after the other without a pause: what the disk gives."""
        began, written = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            self.write_plain()
            written += 1
        return written / (time.perf_counter() - began)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Commits]:
    """Both databases, in `folder`, which is there."""
    bare = sqlite3.connect(folder / "bare.db")
    try:
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE rows (id TEXT PRIMARY KEY, text TEXT)")
        url = f"sqlite+aiosqlite:///{folder / 'store.db'}"
        async with open_store(url, clock=lambda: time.time_ns() // 1_000_000) as store:
            yield Commits(store, bare)
    finally:
        bare.close()


def figure(report: Report, timed: dict[str, Timed]) -> None:
    """Write what was sampled (in figure 3, in turn with the runs)."""
    made = report.figure(8, "One durable commit on SQLite, wall")
    insert, finish, plain = (timed[name].wall for name in ("insert", "finish", "plain"))
    made.line("insert_starting", insert)
    made.line("finish (run, record, audit row)", finish)
    made.line("one small row by the bare driver", plain)
    both = Series([one + two for one, two in zip(insert.values, finish.values, strict=True)])
    made.line("the two commits of a run", both)
    made.value("the two against two bare ones", both.p50 / (2 * plain.p50))
