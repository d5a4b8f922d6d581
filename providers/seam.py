"""What the host needs of a provider, and nothing more: facts about the wall, and one run at a time behind it.

The host (providers/host) owns slots, tickets, floors, tiers and the clock; a provider says what it observed and runs code. It
decides on its own side of the wall: nothing that a guest or a runner says is passed on as a fact.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from plimsoll.contract.bounds import OUTPUT_FLOOD_FACTOR
from plimsoll.contract.requests import Kind, Payload
from plimsoll.contract.results import Artifact, Outcome
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Environment, Out, Resources, StepEnded

CEILINGS: Final[Mapping[str, Tier]] = {"wasm": Tier.PROCESS, "docker": Tier.KERNEL}
"""The most a kind of provider can ever claim, whatever it observes. Any other kind: `process`."""

LOOKS_S: Final[Mapping[str, float]] = {"docker": 60.0}
"""How long one look may take, where it is not `LOOK_S`: docker's makes containers, seconds each on a busy host."""
LOOK_S: Final = 10.0


def kind_of(provider: str) -> str:
    """The kind of a provider from its name, an entry of SANDBOX_PROVIDER: `docker@runsc` is a `docker`."""
    return provider.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Observation:
    """One fact as a provider saw it; the host adds when this value was first seen. Fields as in `contract.worker.Fact`."""

    name: str
    value: str
    source: str
    observed: str
    supports: Tier


@dataclass(frozen=True, slots=True)
class Findings:
    """One look at the wall. `faults` are the codes of required facts that are missing: with any, nothing is served.

    `shortfalls` are the codes of what a stronger tier would have needed; they say why the tier is not that one.
    """

    tier: Tier
    observations: tuple[Observation, ...] = ()
    faults: tuple[str, ...] = ()
    shortfalls: tuple[str, ...] = ()


Call = Callable[[bytes], AbstractAsyncContextManager[bytes]]
"""One call of a running run's guest: its message, at most 2 MiB, and the answer to hand back, which is done within the block.
It never fails. It may be cancelled, and is at the run's end; many may be under way at once, and of large answers one."""


@dataclass(frozen=True, slots=True)
class Order:
    """One run for a provider. `tenant` is equal for runs that may share a sandbox's process.

    With `stream` every `Out` is given as the guest makes it; without, it may come as late as the end. `call` is there
    if the run has a grant: the provider takes the guest's messages to it, and knows nothing of what makes them valid.

    The provider calls `confirm` last before the code leaves: it raises NotStarted when the worker can no longer keep what
    was promised for the run, because its wall changed while the run waited for a sandbox.
    """

    run_id: str
    tenant: str
    payload: Payload
    timeout_ms: int
    output_bytes: int
    stream: bool = False
    call: Call | None = field(default=None, repr=False)
    confirm: Callable[[], None] = field(default=lambda: None, repr=False)


@dataclass(frozen=True, slots=True)
class Begun:
    """The sandbox is there and the code is with it: the deadline runs from now. `instance` never repeats."""

    instance: str
    start_ms: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """The run's end, decided on the host side except for the guest's own exit code. The last three fields are a project's."""

    exit_code: int
    timed_out: bool = False
    oom_killed: bool = False
    cancelled: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    outcome: Outcome = Outcome.UNSPECIFIED
    outcome_detail: str = ""
    artifacts_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Break:
    """The sandbox died without an end. `cause` is a stable code."""

    cause: str


Step = Begun | Out | StepEnded | Artifact | Finish | Break


class NotStarted(Exception):
    """No code left this process for the run, and none will. Only the provider's own side may say so, and only before Begun.

    `cause` is a stable code.
    """

    def __init__(self, cause: str = "not_started") -> None:
        """Keep the code."""
        super().__init__(cause)
        self.cause = cause


@contextmanager
def nothing_sent() -> Iterator[None]:
    """Around what a provider does for a run before its code leaves: whatever breaks in here raises NotStarted instead.

    So does a cancellation: who cancels a run that waits is told that nothing ran. What else broke is said on stderr, by its
    type alone.
    """
    try:
        yield
    except NotStarted:
        raise
    except asyncio.CancelledError:
        raise NotStarted from None
    except Exception as failure:
        sys.stderr.write(json.dumps({"event": "run-not-started", "code": type(failure).__name__}) + "\n")
        raise NotStarted from failure


class Lost(Exception):
    """The provider lost something that only a fresh process can have again: this one ends, and is started anew."""


class ProviderFault(Exception):
    """The provider cannot get ready; `code` is the required fact that is missing."""

    def __init__(self, code: str) -> None:
        """Keep the code."""
        super().__init__(code)
        self.code = code


class Provider(Protocol):
    """One kind of wall. `close` may be called at any time, also when `open` failed."""

    @property
    def environments(self) -> Mapping[Kind, Environment]:
        """What runs each kind of payload. The kinds are known before `open`, all else once the wall was seen to be there."""
        ...

    @property
    def policy(self) -> str:
        """Content address of the rules the wall enforces."""
        ...

    @property
    def resources(self) -> Resources:
        """Limits every run gets."""
        ...

    async def open(self, dropped: Callable[[str], None]) -> None:
        """Get ready. `dropped(fault)` is called later, at once, whenever a required fact is seen to be gone.

        Raises ProviderFault or Lost.
        """
        ...

    async def collect(self) -> Findings:
        """Look at the wall now, as well as can be. Raises Lost."""
        ...

    def run(self, order: Order) -> AsyncIterator[Step]:
        """`Begun`, any `Out`, then one `Finish` or `Break`. Raises NotStarted instead of `Begun`.

        A project's `Out` come before the `StepEnded` of their step, its `Artifact`s after the last.
        """
        ...

    def cancel(self, run_id: str) -> None:
        """End that run soon: its `Finish` then says `cancelled`. Unknown ids are ignored.

        From the first step of `run` on the run is known; the host keeps what comes earlier.
        """
        ...

    async def close(self) -> None:
        """End everything that was started, within two seconds; then, if it is let, what would not end by itself."""
        ...


Factory = Callable[[Mapping[str, Any]], Provider]
"""Makes a provider from its settings, before there is an event loop; whoever must fork, forks here."""

Stream = Literal["stdout", "stderr"]


class Meter:
    """Counts one run's output on the host side: what is inside the cap, what was cut, and when it is a flood."""

    __slots__ = ("_cap", "_flood_at", "_seen", "flooded")

    def __init__(self, cap: int, factor: int = OUTPUT_FLOOD_FACTOR) -> None:
        """Keep `cap` bytes a stream; more than `factor` times that is a flood."""
        self._cap = cap
        self._flood_at = cap * factor
        self._seen: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self.flooded = False

    def take(self, stream: Stream, data: bytes) -> bytes:
        """The part of `data` that is kept."""
        before = self._seen[stream]
        after = self._seen[stream] = before + len(data)
        if after <= self._cap:
            return data
        self.flooded = self.flooded or after > self._flood_at
        return data[: max(0, self._cap - before)]

    def truncated(self, stream: Stream) -> bool:
        """Whether more came than is kept."""
        return self._seen[stream] > self._cap
