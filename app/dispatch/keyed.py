"""Exactly once for a key: a request that was seen before is answered, never run again.

An Idempotency-Key belongs to one caller and is kept, as its SHA-256, for 24 hours with the fingerprint of its request. What it
is worth depends on the state of its run only:

    no run                        run it
    another fingerprint           conflict: nothing of this request ran
    finished                      the stored answer, byte for byte
    starting, or may still settle look again later
    may have run, final           may have run, again
    not dispatched                admitted again under a new run id; the key moves with it in the same commit
"""

import json
from dataclasses import dataclass
from typing import Protocol

from app.dispatch.advice import FINDINGS
from app.dispatch.attempt import Cancel, Render
from app.dispatch.dispatcher import Dispatcher, Live, Wish
from app.dispatch.leases import profile_name
from app.dispatch.outcome import may_have_run
from app.identity import Caller
from app.store.values import Keep, KeptRun, Key, KeyTaken, State, StoredRun, StoreError
from plimsoll.contract import bounds, content
from plimsoll.contract.encoding import Digest
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused
from plimsoll.contract.requests import Project, RunRequest
from plimsoll.records import request_digest

KEPT_MS = 24 * 3_600_000
ENVELOPE_BYTES = 8 * 1024
STEP_BYTES = ARTIFACT_BYTES = 512
"""Of one step or artifact, beside its strings."""
ADVICE_BYTES = FINDINGS * 14 * 1024
"""Of a run with a grant: a finding names two routes, each of at most 6,216 characters that JSON writes as they are."""
WORST_ESCAPE = 6
"""A control character takes one byte of output and six of JSON (`\\u0000`)."""
_TRIES = 4

CONFLICT = Refusal(
    Code.KEY_CONFLICT, "This Idempotency-Key came with another request before.", Reason.REQUEST
)
KEY_UNKNOWN = Refusal(Code.UNAVAILABLE, "The database cannot say whether this Idempotency-Key has a run.")
"""Without a mark: it may have one."""
BUSY_KEY = Refusal(Code.CAPACITY, "This Idempotency-Key is in use right now.", None, retry_after_s=1)


class Answers(Protocol):
    """The part of the store that finds a run by its key."""

    async def by_key(self, caller_id: str, key_sha256: str) -> KeptRun | None: ...


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored answer of a finished run."""

    run: StoredRun
    body: bytes


@dataclass(frozen=True, slots=True)
class Pending:
    """A run that has no final word yet."""

    run: StoredRun


@dataclass(frozen=True, slots=True)
class Again:
    """The run that was not dispatched and is to be replaced, or None when the key is new."""

    replaces: str | None


@dataclass(frozen=True, slots=True)
class Room:
    """How many bytes of kept answers one caller, and all together, may have; `output_bytes` is the cap of a stream."""

    caller_bytes: int
    total_bytes: int
    output_bytes: int

    def reserve(self, request: RunRequest) -> int:
        """Bytes the answer to `request` can take at most."""
        streams = 2 * self.output_bytes * WORST_ESCAPE
        around = ENVELOPE_BYTES + (ADVICE_BYTES if profile_name(request) else 0)
        if not isinstance(request.payload, Project):
            return streams + around
        steps = sum(streams + STEP_BYTES + len(json.dumps(step)) for step in request.payload.steps)
        return steps + _artifacts(request.payload) + around


def _artifacts(project: Project) -> int:
    """Bytes its artifacts can take, with the paths, which hold no character that JSON writes longer than twice."""
    if not project.artifacts:
        return 0
    paths = sum(2 * len(path.encode()) for path in project.artifacts)
    slack = len(project.artifacts) * (content.SLACK_BYTES + ARTIFACT_BYTES)
    return content.longest(bounds.ARTIFACTS_BYTES) + slack + paths


def fingerprint(route: str, request: RunRequest, session: str = "") -> str:
    """Hex SHA-256 over the route's template, the session's fingerprint (or nothing) and the request digest."""
    digest = Digest("plimsoll.idempotency.v1").field("route", route).field("session", session)
    return digest.field("request_sha256", request_digest(request)).hexdigest()


def verdict(found: KeptRun | None, mine: str) -> Again | Stored | Pending | Refusal:
    """What a key's run means for a request with fingerprint `mine`; pure."""
    if found is None:
        return Again(None)
    if found.fingerprint != mine:
        return CONFLICT
    run = found.run
    if run.state is State.NOT_DISPATCHED:
        return Again(run.id)
    if run.state is State.FINISHED and found.body is not None:
        return Stored(run, found.body)
    if run.state is State.MAY_HAVE_RUN and run.settled:
        return may_have_run(run.id)
    return Pending(run)


@dataclass(frozen=True, slots=True)
class Keeper:
    """Begins runs whose answers are kept: keyed ones, async ones, or both."""

    dispatcher: Dispatcher
    answers: Answers
    room: Room

    async def begin(
        self,
        caller: Caller,
        request: RunRequest,
        cancel: Cancel,
        *,
        key: Key | None,
        render: Render,
        now_unix_ms: int,
        request_id: str = "",
        stream: bool = False,
    ) -> Live | Stored | Pending:
        """A new run, or what became of the one that holds the key. Raises Refused."""
        # A kept answer is not for who may not ask any more.
        await self.dispatcher.check(caller, request, request_id)
        for _ in range(_TRIES):
            known = verdict(await self._find(caller, key), key.fingerprint if key else "")
            if isinstance(known, Refusal):
                raise Refused(known)
            if not isinstance(known, Again):
                return known
            wish = Wish(request_id, stream, self._keep(request, key, now_unix_ms, known.replaces), render)
            try:
                return await self.dispatcher.begin(caller, request, cancel, wish)
            except KeyTaken:
                continue
            except Refused as refused:
                return await self._taken_meanwhile(caller, key, refused)
        raise Refused(BUSY_KEY)

    async def _find(self, caller: Caller, key: Key | None) -> KeptRun | None:
        try:
            return await self.answers.by_key(caller.id, key.sha256) if key else None
        except StoreError as error:
            raise Refused(KEY_UNKNOWN) from error

    async def _taken_meanwhile(self, caller: Caller, key: Key | None, refused: Refused) -> Stored | Pending:
        """A refusal as it is, unless another request took the key meanwhile: then its run is what counts. Raises Refused."""
        known = verdict(await self._find(caller, key), key.fingerprint if key else "")
        if isinstance(known, Again):
            raise refused
        if isinstance(known, Refusal):
            raise Refused(known) from refused
        return known

    def _keep(self, request: RunRequest, key: Key | None, now_unix_ms: int, replaces: str | None) -> Keep:
        room = self.room
        expires = now_unix_ms + KEPT_MS
        return Keep(key, room.reserve(request), expires, room.caller_bytes, room.total_bytes, replaces)
