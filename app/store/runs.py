"""Runs: written ahead, ended once, read by their caller. Every change of state is a conditional update.

A row is settled when its state is final. `finish` and `settle` change unsettled rows only, so whoever comes second
changes nothing and is told so.
"""

from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import cache
from typing import Any, Literal

import sqlalchemy as sa

from app.store import cursors
from app.store.database import Database
from app.store.schema import audit, records, runs
from app.store.values import AuditRow, FinishedRun, Keep, KeptRun, RunsPage, StartingRun, State, StoredRun
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier

_STARTING = [field.name for field in fields(StartingRun)]
_RECORD = [field.name for field in fields(RunRecord)]
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
_INSERT_RUN = sa.insert(runs)
_INSERT_RECORD = sa.insert(records)
INSERT_AUDIT = sa.insert(audit).inline()
_END = sa.update(runs).where(runs.c.id == sa.bindparam("run"), runs.c.settled == sa.false())
_SETTLE = _END.values({name: sa.bindparam(name) for name in ("state", "reason", "settled")})
_FINISH = _END.values({name: sa.bindparam(name) for name in ("state", "reason", "settled", *_ENDED)})
_RUN_COLUMNS = [runs.c[field.name] for field in fields(StoredRun) if field.name != "record"]
_RECORD_COLUMNS = [records.c[name] for name in _RECORD]
_UNSETTLED = (
    sa.select(*_RUN_COLUMNS, *(sa.null() for _ in _RECORD))
    .where(runs.c.settled == sa.false())
    .order_by(runs.c.created_unix_ms, runs.c.id)
)

Unfinished = Literal[State.NOT_DISPATCHED, State.MAY_HAVE_RUN]


class Runs:
    """The repository of runs, their records and their lines of the audit trail."""

    def __init__(self, database: Database) -> None:
        """Rows live in `database`."""
        self._database = database

    async def insert_starting(self, run: StartingRun, keep: Keep | None = None) -> None:
        """Write the row ahead of `start`, with its key and the bytes for its answer: all of it or nothing.

        Raises StoreUnavailable; KeyTaken when another run holds the key (see `Keep.replaces_run_id`); QuotaExceeded;
        AlreadyExists for a run id that is there.
        """
        row = {name: _plain(getattr(run, name)) for name in _STARTING}
        row |= {"state": State.STARTING.value, "reason": "", "settled": False, "kept": keep is not None}
        await self._database.write(lambda connection: connection.execute(_INSERT_RUN, row).rowcount)

    async def finish(self, run_id: str, end: FinishedRun, body: bytes | None = None) -> bool:  # noqa: ARG002
        """Write the end, the record and the audit row together; False when the run is unknown or already settled.

        `body` is the answer of a run that keeps it, and is in the same commit. One that is over its reservation, or comes after
        the answer expired, is not kept: the run is finished all the same.
        """
        row = {name: _plain(getattr(end, name)) for name in _ENDED}
        row |= {"run": run_id, "state": State.FINISHED.value, "reason": "", "settled": True}
        record = asdict(end.record) | {"run_id": run_id}

        def unit(connection: sa.Connection) -> bool:
            if connection.execute(_FINISH, row).rowcount != 1:
                return False
            connection.execute(_INSERT_RECORD, record)
            connection.execute(INSERT_AUDIT, asdict(end.audit))
            return True

        return await self._database.write(unit)

    async def settle(
        self, run_id: str, *, state: Unfinished, reason: str, settled: bool, audit: AuditRow | None
    ) -> bool:
        """Say that a run without an end was not dispatched or may have run; False when it is unknown or already settled.

        With `settled` False a later `finish` or `settle` may still change it. `audit` belongs to the final word.
        """
        row = {"run": run_id, "state": state.value, "reason": reason, "settled": settled}

        def unit(connection: sa.Connection) -> bool:
            changed = connection.execute(_SETTLE, row).rowcount == 1
            if changed and audit is not None:
                connection.execute(INSERT_AUDIT, asdict(audit))
            return changed

        return await self._database.write(unit)

    async def get(self, run_id: str, caller_id: str | None) -> StoredRun | None:
        """One run of this caller (None: of anybody); another caller's is as unknown as one that never was."""
        asked = {"run": run_id} | ({} if caller_id is None else {"caller": caller_id})
        rows = await self._database.fetch(_one(own=caller_id is not None), asked)
        return _stored(rows[0]) if rows else None

    async def page(self, caller_id: str | None, cursor: str | None, limit: int) -> RunsPage | None:
        """Runs of this caller (None: of everybody), newest first; None for a cursor that is not one of theirs."""
        asked: dict[str, Any] = {"limit": limit + 1} | ({} if caller_id is None else {"caller": caller_id})
        if cursor is not None:
            position = cursors.read(cursor, caller_id)
            if position is None:
                return None
            asked["before"], asked["before_id"] = position
        statement = _newest(own=caller_id is not None, after=cursor is not None)
        rows = await self._database.fetch(statement, asked, many=True)
        found = tuple(_stored(row) for row in rows[:limit])
        more = len(rows) > limit
        return RunsPage(
            found, cursors.make(found[-1].created_unix_ms, found[-1].id, caller_id) if more else None
        )

    async def by_key(self, caller_id: str, key_sha256: str) -> KeptRun | None:
        """The run that holds this caller's key; None for a key that is unknown or expired."""
        raise NotImplementedError

    async def body(self, run_id: str, caller_id: str | None) -> bytes | None:
        """The kept answer of a run of this caller (None: of anybody); None when there is none, not yet or no more."""
        raise NotImplementedError

    async def request_cancel(self, run_id: str, caller_id: str | None) -> StoredRun | None:
        """Ask whoever owns the run to stop it, if it can still end; the run as it is then, None when it is not theirs."""
        raise NotImplementedError

    async def cancel_requests(self, owner: str) -> list[str]:
        """The open runs of this owner that somebody asked to stop."""
        raise NotImplementedError

    async def adopt_orphans(self, own_id: str, reason: str, final_after_ms: int) -> int:
        """Say `may_have_run` of open runs whose replica is gone; how many changed.

        They can still end while their replica could come back: until `final_after_ms` after its lease, or until it left.
        """
        raise NotImplementedError

    async def unfinished(self) -> list[StoredRun]:
        """Every run whose state is not final, oldest first."""
        rows = await self._database.fetch(_UNSETTLED, many=True)
        return [_stored(row) for row in rows]

    async def reconcile_at_start(self, now_unix_ms: int, reason: str) -> int:
        """Settle what an earlier process left open as `may_have_run`; how many there were.

        Only for the sole owner of the database before it serves: every open run is then one that nobody will ever end.
        """
        return await self._database.write(lambda connection: _abandon(connection, now_unix_ms, reason))


