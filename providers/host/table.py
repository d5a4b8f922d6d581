"""The host's own table of runs: tickets, running runs, ends. Pure; the clock and the secrets are passed in.

It is the only place that says "never started" (S13), so it never says so unless it is proven:

- a ticket is good once, for `TICKET_TTL_MS`, and for its own run id; running runs and good tickets together are the slots
- a voided run id gets no ticket again
- ends are kept for ten minutes within a count and a byte bound, ids of started runs longer; once an id of a started run had
  to be forgotten, an id that is not in the table is answered `broken` (may have run), never `unknown`
"""

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from plimsoll.contract.results import Artifact
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import TICKET_TTL_MS, Accepted, Ended, Out, RunState, Spec, StepEnded

KEPT_MS = 600_000
KEPT_ENDS = 1_024
KEPT_BYTES = 16 * 1024 * 1024
KEPT_IDS = 65_536
KEPT_VOIDS = 4_096

Stream = Literal["stdout", "stderr"]
Why = Literal["full", "used"]
Cause = Literal["unknown", "expired"]


@dataclass(frozen=True, slots=True)
class Promise:
    """What a ticket says of the worker and the run's record repeats, beside the tier. Empty: nothing."""

    environment: str = ""
    software_identity: str = ""
    policy: str = ""


@dataclass(slots=True)
class Held:
    """A good ticket."""

    spec: Spec
    promise: Promise
    secret: str = field(repr=False)
    expires_ms: int


@dataclass(slots=True)
class Running:
    """A spent ticket and what came of it so far."""

    spec: Spec
    promise: Promise = Promise()
    tier: Tier = Tier.NONE
    """The weakest wall there was since the start."""
    evidence_sha256: str = ""
    """Of that wall, as it was last seen."""
    accepted: Accepted | None = None
    cancelled: bool = False
    output: dict[tuple[int, Stream], bytearray] = field(default_factory=dict, repr=False)
    steps: list[StepEnded] = field(default_factory=list, repr=False)
    artifacts: list[Artifact] = field(default_factory=list, repr=False)

    def keep(self, out: Out) -> None:
        """Keep output for whoever asks later."""
        self.output.setdefault((out.step, out.stream), bytearray()).extend(out.data)

    def behind(self, tier: Tier, evidence_sha256: str) -> None:
        """The wall at the start."""
        self.tier, self.evidence_sha256 = tier, evidence_sha256

    def lower(self, tier: Tier, evidence_sha256: str) -> None:
        """The wall changed. A stronger one than it was before does not count for this run any more."""
        if tier.at_most(self.tier) is tier:
            self.behind(tier, evidence_sha256)


