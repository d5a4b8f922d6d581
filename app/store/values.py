"""What goes into the store and comes out of it, and what can go wrong.

    StoreError              root of what this room lets out
      StoreUnavailable      the database failed; `.outcome` says whether the change can have happened
      AlreadyExists         a row with this key is there (a run id, a caller's name, a token)
      KeyTaken              another run holds this Idempotency-Key: look it up
      QuotaExceeded         no room to keep one more answer; `.scope` says whose
      StorageExceeded       this caller may store no more runs
      UnknownCaller         no caller of that name, or it was revoked
      StoreUnusable         the database cannot be opened as it is (owner, mode, lock, revision)

No value here holds code or a token, and none but `KeptRun` holds output.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from app.identity import Scope
from plimsoll.contract.profiles import Profile
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Fact


class State(StrEnum):
    """Where a run stands. The words are stored and are those of the REST API."""

    STARTING = "starting"
    FINISHED = "finished"
    NOT_DISPATCHED = "not_dispatched"
    MAY_HAVE_RUN = "may_have_run"


@dataclass(frozen=True, slots=True)
class StartingRun:
    """The write-ahead row: committed before `start` is called. `floor` is `""` when none was demanded.

    `owner` is the replica that runs it, by the id it gave to `replicas.beat`.
    """

    id: str
    caller_id: str
    kind: Kind
    floor: str
    provider: str
    tier: Tier
    boot_id: str
    trace_id: str
    request_sha256: str
    evidence_sha256: str
    environment: str
    software_identity: str
    code_bytes: int
    created_unix_ms: int
    owner: str = ""
    grant_profile: str = ""


@dataclass(frozen=True, slots=True)
class Key:
    """An Idempotency-Key as it is kept: its SHA-256, and the fingerprint of the request it came with."""

    sha256: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Keep:
    """An answer that is to be kept, for a keyed or an async run; its bytes are reserved with the starting row.

    `reserve_bytes` is the most that the answer can have. `replaces_run_id` is the `not_dispatched` run that the key belongs to
    so far, for a run that is admitted again.
    """

    key: Key | None
    reserve_bytes: int
    expires_unix_ms: int
    caller_quota_bytes: int
    total_quota_bytes: int
    replaces_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One line of the append-only trail: sizes, ids, tiers and codes only. A run has one, written with its end.

    `event` is a stable word: `run.finished`, `run.not_dispatched`, `run.may_have_run`, `caller.created`, … .
    """

    unix_ms: int
    event: str
    caller_id: str
    run_id: str = ""
    kind: str = ""
    floor: str = ""
    provider: str = ""
    tier: str = ""
    request_sha256: str = ""
    reason: str = ""
    exit_code: int | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """The end of a run. `tier` and `evidence_sha256` are those at the end and replace the ones it started with.

    `grant_trace` is what is kept of its calls, as text.
    """

    record: RunRecord
    exit_code: int
    timed_out: bool
    oom_killed: bool
    cancelled: bool
    duration_ms: int
    start_ms: int
    stdout_bytes: int
    stderr_bytes: int
    stdout_truncated: bool
    stderr_truncated: bool
    evidence_sha256: str
    tier: Tier
    ended_unix_ms: int
    audit: AuditRow
    grant_trace: str | None = None


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run as kept. What only an end knows is None before it; `record` exists for finished runs.

    `reason` is a not-dispatched reason or the stable cause of a `may_have_run`, else `""`. `settled` is False while `state` can
    still change: always for `starting`, never for `finished` and `not_dispatched`. `kept` says that its answer was to be kept;
    whether it still is, is known by asking for it.
    """

    id: str
    caller_id: str
    kind: Kind
    floor: str
    provider: str
    tier: Tier
    boot_id: str
    trace_id: str
    request_sha256: str
    evidence_sha256: str
    environment: str
    software_identity: str
    code_bytes: int
    created_unix_ms: int
    state: State
    reason: str
    settled: bool
    kept: bool
    owner: str
    ended_unix_ms: int | None = None
    exit_code: int | None = None
    timed_out: bool | None = None
    oom_killed: bool | None = None
    cancelled: bool | None = None
    duration_ms: int | None = None
    start_ms: int | None = None
    stdout_bytes: int | None = None
    stderr_bytes: int | None = None
    stdout_truncated: bool | None = None
    stderr_truncated: bool | None = None
    grant_profile: str = ""
    record: RunRecord | None = None


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A grant profile, its secret in a box that only the broker opens, and what callers and models are shown.

    `preamble` is JSON: source code by language. `advice` is off, operator or caller. `public_key` is a JWK as JSON, or empty.
    """

    profile: Profile
    sealed: bytes = field(repr=False)
    description: str = ""
    catalog: str = ""
    preamble: str = "{}"
    advice: str = "off"
    public_key: str = ""
    updated_unix_ms: int = 0


@dataclass(frozen=True, slots=True)
class KeptRun:
    """The run behind an Idempotency-Key. `body` is the answer byte for byte, None where there is none."""

    run: StoredRun
    fingerprint: str
    body: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunsPage:
    """Runs, newest first; `next_cursor` is None at the end."""

    runs: tuple[StoredRun, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """The facts behind one digest."""

    sha256: str
    provider: str
    tier: Tier
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class CallerToken:
    """One token of a caller, known by its SHA-256 alone. None: it does not expire."""

    sha256: str
    expires_unix_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NewCaller:
    """A caller to be made, with the tokens it starts with. One that is imported as revoked only keeps its name taken."""

    id: str
    name: str
    scopes: frozenset[Scope]
    tokens: tuple[CallerToken, ...]
    revoked_unix_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoredCaller:
    """A caller as kept. A revoked caller stays, so that its name is never given to another."""

    id: str
    name: str
    scopes: frozenset[Scope]
    created_unix_ms: int
    revoked_unix_ms: int | None
    tokens: tuple[CallerToken, ...] = field(default=())


class StoreError(Exception):
    """Root of what the store raises. Messages name no value of any row."""


Outcome = Literal["not_committed", "unknown"]


class StoreUnavailable(StoreError):
    """The database failed.

    `outcome` is `not_committed` where no commit was sent, so that nothing changed; `unknown` where the commit's answer was lost
    or bad, so that the change may be there.
    """

    def __init__(self, outcome: Outcome, cause: str = "") -> None:
        """`cause` is the type of what failed, never its text: a driver's text may repeat values."""
        super().__init__(f"the database failed ({outcome}){': ' + cause if cause else ''}")
        self.outcome: Outcome = outcome


class AlreadyExists(StoreError):
    """A row with this key is there already; nothing of the unit of work was kept."""


class KeyTaken(StoreError):
    """Another run holds this Idempotency-Key: look it up."""


class QuotaExceeded(StoreError):
    """There is no room to keep one more answer."""

    def __init__(self, scope: Literal["caller", "total"]) -> None:
        """`scope` says whose room is used up."""
        super().__init__(f"no room to keep one more answer ({scope})")
        self.scope: Literal["caller", "total"] = scope


class StorageExceeded(StoreError):
    """This caller has stored as many runs, or as many bytes, as it may; nothing of the unit of work was kept."""


class TooMuch(StoreError):
    """A bound on all that is kept of one sort; the message names it, and nothing of the unit of work was kept."""


class UnknownCaller(StoreError):
    """No caller has this name, or it was revoked."""


class StoreUnusable(StoreError):
    """The database cannot be opened as it is. The message is for the operator and says what to do."""
