"""`/v1/runs`: run a request and wait for its answer; read one's own runs and their records."""

import asyncio
from collections.abc import MutableMapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response
from starlette.types import Receive

from app.api.answers import HEADERS, answer, not_allowed, problems, unknown
from app.api.services import GetServices, Services
from app.api.shapes import record_body, run_answer, run_view
from app.dispatch.attempt import Cancel
from app.dispatch.dispatcher import payload_bytes
from app.dispatch.outcome import Finished
from app.http.answers import read_body
from app.http.checks import unsupported_header
from app.http.ids import caller_of, request_id_of
from app.http.strict import RunRead, read_run
from app.identity import Caller, Scope
from app.log import audit_run, event, logger
from app.store.values import StoredRun
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Code, FieldFault, Reason, Refusal, Refused, invalid
from plimsoll.contract.rest import RecordBody, RunAnswer, RunBody, RunPage, RunView

RunId = Annotated[str, Path(description="A run's id, 32 hex digits.")]
Limit = Annotated[int, Query(ge=1, le=100, description="Runs on a page.")]
Cursor = Annotated[str | None, Query(max_length=256, description="`next_cursor` of the page before.")]
Wait = Annotated[int, Query(ge=0, le=60, description="Seconds to wait for the run's end.")]

_WAIT_STEP_S = 0.1
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{RunBody.__name__}"}}},
    }
}
_LINKS = {
    "run": {"operationId": "get_run", "parameters": {"run_id": "$response.body#/id"}},
    "record": {"operationId": "get_record", "parameters": {"run_id": "$response.body#/id"}},
    "evidence": {"operationId": "get_evidence", "parameters": {"sha256": "$response.body#/evidence_sha256"}},
}
"""Where an answer leads, for tools that follow links."""


def router(services: GetServices) -> APIRouter:
    """The routes over what `services` gives once the service runs."""
    routes = APIRouter(prefix="/v1/runs", tags=["runs"])

    @routes.post(
        "",
        response_model=RunAnswer,
        responses={200: {"headers": HEADERS, "links": _LINKS}, **problems(412, 422, 501, 502)},
        openapi_extra=_BODY,
        operation_id="create_run",
    )
    async def create(request: Request) -> Response:
        """Run code once and wait for its result. A non-zero exit is a normal result."""
        if refusal := unsupported_header(request.scope["headers"]):
            raise Refused(refusal)
        read = await _read(request)
        run = await _run(services(), request, read)
        return answer(run_answer(run))

    @routes.get(
        "",
        response_model=RunPage,
        responses={200: {"headers": HEADERS}, **problems(422)},
        operation_id="list_runs",
    )
    async def page(request: Request, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """The caller's own runs, newest first; an admin's: all."""
        found = await services().runs.page(_whose(request.scope), cursor, limit)
        if found is None:
            raise Refused(invalid(FieldFault("cursor", "is not the cursor of a page of these runs")))
        views = [run_view(each) for each in found.runs]
        return answer(RunPage(runs=views, next_cursor=found.next_cursor))

    @routes.api_route(
        "", methods=["DELETE", "HEAD", "OPTIONS", "PATCH", "PUT", "TRACE"], include_in_schema=False
    )
    async def other() -> Response:
        """The framework's own answer would name the methods of one route, and this path has two."""
        not_allowed("GET", "POST")

    @routes.get(
        "/{run_id}",
        response_model=RunView,
        responses={200: {"headers": HEADERS}, **problems(404, 422)},
        operation_id="get_run",
    )
    async def one(request: Request, run_id: RunId, wait: Wait = 0) -> Response:
        """One run as it stands, after at most `wait` seconds."""
        return answer(run_view(await _settled(services(), _whose(request.scope), run_id, wait)))

    @routes.get(
        "/{run_id}/record",
        response_model=RecordBody,
        responses={200: {"headers": HEADERS}, **problems(404, 422)},
        operation_id="get_record",
    )
    async def record(request: Request, run_id: RunId) -> Response:
        """The record of a finished run."""
        run = await _settled(services(), _whose(request.scope), run_id, 0)
        if run.record is None:
            unknown("record")
        return answer(record_body(run.record))

    return routes


async def _read(request: Request) -> RunRead:
    body = await read_body(request.receive, bounds.BODY_BYTES)
    read = body if isinstance(body, Refusal) else read_run(body)
    if isinstance(read, Refusal):
        raise Refused(read)
    if read.trace_id_dropped:
        event(logger, "trace_id.dropped", request_id=request_id_of(request.scope))
    return read


async def _run(services: Services, request: Request, read: RunRead) -> Finished:
    cancel = Cancel()
    watcher = asyncio.create_task(_watch(request.receive, cancel))
    try:
        run = await services.dispatcher.run(caller_of(request.scope), read.request, cancel)
    except Refused as refused:
        _audit(request.scope, read, refused.refusal)
        raise
    finally:
        watcher.cancel()
    _audit(request.scope, read, run)
    return run


async def _watch(receive: Receive, cancel: Cancel) -> None:
    """Cancel the run when its caller goes away: nobody is there for its answer."""
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel.request()


def _audit(scope: MutableMapping[str, Any], read: RunRead, end: Finished | Refusal) -> None:
    caller: Caller = caller_of(scope)
    common: dict[str, Any] = {
        "caller_id": caller.id,
        "caller_name": caller.name,
        "request_id": request_id_of(scope),
        "trace_id": read.request.trace_id,
        "kind": read.request.payload.kind.value,
        "code_bytes": payload_bytes(read.request),
    }
    if isinstance(end, Refusal):
        audit_run(**common, run_id=end.run_id or "", outcome=end.code.value)
        return
    audit_run(
        **common,
        run_id=end.run_id,
        outcome="finished",
        provider=end.provider,
        tier=end.tier.value,
        output_bytes=len(end.result.stdout) + len(end.result.stderr),
        exit_code=end.ended.exit_code,
        duration_ms=end.ended.duration_ms,
        start_ms=end.accepted.start_ms,
    )


def _whose(scope: Any) -> str | None:
    """Whose runs the caller may read: its own, an admin everybody's (None). Raises Refused without the scope."""
    caller = caller_of(scope)
    if not caller.may(Scope.READ_RECORDS):
        raise Refused(Refusal(Code.PERMISSION_DENIED, "This token may not read runs.", Reason.PERMISSION))
    return None if caller.may(Scope.ADMIN) else caller.id


async def _settled(services: Services, whose: str | None, run_id: str, wait_s: int) -> StoredRun:
    """The run once it can change no more, or as it is after `wait_s`. Raises Refused (404)."""
    if not bounds.RUN_ID.fullmatch(run_id):
        unknown("run")
    until = asyncio.get_running_loop().time() + wait_s
    while True:
        run = await services.runs.get(run_id, whose)
        if run is None:
            unknown("run")
        if run.settled or asyncio.get_running_loop().time() >= until:
            return run
        await asyncio.sleep(_WAIT_STEP_S)
