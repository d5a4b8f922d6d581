"""The Worker protocol: one interface for a provider on this machine and for one on many.

The rules it carries (docs/guarantees.md):

1. A worker runs code only on a `start` with its own unspent, unexpired ticket.
2. Everything before `start` is provably not dispatched; after `start` a run is never sent anywhere again.
3. `query(run_id, void=True)` is a fence: it voids an unspent ticket before it answers, so no later `start` can spend it.
4. Only the worker's host-side table says "ticket refused" or "never ran"; nothing a guest or runner says can.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol

from plimsoll.contract.refusals import Refusal
from plimsoll.contract.requests import Kind, Payload, SoftwareRule
from plimsoll.contract.results import Artifact, Outcome
from plimsoll.contract.tiers import Tier

TICKET_TTL_MS = 5_000


@dataclass(frozen=True, slots=True)
class Fact:
    """One observed fact about a wall. Evidence, never hardware attestation.

    `source` says where it was read (for example `runner`), `observed` how, `unix_ms` when this value was
    first seen, `supports` the tier that cannot be claimed without it.
    """

    name: str
    value: str
    source: str
    observed: str
    unix_ms: int
    supports: Tier


@dataclass(frozen=True, slots=True)
class Environment:
    """What runs one kind of payload: content address, software identity, ceiling in milliseconds, languages.

    `grants`: a run of it can make calls through a broker.
    """

    identity: str
    software_identity: str
    max_timeout_ms: int
    languages: tuple[str, ...]
    grants: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """Limits one run gets. None: this provider does not have that limit."""

    memory_mb: int
    cpus: float | None = None
    pids: int | None = None
    disk_mb: int | None = None
    output_bytes: int = 65536


class Health(StrEnum):
    """What a worker does with new work."""

    STARTING = "starting"
    SERVING = "serving"
    REFUSING = "refusing"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself.

    `faults` are stable codes (`[a-z0-9_]+`) of the required facts that are missing; with any, `health` is
    `refusing` and `tier` is `none`. `shortfalls` are codes of what the next stronger wall would have needed; they take
    nothing away. `evidence_sha256` covers the facts in order
    (`plimsoll.contract.evidence`), not `checked_unix_ms`.
    """

    boot_id: str
    provider: str
    tier: Tier
    health: Health
    facts: tuple[Fact, ...]
    evidence_sha256: str
    checked_unix_ms: int
    slots: int
    free: int
    environments: Mapping[Kind, Environment]
    policy: str
    resources: Resources
    faults: tuple[str, ...] = ()
    shortfalls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """What a reservation needs to know: no code, no caller name. `tenant` is an opaque tag equal for one caller's runs."""

    run_id: str
    tenant: str
    kind: Kind
    floor: Tier | None
    timeout_ms: int
    output_bytes: int
    software_rule: SoftwareRule | None = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """A worker's promise of one slot, good for `ttl_ms` from the moment it was made. `secret` is spent by `start`."""

    run_id: str
    secret: str = field(repr=False)
    boot_id: str
    provider: str
    tier: Tier
    floor: Tier | None
    evidence_sha256: str
    environment: str
    software_identity: str
    policy: str
    ttl_ms: int = TICKET_TTL_MS


@dataclass(frozen=True, slots=True)
class Lease:
    """How a worker's host side calls the broker for one run: where, as which worker, with what secret. Not for guests.

    `broker` is `unix:///PATH` or `http://HOST:PORT`.
    """

    broker: str
    worker: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Job:
    """The run itself: what `start` hands over. With `stream` output comes as the guest makes it, not only at the end.

    With a `lease` the run's code can make calls, as long as it runs.
    """

    run_id: str
    payload: Payload
    timeout_ms: int
    output_bytes: int
    stream: bool = False
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The worker took the run: its deadline starts now. `start_ms` is how long it waited for its sandbox."""

    instance: str
    tier: Tier
    evidence_sha256: str
    unix_ms: int
    start_ms: int = 0


@dataclass(frozen=True, slots=True)
class Out:
    """Output bytes as they came, already inside the cap; a snippet is step 0."""

    stream: Literal["stdout", "stderr"]
    data: bytes = field(repr=False)
    step: int = 0
    __pydantic_config__: ClassVar[dict[str, Any]] = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A project's step is over; steps are numbered from 0, in order. Of the values only `exit_code` can be the guest's."""

    step: int
    exit_code: int
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """The run's one end. Decided on the worker's host side except for the guest's own exit code.

    `exit_code` of a project is that of its last step. The last three fields are a project's.
    """

    exit_code: int
    timed_out: bool = False
    oom_killed: bool = False
    cancelled: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    unix_ms: int = 0
    duration_ms: int = 0
    tier: Tier = Tier.NONE
    evidence_sha256: str = ""
    outcome: Outcome = Outcome.UNSPECIFIED
    outcome_detail: str = ""
    artifacts_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Broken:
    """The sandbox died without an end (a crashed runner): the run may have run. `cause` is a stable code."""

    cause: str


Event = Accepted | Out | StepEnded | Artifact | Ended | Broken


@dataclass(frozen=True, slots=True)
class RunState:
    """Answer of `query`. `void` and `unknown` from the same boot prove that the run never started and never will.

    `output` has one entry for each stream of each step that wrote anything.
    """

    run_id: str
    boot_id: str
    state: Literal["unknown", "void", "reserved", "running", "finished", "broken"]
    accepted: Accepted | None = None
    ended: Ended | None = None
    output: tuple[Out, ...] = ()
    steps: tuple[StepEnded, ...] = ()
    artifacts: tuple[Artifact, ...] = ()


class WorkerError(Exception):
    """Root of what a Worker may raise."""


class NotSent(WorkerError):  # names a fact, the proof that nothing ran
    """The start failed before a byte left: not dispatched."""


class TicketRefused(WorkerError):  # names a fact, the proof that nothing ran
    """The worker's own table refused the ticket: not dispatched."""


class WorkerLost(WorkerError):  # names a fact
    """The worker went away or fell silent after `start`: the run may have run."""


class WorkerSilent(WorkerLost):  # names a fact
    """The worker is there, and said nothing until it was due."""


class Worker(Protocol):
    """A provider with slots. Implementations: the link to a provider process, and fakes in tests."""

    async def info(self) -> WorkerInfo:
        """What it says of itself now. Raises WorkerLost when it cannot be asked."""
        ...

    async def reserve(self, spec: Spec) -> Ticket | Refusal:
        """One slot, or why not; never waits for another run. Raises WorkerLost."""
        ...

    def start(self, ticket: Ticket, job: Job) -> AsyncIterator[Event]:
        """Spend the ticket: `Accepted`, any `Out`, then one `Ended` or `Broken`. Raises NotSent, TicketRefused, WorkerLost.

        A project's `Out` belong to the step that is next to end, and its `Artifact`s come after the last `StepEnded`.
        """
        ...

    async def query(self, run_id: str, *, void: bool) -> RunState:
        """What became of a run; with `void` an unspent ticket is void before the answer. Raises WorkerLost."""
        ...

    async def cancel(self, run_id: str) -> None:
        """End a running run (its end then says `cancelled`) or void its ticket. Unknown ids are ignored."""
        ...
