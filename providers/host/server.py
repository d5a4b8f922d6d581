"""The Worker protocol's host: one provider, one process, one thread, one peer on a socketpair.

It keeps the protocol's rules (plimsoll/contract/worker.py): tickets and slots in its own table, the floor checked at `reserve`,
and the tier never above what the latest evidence proves nor above the ceiling of the provider's kind. At `start`, and again
when the code is about to leave, the floor must still be met and the worker be what the ticket says: a record repeats that.
A required fact that goes missing takes the tier to `none` at once.

Frames (plimsoll/contract/frames.py), `n` numbers a question and its answers, bodies are contract values as JSON:

    API  -> host    reserve {n} Spec · start {n, run, secret} Job · query {n, run, void} · cancel {n, run} · drain {n}
                    ping {n}: does it still answer
    host -> API     info {} WorkerInfo: pushed on every change, first of all with health `starting`
                    answer {n, free, shape: ticket|refusal|state|none}
                    event {n, free, shape: accepted|step_ended|ended|broken|ticket_refused, cause?}
                    event {n, shape: out, stream, step} bytes · event {n, shape: artifact, path} bytes

Of a run that nobody follows live, `accepted` and `out` are held for a moment (`Wire.hold`): the end of a short run goes along.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from plimsoll.contract import codec
from plimsoll.contract.refusals import Code, Reason, Refusal
from plimsoll.contract.results import Artifact
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import (
    Accepted,
    Broken,
    Ended,
    Environment,
    Health,
    Job,
    Out,
    RunState,
    Spec,
    StepEnded,
    Ticket,
    WorkerInfo,
)
from providers.host.broker import Broker
from providers.host.calls import Calls
from providers.host.table import Held, Promise, Running, Table
from providers.host.wall import Wall
from providers.host.wire import Wire
from providers.seam import Begun, Break, Call, Finish, NotStarted, Order, Provider

BEGIN_S: Final = 15.0
"""How long a provider may take to begin a run."""
GRACE_S: Final = 5.0
"""How long after a run's timeout its provider may take to end it."""
_CLOSE_S: Final = 50.0
"""Whoever waits for our end waits less, and then ends us. Nobody does when the service was killed."""
_MOST_SLOTS: Final = 1_024


def boottime_ms() -> int:
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


def unix_ms() -> int:
    """The wall clock, for values that people read."""
    return time.time_ns() // 1_000_000


