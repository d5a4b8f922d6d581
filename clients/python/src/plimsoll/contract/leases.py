"""What the service and its broker say to each other about one run: the lease it asks for, and what became of its calls.

Fields are only ever added, with a default. A trace is metadata: there is no field for a path, a query, a body or a credential.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from plimsoll.contract.profiles import Profile

_BYTES: dict[str, Any] = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}


@dataclass(frozen=True, slots=True)
class Registration:
    """A lease that is asked for. `caller_id` never changes, `caller_name` is looked for among the profile's allowed callers.

    `worker` is the one worker whose calls are taken; `budget_s` the longest that the run can take.
    """

    run_id: str
    profile: Profile
    sealed: bytes = field(repr=False)
    caller_id: str
    caller_name: str
    worker: str
    budget_s: float
    __pydantic_config__: ClassVar[dict[str, Any]] = _BYTES


@dataclass(frozen=True, slots=True)
class Registered:
    """The secret of a new lease, or the stable code of why there is none."""

    secret: str = field(default="", repr=False)
    fault: str = ""


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One call that went to the API. `route` is a position in the trace's routes; `status` is 0 when there was no answer.

    `repeat`: it brought what an earlier call of this run had brought, by the same path and query, with no write in between.
    """

    route: int
    status: int
    delivered: bool
    bytes_back: int
    ms: int
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class CallTrace:
    """One run's calls, in the order of their ends. `left_out` are the entries beyond the bound; the counts cover all.

    `failed` counts the calls that the guest got no answer to, by code: what was denied or shed never went to the API.
    """

    routes: tuple[str, ...] = ()
    entries: tuple[TraceEntry, ...] = ()
    left_out: int = 0
    sent: int = 0
    delivered: int = 0
    bytes_out: int = 0
    bytes_back: int = 0
    probes: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Closed:
    """A lease that is closed. `trace` is None when the broker knew none, because it expired or the broker was started anew."""

    trace: CallTrace | None = None
