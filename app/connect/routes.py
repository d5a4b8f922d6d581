"""`POST /plimsoll.v1.SandboxService/…`: the procedures. A refusal is answered as a Connect error (app.http.connect)."""

import json
from collections.abc import Callable
from typing import Protocol, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.connect.headers import broken_rule
from app.connect.requests import read_describe, read_run, read_session
from app.connect.responses import Json, describe_response, run_response
from app.dispatch.attempt import Cancel
from app.dispatch.dispatcher import Dispatcher
from app.dispatch.outcome import Finished
from app.http.answers import read_body
from app.http.budget import Budget
from app.http.connect import SERVICE_PATH
from app.http.disconnect import on_disconnect
from app.http.ids import caller_of, request_id_of
from app.http.limits import BodyLimits
from app.http.strict import RunRead
from app.log import event, logger
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused

Read = TypeVar("Read")
_UNKNOWN = Refusal(Code.UNSUPPORTED, "There is no such procedure here.", Reason.UNSUPPORTED)


class Broker(Protocol):
    """What this API says of the broker."""

    @property
    def serving(self) -> Callable[[], bool]: ...


class Services(Protocol):
    """The part of the running service that this API needs."""

    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def body(self) -> BodyLimits: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def broker(self) -> Broker: ...


GetServices = Callable[[], Services]


def router(services: GetServices) -> APIRouter:
    """The procedures over what `services` gives once the service runs. openapi.json does not speak of them."""
    routes = APIRouter(prefix=SERVICE_PATH, include_in_schema=False)

    @routes.post("/Describe")
    async def describe(request: Request) -> Response:
        if refusal := await _read(request, services(), read_describe):
            raise Refused(refusal)
        candidates, broker = services().dispatcher.candidates(), services().broker.serving()
        return _answer(describe_response(candidates[0] if candidates else None, broker=broker))

    @routes.post("/Run")
    async def run(request: Request) -> Response:
        read = await _read(request, services(), read_run)
        if isinstance(read, Refusal):
            raise Refused(read)
        return _answer(run_response(await _run(services().dispatcher, request, read)))

    @routes.post("/OpenSession")
    @routes.post("/SessionRun")
    @routes.post("/CloseSession")
    async def session(request: Request) -> Response:
        raise Refused(await _read(request, services(), read_session))

    @routes.post("/{procedure:path}")
    async def unknown(procedure: str) -> Response:  # noqa: ARG001  # FastAPI hands it over, and its name says nothing
        raise Refused(_UNKNOWN)

    return routes


async def _read(request: Request, services: Services, read: Callable[[bytes, BodyLimits], Read]) -> Read:
    """What `read` makes of the body of a call whose header is in order. Raises Refused."""
    if refusal := broken_rule(request.scope["headers"]):
        raise Refused(refusal)
    with services.budget.open(caller_of(request.scope).id) as take:
        body = await read_body(request.receive, services.body.size, take)
        if isinstance(body, Refusal):
            raise Refused(body)
        return read(body, services.body)


def _answer(message: Json) -> Response:
    return Response(json.dumps(message, separators=(",", ":")), media_type="application/json")


async def _run(dispatcher: Dispatcher, request: Request, read: RunRead) -> Finished:
    """The finished run. A caller that goes away cancels it: this API has no way to come back for an answer."""
    caller, request_id = caller_of(request.scope), request_id_of(request.scope)
    if read.trace_id_dropped:
        event(logger, "trace_id.dropped", request_id=request_id)
    cancel = Cancel()
    with on_disconnect(request.receive, cancel.request):
        return await dispatcher.run(caller, read.request, cancel, request_id)