def _abandon(connection: sa.Connection, now_unix_ms: int, reason: str) -> int:
    is_open = runs.c.settled == sa.false()
    same = ("kind", "floor", "provider", "tier", "request_sha256")
    event = f"run.{State.MAY_HAVE_RUN}"
    lines = sa.select(
        sa.literal(now_unix_ms, sa.BigInteger),
        sa.literal(event),
        runs.c.caller_id,
        runs.c.id,
        sa.literal(reason),
        *(runs.c[name] for name in same),
    ).where(is_open)
    columns = ["unix_ms", "event", "caller_id", "run_id", "reason", *same]
    connection.execute(sa.insert(audit).from_select(columns, lines))
    final = {"state": State.MAY_HAVE_RUN.value, "reason": reason, "settled": True}
    return connection.execute(sa.update(runs).where(is_open).values(final)).rowcount


@cache
def _one(*, own: bool) -> sa.Select[Any]:
    return _joined(own=own).where(runs.c.id == sa.bindparam("run"))


@cache
def _newest(*, own: bool, after: bool) -> sa.Select[Any]:
    statement = _joined(own=own)
    if after:
        position = sa.tuple_(runs.c.created_unix_ms, runs.c.id)
        statement = statement.where(position < sa.tuple_(sa.bindparam("before"), sa.bindparam("before_id")))
    newest = (runs.c.created_unix_ms.desc(), runs.c.id.desc())
    return statement.order_by(*newest).limit(sa.bindparam("limit", type_=sa.Integer))


def _joined(*, own: bool) -> sa.Select[Any]:
    statement = sa.select(*_RUN_COLUMNS, *_RECORD_COLUMNS).select_from(runs.outerjoin(records))
    return statement.where(runs.c.caller_id == sa.bindparam("caller")) if own else statement


_COUNT = len(_RUN_COLUMNS)
_NAMES = [column.name for column in _RUN_COLUMNS]
_FLAGS = {column.name for column in _RUN_COLUMNS if isinstance(column.type, sa.Boolean)}


def _stored(row: Sequence[Any]) -> StoredRun:
    values = dict(zip(_NAMES, row[:_COUNT], strict=True))
    for name in _FLAGS:
        values[name] = None if values[name] is None else bool(values[name])
    values |= {
        "kind": Kind(values["kind"]),
        "tier": Tier(values["tier"]),
        "state": State(values["state"]),
    }
    record = row[_COUNT:]
    return StoredRun(**values, record=None if record[0] is None else RunRecord(*record))


def _plain(value: Any) -> Any:
    """A word of an enumeration as the plain string that drivers know best."""
    return value.value if isinstance(value, Kind | Tier) else value
