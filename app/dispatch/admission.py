"""Whether a run may start here, decided in a fixed order; pure, and every denial is a value with its reason.

Candidates are narrowed by kind, software, grant and floor, in that order, and the first rule that leaves none names the
reason. A wall that is not proven right now meets no floor. The run goes to the first that is left, or to another one behind no
weaker wall.

Full or lost, capacity never moves a run to a weaker wall: a worker that is away keeps its place in the order by what it proved
last, and before its first look at the wall by what its kind can ever prove. One that is there and proves less than it did has
lost that place, so its runs go on to the next that meets their floor, and the result says which that was.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.settings import kind_of
from plimsoll.contract.refusals import Code, FieldFault, Reason, Refusal, invalid
from plimsoll.contract.requests import Cell, Kind, Module, RunRequest
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Environment, Health, WorkerInfo
from plimsoll.records import software_allowed

CEILINGS = {"wasm": Tier.PROCESS, "docker": Tier.KERNEL}
"""The strongest tier each kind of provider can ever prove."""
KINDS = {
    "wasm": frozenset({Kind.JAVASCRIPT}),
    "docker": frozenset({Kind.JAVASCRIPT, Kind.PYTHON, Kind.PROJECT}),
}
"""What each kind of provider can ever run; one that is not listed, anything."""

EXECUTION_DISABLED = Refusal(
    Code.EXECUTION_DISABLED, "Execution is off: no SANDBOX_PROVIDER is configured.", Reason.UNSUPPORTED
)
DRAINING = Refusal(Code.DRAINING, "The service is shutting down and takes no new runs.", Reason.ENVIRONMENT)
NO_BROKER = Refusal(Code.UNSUPPORTED, "Grants need a broker, and none is configured.", Reason.UNSUPPORTED)
UNAVAILABLE = Refusal(
    Code.UNAVAILABLE, "The worker for this run is not available right now.", Reason.ENVIRONMENT
)
STARTING = Refusal(
    Code.UNAVAILABLE, "The worker for this run is still starting.", Reason.ENVIRONMENT, retry_after_s=1
)


def ceiling_of(provider: str) -> Tier:
    """The strongest tier that `provider` can ever prove."""
    return CEILINGS.get(kind_of(provider), Tier.NONE)


def kinds_of(providers: Iterable[str]) -> frozenset[Kind]:
    """What any of `providers` can ever run."""
    return frozenset[Kind]().union(*(KINDS.get(kind_of(each), frozenset(Kind)) for each in providers))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configured provider as admission sees it. `info` is the latest known, None before the first.

    `pending`: its first look at its wall has not ended, well or badly.
    """

    provider: str
    ceiling: Tier
    info: WorkerInfo | None
    away: bool = False
    pending: bool = False

    @property
    def tier(self) -> Tier:
        """The wall it proves right now; `none` while it is away or refusing."""
        return Tier.NONE if self.away else self._proved

    @property
    def place(self) -> Tier:
        """The wall by which it keeps its place in the order: what it proves, or is expected to once it is there."""
        return self.ceiling if self.pending else self._proved

    @property
    def open(self) -> bool:
        """Whether nobody can tell yet what it will prove: it is not there, and proved nothing last."""
        absent = self.away or self.info is None or self.info.health is Health.STARTING
        return absent and self._proved is Tier.NONE

    def can_run(self, kind: Kind) -> bool:
        """Whether it runs this kind, as far as is known: before it is ready a provider may not know its environments."""
        if self.info is None or not self.info.environments:
            return kind in kinds_of([self.provider])
        return kind in self.info.environments

    @property
    def _proved(self) -> Tier:
        if self.info is None or self.info.health is not Health.SERVING:
            return Tier.NONE
        return self.info.tier.at_most(self.ceiling)


def choose(
    candidates: Sequence[Candidate], request: RunRequest, *, broker: bool = False
) -> tuple[Candidate, ...] | Refusal:
    """The candidates that may take `request`, best first, or why none may. `broker`: there is one for grants."""
    if not candidates:
        return EXECUTION_DISABLED
    if _profile(request) and not broker:
        return NO_BROKER
    serving = [each for each in candidates if each.can_run(request.payload.kind)]
    if not serving:
        return Refusal(
            Code.UNSUPPORTED, f"No provider here runs {request.payload.kind.value}.", Reason.UNSUPPORTED
        )
    if refusal := _timeout(serving, request):
        return refusal
    allowed = [each for each in serving if _software_meets(each, request)]
    if not allowed:
        return Refusal(
            Code.SOFTWARE_UNMET, "No worker here runs software that the rule allows.", Reason.ENVIRONMENT
        )
    if _profile(request) and not (allowed := [each for each in allowed if _can_call(each, request)]):
        detail = f"No provider here lets {request.payload.kind.value} call with a grant."
        return Refusal(Code.UNSUPPORTED, detail, Reason.UNSUPPORTED)
    return _by_floor(allowed, request.minimum_isolation)


def _profile(request: RunRequest) -> str:
    payload = request.payload
    return "" if isinstance(payload, Cell | Module) else payload.grant_profile


def _environment(candidate: Candidate, request: RunRequest) -> Environment | None:
    return candidate.info.environments.get(request.payload.kind) if candidate.info else None


def _timeout(serving: Sequence[Candidate], request: RunRequest) -> Refusal | None:
    known = [environment for each in serving if (environment := _environment(each, request))]
    ceiling = max((environment.max_timeout_ms for environment in known), default=request.timeout_ms)
    if request.timeout_ms <= ceiling:
        return None
    return invalid(FieldFault("timeout_ms", f"must be at most {ceiling} for this kind here"))


def _software_meets(candidate: Candidate, request: RunRequest) -> bool:
    """Software that is not known yet, because the provider is not ready, is not the reason that nothing runs."""
    environment = _environment(candidate, request)
    if environment is None or (candidate.place is Tier.NONE and not environment.software_identity):
        return True
    return software_allowed(request.software_rule, environment.software_identity)


def _can_call(candidate: Candidate, request: RunRequest) -> bool:
    """Whether its guests can call a broker; not known yet is not the reason that nothing runs."""
    environment = _environment(candidate, request)
    return environment is None or environment.grants


def _by_floor(allowed: Sequence[Candidate], floor: Tier | None) -> tuple[Candidate, ...] | Refusal:
    first = next((each for each in allowed if each.place.meets(floor)), None)
    if first is not None:
        # Full or lost, capacity never moves a run to a weaker wall than its first eligible provider.
        ready = [each for each in allowed if each.tier.meets(floor) and each.tier.rank >= first.place.rank]
        return tuple(ready) if ready else STARTING
    if any(each.open and each.ceiling.meets(floor) for each in allowed):
        return STARTING
    if floor is None:
        return UNAVAILABLE
    return Refusal(
        Code.ISOLATION_UNMET,
        f"No worker here proves the wall '{floor.value}' or a stronger one.",
        Reason.ISOLATION,
    )