class Table:
    """Slots, tickets and ends of one boot."""

    def __init__(
        self,
        slots: int,
        boot_id: str,
        *,
        clock_ms: Callable[[], int],
        new_secret: Callable[[], str],
        kept_ids: int = KEPT_IDS,
    ) -> None:
        """`clock_ms` must go on while the machine sleeps, so that a ticket is never older than it looks."""
        self.slots = slots
        self._boot_id = boot_id
        self._clock_ms = clock_ms
        self._new_secret = new_secret
        self._kept_ids = kept_ids
        self._held: dict[str, Held] = {}
        self._running: dict[str, Running] = {}
        self._ends: OrderedDict[str, tuple[int, RunState]] = OrderedDict()
        self._end_bytes = 0
        self._void: OrderedDict[str, bool] = OrderedDict()
        self._started: OrderedDict[str, None] = OrderedDict()
        self._forgot = False

    @property
    def free(self) -> int:
        """Slots that are neither running nor promised."""
        self._expire()
        return self.slots - len(self._running) - len(self._held)

    @property
    def running(self) -> int:
        """How many runs are running."""
        return len(self._running)

    # --- before the start -----------------------------------------------------------------------------------------

    def reserve(self, spec: Spec, promise: Promise = Promise()) -> Held | Why:
        """A ticket. `used`: this id was started, voided, or holds a good ticket already."""
        if self.free <= 0:
            return "full"
        if spec.run_id in self._started or spec.run_id in self._held or self._void.get(spec.run_id, False):
            return "used"
        held = Held(spec, promise, self._new_secret(), self._clock_ms() + TICKET_TTL_MS)
        self._held[spec.run_id] = held
        self._void.pop(spec.run_id, None)
        return held

    def spend(self, run_id: str, secret: str) -> Running | Cause:
        """The run, now running: its ticket is gone. Anything else leaves the table as it was."""
        self._expire()
        held = self._held.get(run_id)
        if held is None:
            return "expired" if run_id in self._void else "unknown"
        if not hmac.compare_digest(held.secret.encode(), secret.encode()):
            return "unknown"
        del self._held[run_id]
        running = self._running[run_id] = Running(held.spec, held.promise)
        self._remember_started(run_id)
        return running

    def void(self, run_id: str) -> None:
        """Fence: an unspent ticket of this id is void, and no new one is made for it. Nothing else changes."""
        if self._held.pop(run_id, None) is not None or run_id in self._void:
            self._remember_void(run_id, fenced=True)

    def cancel(self, run_id: str) -> None:
        """Void an unspent ticket; note at a running run that it is not wanted any more."""
        self.void(run_id)
        if running := self._running.get(run_id):
            running.cancelled = True

    def lower(self, tier: Tier, evidence_sha256: str) -> None:
        """The wall around all that is running changed."""
        for running in self._running.values():
            running.lower(tier, evidence_sha256)

    # --- after the start ------------------------------------------------------------------------------------------

    def never_started(self, run_id: str) -> None:
        """The host knows that no code of this running run left it."""
        del self._running[run_id]
        self._started.pop(run_id, None)
        self._remember_void(run_id, fenced=True)

    def end(self, run_id: str, ended: Ended | None) -> None:
        """The run has its end (None: it broke) and its slot is free."""
        running = self._running.pop(run_id)
        state = RunState(
            run_id,
            self._boot_id,
            "broken" if ended is None else "finished",
            running.accepted,
            ended,
            tuple(Out(stream, bytes(data), step) for (step, stream), data in running.output.items()),
            tuple(running.steps),
            tuple(running.artifacts),
        )
        self._end_bytes += _size(state)
        self._ends[run_id] = (self._clock_ms() + KEPT_MS, state)
        self._trim()

    def state(self, run_id: str) -> RunState:
        """What became of a run."""
        self._expire()
        self._trim()
        if run_id in self._ends:
            return self._ends[run_id][1]
        if running := self._running.get(run_id):
            return RunState(run_id, self._boot_id, "running", running.accepted)
        return RunState(run_id, self._boot_id, self._without_run(run_id))

    def _without_run(self, run_id: str) -> Literal["reserved", "void", "broken", "unknown"]:
        if run_id in self._held:
            return "reserved"
        if run_id in self._void:
            return "void"
        return "broken" if self._forgot or run_id in self._started else "unknown"

    # --- bounds ---------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        """Tickets are in the order of their expiry, since all live equally long."""
        now = self._clock_ms()
        while self._held and (first := next(iter(self._held.values()))).expires_ms <= now:
            del self._held[first.spec.run_id]
            self._remember_void(first.spec.run_id, fenced=False)

    def _trim(self) -> None:
        now = self._clock_ms()
        while self._ends:
            expires, state = next(iter(self._ends.values()))
            if expires > now and len(self._ends) <= KEPT_ENDS and self._end_bytes <= KEPT_BYTES:
                return
            self._ends.popitem(last=False)
            self._end_bytes -= _size(state)

    def _remember_started(self, run_id: str) -> None:
        self._started[run_id] = None
        if len(self._started) > self._kept_ids:
            self._started.popitem(last=False)
            self._forgot = True

    def _remember_void(self, run_id: str, *, fenced: bool) -> None:
        """A forgotten one is answered `unknown`, which is as true of it as `void`."""
        self._void[run_id] = fenced
        self._void.move_to_end(run_id)
        if len(self._void) > KEPT_VOIDS:
            self._void.popitem(last=False)


def _size(state: RunState) -> int:
    return sum(len(out.data) for out in state.output) + sum(len(each.content) for each in state.artifacts)