class Host:
    """Answers the frames of one peer until that peer is gone."""

    def __init__(
        self,
        provider: Provider,
        wall: Wall,
        *,
        slots: int,
        clock_ms: Callable[[], int] = boottime_ms,
    ) -> None:
        """`wall` says what may be claimed; the table counts."""
        self.boot_id = secrets.token_hex(16)
        self._provider = provider
        self._wall = wall
        self._table = Table(slots, self.boot_id, clock_ms=clock_ms, new_secret=lambda: secrets.token_hex(16))
        self._draining = False
        self._wire: Wire | None = None
        self._runs: set[asyncio.Task[None]] = set()
        self._broker = Broker()

    async def serve(self, wire_of: Callable[[Callable[[dict[str, Any], bytes], None]], Wire]) -> None:
        """Serve until the peer or the provider is gone, then end every run and close the provider."""
        wire = self._wire = wire_of(self._frame)
        self._wall.changed = self._wall_changed
        self._push()
        watch, gone = asyncio.create_task(self._wall.watch()), asyncio.create_task(wire.gone.wait())
        try:
            await asyncio.wait((watch, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = (watch, gone, *self._runs)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            wire.close()
            self._broker.close()
            async with asyncio.timeout(_CLOSE_S):
                await self._provider.close()

    # --- what is said of this worker ------------------------------------------------------------------------------

    @property
    def _health(self) -> Health:
        return Health.DRAINING if self._draining else self._wall.health

    def info(self) -> WorkerInfo:
        """What this worker says of itself now."""
        wall = self._wall
        return WorkerInfo(
            boot_id=self.boot_id,
            provider=wall.provider,
            tier=wall.tier,
            health=self._health,
            facts=wall.facts,
            evidence_sha256=wall.evidence_sha256,
            checked_unix_ms=wall.checked_unix_ms,
            slots=self._table.slots,
            free=self._table.free,
            environments=self._provider.environments,
            policy=self._provider.policy,
            resources=self._provider.resources,
            faults=wall.faults,
            shortfalls=wall.shortfalls,
        )

    def _wall_changed(self) -> None:
        """Before anything else is said: no run that goes on has a stronger wall than the weakest it had."""
        self._table.lower(self._wall.tier, self._wall.evidence_sha256)
        self._push()

    def _push(self) -> None:
        self._send({"op": "info"}, codec.dumps(self.info()))

    def _send(self, header: Mapping[str, Any], body: bytes = b"", *, at_once: bool = True) -> None:
        if self._wire is not None:
            (self._wire.send if at_once else self._wire.hold)(header, body)

    # --- questions ------------------------------------------------------------------------------------------------

    def _frame(self, header: dict[str, Any], body: bytes) -> None:
        """Answer one frame. Raises on nonsense: the peer is our own API, so that is a bug."""
        number = int(header["n"])
        match header["op"]:
            case "reserve":
                self._answer(number, self.reserve(codec.loads(Spec, body)))
            case "start":
                self._start(number, str(header["run"]), str(header["secret"]), codec.loads(Job, body))
            case "query":
                self._answer(number, self.query(str(header["run"]), void=header["void"] is True))
            case "cancel":
                self.cancel(str(header["run"]))
                self._answer(number, None)
            case "drain":
                self._draining = True
                self._push()
                self._answer(number, None)
            case "ping":
                self._answer(number, None)
            case _:
                raise ValueError("unknown frame")

    def _answer(self, number: int, value: Ticket | Refusal | RunState | None) -> None:
        header = {"op": "answer", "n": number, "free": self._table.free}
        if value is None:
            self._send({**header, "shape": "none"})
            return
        shape = {Ticket: "ticket", Refusal: "refusal", RunState: "state"}[type(value)]
        self._send({**header, "shape": shape}, codec.dumps(value))

    def query(self, run_id: str, *, void: bool) -> RunState:
        """What became of a run, its unspent ticket voided first if asked."""
        if void:
            self._table.void(run_id)
        return self._table.state(run_id)

    def cancel(self, run_id: str) -> None:
        """Void the ticket, or end the run."""
        self._table.cancel(run_id)
        self._provider.cancel(run_id)

    # --- reservation ----------------------------------------------------------------------------------------------

    def reserve(self, spec: Spec) -> Ticket | Refusal:
        """A ticket, or the first reason in the order of admission: kind, software, floor, health, slot."""
        environment = self._provider.environments.get(spec.kind)
        if environment is None or not 1 <= spec.timeout_ms <= environment.max_timeout_ms:
            return Refusal(
                Code.UNSUPPORTED,
                f"The {self._wall.provider} provider does not run this.",
                Reason.UNSUPPORTED,
            )
        if refusal := _software(spec, environment) or self._unfit(spec):
            return refusal
        held = self._table.reserve(spec, self._promise(environment))
        if isinstance(held, Held):
            return self._ticket(held)
        if held == "full":
            return Refusal(
                Code.CAPACITY, "Every slot of this worker is taken.", Reason.CAPACITY, retry_after_s=1
            )
        return Refusal(Code.INTERNAL, "This run id was used before.")

    def _unfit(self, spec: Spec) -> Refusal | None:
        """Why this wall may not take it right now."""
        if spec.floor is not None and not self._wall.tier.meets(spec.floor):
            return Refusal(
                Code.ISOLATION_UNMET,
                f"The wall is {self._wall.tier.value}, the floor {spec.floor.value}.",
                Reason.ISOLATION,
            )
        if self._health is Health.DRAINING:
            return Refusal(Code.DRAINING, "This worker takes no new runs.", Reason.ENVIRONMENT)
        if self._health is not Health.SERVING or self._wall.tier is Tier.NONE:
            return Refusal(
                Code.UNAVAILABLE, "This worker cannot prove its wall right now.", Reason.ENVIRONMENT
            )
        return None

    def _promise(self, environment: Environment) -> Promise:
        """What this worker is now, in the words of a run's record."""
        return Promise(environment.identity, environment.software_identity, self._provider.policy)

    def _ticket(self, held: Held) -> Ticket:
        return Ticket(
            run_id=held.spec.run_id,
            secret=held.secret,
            boot_id=self.boot_id,
            provider=self._wall.provider,
            tier=self._wall.tier,
            floor=held.spec.floor,
            evidence_sha256=self._wall.evidence_sha256,
            environment=held.promise.environment,
            software_identity=held.promise.software_identity,
            policy=held.promise.policy,
        )

    # --- one run --------------------------------------------------------------------------------------------------

    def _start(self, number: int, run_id: str, secret: str, job: Job) -> None:
        """Spend the ticket; every check is made before the provider hears of the run."""
        running = self._table.spend(run_id, secret)
        if not isinstance(running, Running):
            self._event(number, "ticket_refused", cause=running)
            return
        try:
            self._confirm(running, job)
        except NotStarted as refused:
            self._table.never_started(run_id)
            self._event(number, "ticket_refused", cause=refused.cause)
            return
        task = asyncio.create_task(self._run(number, running, job))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)

    def _confirm(self, running: Running, job: Job) -> None:
        """At the start, and again when the code is about to leave: from then on the run has the wall that is there now.

        Raises NotStarted.
        """
        if cause := self._unstartable(running.spec, running.promise, job):
            raise NotStarted(cause)
        running.behind(self._wall.tier, self._wall.evidence_sha256)

    def _unstartable(self, spec: Spec, promise: Promise, job: Job) -> str | None:
        if (refusal := self._unfit(spec)) and refusal.code is not Code.DRAINING:
            return "isolation" if refusal.reason is Reason.ISOLATION else "unavailable"
        environment = self._provider.environments.get(spec.kind)
        if environment is None or self._promise(environment) != promise:
            return "changed"
        if job.lease is not None and not environment.grants:
            return "mismatch"
        same = job.run_id == spec.run_id and job.payload.kind == spec.kind
        return None if same and 1 <= job.timeout_ms <= spec.timeout_ms else "mismatch"

    async def _run(self, number: int, running: Running, job: Job) -> None:
        """From the spent ticket to exactly one last event."""
        run_id = running.spec.run_id
        try:
            if running.cancelled:  # between the spent ticket and now, so the provider never heard of it
                raise NotStarted  # noqa: TRY301  # one way to say it
            last = await self._with_calls(number, running, job)
        except NotStarted as proof:
            self._table.never_started(run_id)
            self._event(number, "ticket_refused", cause=proof.cause)
            return
        except TimeoutError:
            self._provider.cancel(run_id)
            last = Broken("provider_silent")
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            # Something below it was, which is no reason to lose an end and a slot.
            last = Broken("provider_failed")
        except Exception:  # noqa: BLE001  # whatever a provider does, the run gets an end, and it may have run
            last = Broken("provider_failed")
        self._table.end(run_id, last if isinstance(last, Ended) else None)
        self._event(number, "ended" if isinstance(last, Ended) else "broken", codec.dumps(last))

    async def _with_calls(self, number: int, running: Running, job: Job) -> Ended | Broken:
        """Calls die with the run: none is left, and none is possible, when its end is told."""
        if job.lease is None:
            return await self._steps(number, running, job, None)
        async with Calls(self._broker, job.lease, job.run_id) as calls:
            return await self._steps(number, running, job, calls.call)

    async def _steps(self, number: int, running: Running, job: Job, call: Call | None) -> Ended | Broken:
        """Pass the provider's steps on. Raises NotStarted (only before `Begun`) and TimeoutError."""
        began_ns = 0
        cap = min(job.output_bytes, running.spec.output_bytes, self._provider.resources.output_bytes)
        order = Order(
            job.run_id,
            running.spec.tenant,
            job.payload,
            job.timeout_ms,
            cap,
            job.stream,
            call,
            confirm=partial(self._confirm, running, job),
        )
        async with asyncio.timeout(BEGIN_S) as guard, aclosing(self._provider.run(order)) as steps:  # type: ignore[type-var]
            async for step in steps:
                if isinstance(step, Begun) is (running.accepted is not None):
                    return Broken("provider_disorder")
                match step:
                    case Begun():
                        began_ns = time.monotonic_ns()
                        self._accept(number, running, step, at_once=job.stream)
                        guard.reschedule(asyncio.get_running_loop().time() + job.timeout_ms / 1000 + GRACE_S)
                    case Out():
                        self._output(number, running, step, at_once=job.stream)
                    case StepEnded():
                        running.steps.append(step)
                        self._event(number, "step_ended", codec.dumps(step))
                    case Artifact():
                        running.artifacts.append(step)
                        header = {"op": "event", "n": number, "shape": "artifact", "path": step.path}
                        self._send(header, step.content)
                    case Finish():
                        return self._ended(running, step, (time.monotonic_ns() - began_ns) // 1_000_000)
                    case Break(cause=cause):
                        return Broken(cause)
        return Broken("provider_no_end")

    def _accept(self, number: int, running: Running, begun: Begun, *, at_once: bool) -> None:
        running.accepted = Accepted(
            begun.instance, running.tier, running.evidence_sha256, unix_ms(), begun.start_ms
        )
        self._send(self._head(number, "accepted"), codec.dumps(running.accepted), at_once=at_once)

    def _output(self, number: int, running: Running, out: Out, *, at_once: bool) -> None:
        running.keep(out)
        header = {"op": "event", "n": number, "shape": "out", "stream": out.stream, "step": out.step}
        self._send(header, out.data, at_once=at_once)

    def _ended(self, running: Running, finish: Finish, duration_ms: int) -> Ended:
        """The end with the weakest wall there was from the start on, and the evidence of that one."""
        return Ended(
            exit_code=finish.exit_code,
            timed_out=finish.timed_out,
            oom_killed=finish.oom_killed,
            cancelled=finish.cancelled,
            stdout_truncated=finish.stdout_truncated,
            stderr_truncated=finish.stderr_truncated,
            unix_ms=unix_ms(),
            duration_ms=duration_ms,
            tier=running.tier,
            evidence_sha256=running.evidence_sha256,
            outcome=finish.outcome,
            outcome_detail=finish.outcome_detail,
            artifacts_truncated=finish.artifacts_truncated,
        )

    def _event(self, number: int, shape: str, body: bytes = b"", **more: str) -> None:
        self._send(self._head(number, shape) | more, body)

    def _head(self, number: int, shape: str) -> dict[str, Any]:
        return {"op": "event", "n": number, "free": self._table.free, "shape": shape}


def _software(spec: Spec, environment: Environment) -> Refusal | None:
    rule = spec.software_rule
    if rule is None or environment.software_identity in rule.identities:
        return None
    return Refusal(Code.SOFTWARE_UNMET, "This worker runs other software.", Reason.ENVIRONMENT)


def slots_of(settings: Mapping[str, Any]) -> int:
    """The number of slots from the settings, 1 to 1,024; two a processor when absent."""
    slots = settings.get("slots", 2 * (os.cpu_count() or 1))
    if not isinstance(slots, int) or not 1 <= slots <= _MOST_SLOTS:
        raise ValueError("slots")
    return slots


def _is_cancelled() -> bool:
    """Whether this very task was asked to end."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
