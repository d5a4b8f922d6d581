"""Runs: written ahead, ended once, read by their caller. Every change of state is a conditional update.

A row is settled when its state is final. `finish` and `settle` change unsettled rows only, so whoever comes second
changes nothing and is told so.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from app.store import answers, cursors, orphans, rows, stored
from app.store.database import Database
from app.store.hot import Hot, slots_of
from app.store.schema import audit, records, runs
from app.store.values import AuditRow, FinishedRun, Keep, KeptRun, RunsPage, StartingRun, State, StoredRun
from plimsoll.contract.record import RunRecord

_STARTING = [field.name for field in fields(StartingRun)]
_ENDED = [
    "exit_code",
    "timed_out",
    "oom_killed",
    "cancelled",
    "duration_ms",
    "start_ms",
    "stdout_bytes",
    "stderr_bytes",
    "stdout_truncated",
    "stderr_truncated",
    "evidence_sha256",
    "tier",
    "ended_unix_ms",
]
_FIRST = [*_STARTING, "state", "reason", "settled", "kept"]
_INSERT_RUN = Hot(sa.insert(runs), _FIRST)
_INSERT_RECORD = Hot(sa.insert(records), ["run_id", *(field.name for field in fields(RunRecord))])
_INSERT_AUDIT = Hot(sa.insert(audit).inline(), [field.name for field in fields(AuditRow)])
_END = sa.update(runs).where(runs.c.id == sa.bindparam("run"), runs.c.settled == sa.false())
_STATE = ("state", "reason", "settled")
# A later word about a run does not take away what is known of its calls.
_TRACE = {"grant_trace": sa.func.coalesce(sa.bindparam("grant_trace", type_=sa.String), runs.c.grant_trace)}
_SETTLE = Hot(_END.values({name: sa.bindparam(name) for name in _STATE} | _TRACE).returning(runs.c.kept))
_FINISH = Hot(
    _END.values({name: sa.bindparam(name) for name in (*_STATE, *_ENDED)} | _TRACE).returning(runs.c.kept)
)
_ASK_TO_STOP = _END.where(runs.c.cancel_requested == sa.false()).values(cancel_requested=True)

Unfinished = Literal[State.NOT_DISPATCHED, State.MAY_HAVE_RUN]


class Runs:
    """The repository of runs, their records and their lines of the audit trail."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        """Rows live in `database`; `clock` gives Unix milliseconds, by which answers expire."""
        self._database = database
        self._clock = clock
        self.limit = stored.UNLIMITED
        """What one caller may store."""

    async def insert_starting(self, run: StartingRun, keep: Keep | None = None) -> None:
        """Write the row ahead of `start`, with its key and the bytes for its answer: all of it or nothing.

        Raises StoreUnavailable; KeyTaken when another run holds the key (see `Keep.replaces_run_id`); QuotaExceeded;
        StorageExceeded; AlreadyExists for a run id that is there.
        """
        row = _written(run, State.STARTING, settled=False) | {"kept": keep is not None}
        now, limit = self._clock(), self.limit

        def unit(connection: sa.Connection) -> None:
            _INSERT_RUN.run(connection, row)
            if keep is not None:
                answers.hold(connection, run.id, run.caller_id, keep, now)
            stored.admit(connection, run.caller_id, limit)

        await self._database.write(unit)

    async def finish(self, run_id: str, end: FinishedRun, body: bytes | None = None) -> bool:
        """Write the end, the record and the audit row together; False when the run is unknown or already settled.

        `body` is the answer of a run that keeps it, and is in the same commit. One that is over its reservation, or comes after
        the answer expired, is not kept: the run is finished all the same.
        """
        row = {name: getattr(end, name) for name in _ENDED} | {"tier": end.tier.value}
        row |= {"run": run_id, "state": State.FINISHED.value, "reason": "", "settled": True}
        row |= {"grant_trace": end.grant_trace}
        record = slots_of(end.record) | {"run_id": run_id}
        trail = slots_of(end.audit)

        def unit(connection: sa.Connection) -> bool:
            count = _trace_counted(connection, run_id, end.grant_trace)
            ended = _FINISH.run(connection, row)
            if not ended:
                return False
            _INSERT_RECORD.run(connection, record)
            _INSERT_AUDIT.run(connection, trail)
            if ended[0][0]:
                answers.end(connection, run_id, body)
            count()
            return True

        return await self._database.write(unit)

    async def settle(
        self,
        run_id: str,
        *,
        state: Unfinished,
        reason: str,
        settled: bool,
        audit: AuditRow | None,
        grant_trace: str | None = None,
    ) -> bool:
        """Say that a run without an end was not dispatched or may have run; False when it is unknown or already settled.

        With `settled` False a later `finish` or `settle` may still change it. `audit` belongs to the final word, which also
        gives back what was reserved for the answer. A key stays with its run until it expires.
        """
        row = {"run": run_id, "state": state.value, "reason": reason, "settled": settled}
        row |= {"grant_trace": grant_trace}
        return await self._database.write(lambda connection: _settle(connection, row, audit))

    async def fence(self, run: StartingRun, reason: str, audit: AuditRow) -> bool:
        """Say that a run whose `insert_starting` had an unknown outcome was not dispatched; False when it is settled already.

        Where its row is not there, one is written that says so: a commit that is still on its way can then change nothing. On
        Postgres this waits for that commit.
        """
        state = State.NOT_DISPATCHED
        fenced = _written(run, state, settled=True) | {"reason": reason, "kept": False}
        row = {"run": run.id, "state": state.value, "reason": reason, "settled": True, "grant_trace": None}

        def unit(connection: sa.Connection) -> bool:
            if connection.execute(_fencing(connection.dialect.name), fenced).rowcount == 1:
                write_trail(connection, audit)
                stored.admit(connection, run.caller_id)
                return True
            return _settle(connection, row, audit)

        return await self._database.write(unit)

    async def get(self, run_id: str, caller_id: str | None) -> StoredRun | None:
        """One run of this caller (None: of anybody); another caller's is as unknown as one that never was."""
        statement = rows.one(own=caller_id is not None)
        found = await self._database.fetch(statement, _of(caller_id) | {"run": run_id})
        return rows.stored(found[0]) if found else None

    async def page(self, caller_id: str | None, cursor: str | None, limit: int) -> RunsPage | None:
        """Runs of this caller (None: of everybody), newest first; None for a cursor that is not one of theirs."""
        asked: dict[str, Any] = _of(caller_id) | {"limit": limit + 1}
        if cursor is not None:
            position = cursors.read(cursor, caller_id)
            if position is None:
                return None
            asked["before"], asked["before_id"] = position
        statement = rows.newest(own=caller_id is not None, after=cursor is not None)
        read = await self._database.fetch(statement, asked, many=True)
        found = tuple(rows.stored(row) for row in read[:limit])
        more = len(read) > limit
        return RunsPage(
            found, cursors.make(found[-1].created_unix_ms, found[-1].id, caller_id) if more else None
        )

    async def by_key(self, caller_id: str, key_sha256: str) -> KeptRun | None:
        """The run that holds this caller's key; None for a key that is unknown or expired."""
        asked = {"caller": caller_id, "key": key_sha256, "now": self._clock()}
        found = await self._database.fetch(rows.BY_KEY, asked)
        return KeptRun(rows.stored(found[0]), *found[0][rows.WIDTH :]) if found else None

    async def body(self, run_id: str, caller_id: str | None) -> bytes | None:
        """The kept answer of a run of this caller (None: of anybody); None when there is none, not yet or no more."""
        asked = _of(caller_id) | {"run": run_id, "now": self._clock()}
        found = await self._database.fetch(rows.body(own=caller_id is not None), asked)
        return found[0][0] if found else None

    async def grant_trace(self, run_id: str, caller_id: str | None) -> str | None:
        """What is kept of the calls of a run of this caller (None: of anybody); None when there is nothing."""
        found = await self._database.fetch(
            rows.grant_trace(own=caller_id is not None), _of(caller_id) | {"run": run_id}
        )
        return found[0][0] if found else None

    async def request_cancel(self, run_id: str, caller_id: str | None) -> StoredRun | None:
        """Ask whoever owns the run to stop it, if it can still end; the run as it is then, None when it is not theirs."""
        asked = _of(caller_id) | {"run": run_id}
        own = caller_id is not None
        ask = _ASK_TO_STOP.where(runs.c.caller_id == sa.bindparam("caller")) if own else _ASK_TO_STOP

        def unit(connection: sa.Connection) -> StoredRun | None:
            connection.execute(ask, asked)
            found = connection.execute(rows.one(own=own), asked).first()
            return rows.stored(found) if found else None

        return await self._database.write(unit)

    async def cancel_requests(self, owner: str) -> list[str]:
        """The open runs of this owner that somebody asked to stop, oldest first."""
        return [row[0] for row in await self._database.fetch(rows.CANCELLED, {"owner": owner}, many=True)]

    async def adopt_orphans(self, own_id: str, reason: str, final_after_ms: int) -> int:
        """Say `may_have_run` of open runs whose replica is gone; how many changed.

        They can still end while their replica could come back: until `final_after_ms` after its lease, or until it left.
        Safe when several replicas do it at once; a bounded number changes at a time, so do it again and again.
        """
        now = self._clock()
        return await self._database.write(
            lambda connection: orphans.adopt(connection, own_id, reason, final_after_ms, now)
        )

    async def unfinished(self) -> list[StoredRun]:
        """Every run whose state is not final, oldest first."""
        found = await self._database.fetch(rows.UNSETTLED, many=True)
        return [rows.stored(row) for row in found]

    async def reconcile_at_start(self, now_unix_ms: int, reason: str) -> int:
        """Settle what an earlier process left open as `may_have_run`; how many there were.

        Only for the sole owner of the database before it serves: every open run is then one that nobody will ever end.
        """
        return await self._database.write(lambda connection: orphans.abandon(connection, now_unix_ms, reason))


