"""How an answer reaches its caller: waited for, streamed, later, or from what was kept for its key."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Literal

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from app.api.answers import answer, unknown
from app.api.services import Services
from app.api.shapes import answer_bytes, live_view, run_view
from app.api.stream import replay_events, run_events
from app.dispatch.attempt import Cancel
from app.dispatch.dispatcher import Live, Wish
from app.dispatch.keyed import Pending, Stored, fingerprint
from app.http.delivery import Delivery
from app.http.disconnect import on_disconnect
from app.http.ids import caller_of, request_id_of
from app.http.proof import key_looked_up
from app.http.strict import RunRead
from app.identity import Caller, Scope
from app.store.values import Key, State, StoredRun
from plimsoll.contract import bounds
from plimsoll.contract.rest import CancelBody, RunView

ROUTE: Final = "POST /v1/runs"
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_CANCEL_S = 5.0
_JSON = "application/json"
_EVENTS = "text/event-stream"


async def deliver(services: Services, request: Request, read: RunRead, wanted: Delivery) -> Response:
    """Run it, or find what became of the run that holds its key, and answer as wanted. Raises Refused."""
    cancel = Cancel()
    begun = await _begin(services, request, read, wanted, cancel)
    match begun:
        case Stored():
            return _stored(begun, wanted)
        case Pending():
            return _later(run_view(begun.run))
        case Live() if wanted.later:
            return _later(live_view(begun.attempt.row), applied=True)
        case Live() if wanted.stream:
            events = run_events(begun, request_id_of(request.scope), kept=wanted.kept)
            return _streamed(events)
        case Live():
            return await _waited(request, begun, wanted, cancel)


async def _begin(
    services: Services, request: Request, read: RunRead, wanted: Delivery, cancel: Cancel
) -> Live | Stored | Pending:
    caller, request_id = caller_of(request.scope), request_id_of(request.scope)
    if not wanted.kept:
        wish = Wish(request_id, wanted.stream)
        return await services.dispatcher.begin(caller, read.request, cancel, wish)
    key = None
    if wanted.key_sha256:
        key = Key(wanted.key_sha256, fingerprint(ROUTE, read.request))
        if caller.may(Scope.RUN):  # else it is refused before the keeper looks
            key_looked_up(request.scope)
    return await services.keeper.begin(
        caller,
        read.request,
        cancel,
        key=key,
        render=answer_bytes,
        now_unix_ms=services.unix_ms(),
        request_id=request_id,
        stream=wanted.stream,
    )


async def _waited(request: Request, live: Live, wanted: Delivery, cancel: Cancel) -> Response:
    """The answer once the run ended. A caller that goes away cancels its run, unless the answer is kept."""
    if wanted.kept:
        run = await live.end()
        return Response(run.body or answer_bytes(run), media_type=_JSON)
    with on_disconnect(request.receive, cancel.request):
        return Response(answer_bytes(await live.end()), media_type=_JSON)


def _streamed(events: AsyncIterator[bytes]) -> Response:
    """Events as they come: a proxy that gathers answers (nginx does) is told not to."""
    return StreamingResponse(events, media_type=_EVENTS, headers={"x-accel-buffering": "no"})


def _stored(stored: Stored, wanted: Delivery) -> Response:
    if wanted.stream:
        return _streamed(replay_events(stored.body))
    return Response(stored.body, media_type=_JSON)


def _later(view: RunView, *, applied: bool = False) -> Response:
    response = answer(view, 202, sparse=True)
    response.headers["location"] = f"/v1/runs/{view.id}"
    if applied:
        response.headers["preference-applied"] = "respond-async"
    return response


async def found(services: Services, whose: str | None, run_id: str) -> StoredRun:
    """One of the caller's runs. Raises Refused (404) for an unknown or somebody else's."""
    run = await services.runs.get(run_id, whose) if bounds.RUN_ID.fullmatch(run_id) else None
    if run is None:
        unknown("run")
    return run


async def awaited(
    services: Services, caller: Caller, whose: str | None, run_id: str, wait_s: float
) -> StoredRun:
    """The run once it can change no more, or as it is after `wait_s`. A wait counts in the caller's concurrency."""
    run = await found(services, whose, run_id)
    if run.settled or not wait_s:
        return run
    with services.dispatcher.waiting(caller):
        return await _settled(services, whose, run, wait_s)


async def _settled(services: Services, whose: str | None, run: StoredRun, wait_s: float) -> StoredRun:
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + wait_s, _FIRST_PAUSE_S
    while not run.settled and loop.time() < until:
        await asyncio.sleep(min(pause, max(0.0, until - loop.time())))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
        run = await found(services, whose, run.id)
    return run


async def cancelled(services: Services, caller_id: str, run_id: str) -> CancelBody:
    """Ask the run to end, here or on the replica that has it, and wait a few seconds for its last word."""
    run = await found(services, caller_id, run_id)
    if not run.settled:
        if not services.dispatcher.cancel(run_id):
            await services.runs.request_cancel(run_id, caller_id)
        run = await _settled(services, caller_id, run, _CANCEL_S)
    return CancelBody(id=run.id, state=run.state.value, outcome=_outcome(run))


Outcome = Literal["cancelled", "already_finished", "not_dispatched", "may_have_run", "requested"]


def _outcome(run: StoredRun) -> Outcome:
    if not run.settled:
        return "requested"
    match run.state:
        case State.NOT_DISPATCHED:
            return "not_dispatched"
        case State.MAY_HAVE_RUN:
            return "may_have_run"
        case _:
            return "cancelled" if run.cancelled else "already_finished"