def _written(run: StartingRun, state: State, *, settled: bool) -> dict[str, Any]:
    """The columns of a row that is written the first time, but for `kept`."""
    row = {name: getattr(run, name) for name in _STARTING}
    row |= {"kind": run.kind.value, "tier": run.tier.value}
    return row | {"state": state.value, "reason": "", "settled": settled}


def write_trail(connection: sa.Connection, row: AuditRow) -> None:
    """Part of a unit of work: one line of the audit trail."""
    _INSERT_AUDIT.run(connection, slots_of(row))


def _settle(connection: sa.Connection, row: dict[str, Any], audit: AuditRow | None) -> bool:
    """Part of a unit of work: see `Runs.settle`."""
    count = _trace_counted(connection, row["run"], row["grant_trace"])
    changed = _SETTLE.run(connection, row)
    if changed and audit is not None:
        write_trail(connection, audit)
    if changed and changed[0][0] and row["settled"]:
        answers.end(connection, row["run"], None)
    if changed:
        count()
    return bool(changed)


def _trace_counted(connection: sa.Connection, run_id: str, trace: str | None) -> Callable[[], None]:
    """What counts the trace that a run is about to get, in place of the one it has; to be called last."""
    if trace is None:
        return lambda: None
    caller_id, before = stored.trace_of(connection, run_id)
    return lambda: stored.change(connection, caller_id, bytes_more=len(trace) - before)


@cache
def _fencing(dialect: str) -> sa.Insert:
    insert = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(runs)
    return insert.on_conflict_do_nothing(index_elements=["id"])


def _of(caller_id: str | None) -> dict[str, Any]:
    """The caller as a parameter, for the statements that are about one."""
    return {} if caller_id is None else {"caller": caller_id}
