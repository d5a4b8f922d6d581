"""`/v1/runs`: run a request and wait for its answer; read one's own runs and their records; cancel."""

from collections.abc import MutableMapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse, Response

from app.api.answers import HEADERS, LOCATION, answer, not_allowed, problems, unknown
from app.api.deliver import awaited, cancelled, deliver, found
from app.api.services import GetServices, Services
from app.api.shapes import record_body, run_view
from app.dispatch.dispatcher import NOT_PERMITTED
from app.http.answers import read_body
from app.http.delivery import read_delivery
from app.http.ids import caller_of, request_id_of
from app.http.strict import RunRead, read_run
from app.identity import Scope
from app.log import event, logger
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Code, FieldFault, Reason, Refusal, Refused, invalid
from plimsoll.contract.rest import CancelBody, RecordBody, RunAnswer, RunBody, RunPage, RunView

RunId = Annotated[
    str,
    Path(
        description="A run's id, 32 hex digits.", json_schema_extra={"pattern": f"^{bounds.RUN_ID.pattern}$"}
    ),
]
"""The pattern is documentation: what does not match is answered like an unknown run."""
Limit = Annotated[int, Query(ge=1, le=100, description="Runs on a page.")]
Cursor = Annotated[str | None, Query(max_length=256, description="`next_cursor` of the page before.")]
Wait = Annotated[int, Query(ge=0, le=60, description="Seconds to wait for the run's end.")]

_EXAMPLES = {
    "javascript": {
        "payload": {"kind": "javascript", "code": "console.log(6 * 7)"},
        "minimum_isolation": "process",
    },
    "python": {"payload": {"kind": "python", "code": "print(6 * 7)"}, "timeout_ms": 5000},
    "project": {
        "payload": {
            "kind": "project",
            "files": [
                {"path": "sum.py", "content": "print(6 * 7)\n"},
                {"path": "data/raw.bin", "content": "AP+A", "content_encoding": "base64"},
            ],
            "steps": ["python3 sum.py > out.txt", "cat out.txt"],
            "artifacts": ["out.txt"],
        },
        "minimum_isolation": "container",
        "timeout_ms": 60000,
    },
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": f"#/components/schemas/{RunBody.__name__}"},
                "examples": {name: {"value": value} for name, value in _EXAMPLES.items()},
            }
        },
    }
}
_LINKS = {
    "run": {"operationId": "get_run", "parameters": {"run_id": "$response.body#/id"}},
    "record": {"operationId": "get_record", "parameters": {"run_id": "$response.body#/id"}},
    "evidence": {"operationId": "get_evidence", "parameters": {"sha256": "$response.body#/evidence_sha256"}},
}
"""Where an answer leads, for tools that follow links."""

_LATER = "Admitted and written ahead (`Prefer: respond-async`), or the run that holds the key has no final word yet."
_EVENTS = {
    "text/event-stream": {
        "schema": {
            "type": "string",
            "description": (
                "Events `accepted`, `stdout`, `stderr`, of a project also `step`, then one `result` (a RunAnswer) or"
                " `error` (a Problem)."
            ),
        }
    }
}
_DELIVERY = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "Runs the request at most once in 24 hours; a repeat is answered from what was kept.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    },
    {
        "name": "Prefer",
        "in": "header",
        "required": False,
        "description": "`respond-async`: 202 at once, the answer is kept.",
        "schema": {"type": "string"},
    },
]


def router(services: GetServices) -> APIRouter:
    """The routes over what `services` gives once the service runs."""
    routes = APIRouter(prefix="/v1/runs", tags=["runs"])

    @routes.post(
        "",
        response_model=RunAnswer,
        responses={
            200: {"headers": HEADERS, "links": _LINKS, "content": _EVENTS},
            202: {"model": RunView, "headers": HEADERS | LOCATION, "description": _LATER},
            **problems(409, 412, 422, 501, 502),
        },
        openapi_extra=_BODY | {"parameters": _DELIVERY},
        operation_id="create_run",
    )
    async def create(request: Request) -> Response:
        """Run code once and wait for its result. A non-zero exit is a normal result."""
        wanted = read_delivery(request.scope["headers"])
        if isinstance(wanted, Refusal):
            raise Refused(wanted)
        return await deliver(services(), request, await _read(request, services()), wanted)

    @routes.get(
        "",
        response_model=RunPage,
        responses={200: {"headers": HEADERS}, **problems(422)},
        operation_id="list_runs",
    )
    async def page(request: Request, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """The caller's own runs, newest first; an admin's: all."""
        known_query(request, "limit", "cursor")
        found = await services().runs.page(whose_runs(request.scope), cursor, limit)
        if found is None:
            raise Refused(invalid(FieldFault("cursor", "is not the cursor of a page of these runs")))
        views = [run_view(each).model_dump(mode="json", exclude_none=True) for each in found.runs]
        return JSONResponse({"runs": views, "next_cursor": found.next_cursor})

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
        """One run as it stands, after at most `wait` seconds; its result where it was kept."""
        known_query(request, "wait")
        running, whose = services(), whose_runs(request.scope)
        run = await awaited(running, caller_of(request.scope), whose, run_id, wait)
        body = await running.runs.body(run_id, whose) if run.kept else None
        trace = await running.runs.grant_trace(run_id, whose) if run.grant_profile else None
        return answer(run_view(run, body, trace, operator=whose is None), sparse=True)

    @routes.post(
        "/{run_id}/cancel",
        response_model=CancelBody,
        responses={200: {"headers": HEADERS}, **problems(404, 422)},
        operation_id="cancel_run",
    )
    async def cancel(request: Request, run_id: RunId) -> Response:
        """Ask a run to end, and say truthfully what that came to."""
        caller = caller_of(request.scope)
        if not caller.may(Scope.RUN):
            raise Refused(NOT_PERMITTED)
        return answer(await cancelled(services(), caller.id, run_id))

    @routes.get(
        "/{run_id}/record",
        response_model=RecordBody,
        responses={200: {"headers": HEADERS}, **problems(404, 422)},
        operation_id="get_record",
    )
    async def record(request: Request, run_id: RunId) -> Response:
        """The record of a finished run."""
        run = await found(services(), whose_runs(request.scope), run_id)
        if run.record is None:
            unknown("record")
        return answer(record_body(run.record))

    return routes


def known_query(request: Request, *names: str) -> None:
    """Refuse a query parameter that this route does not have: a misspelt one would be silently no limit. Raises Refused."""
    if set(request.query_params) - set(names):
        known = f"known here: {', '.join(names)}" if names else "this route has none"
        raise Refused(invalid(FieldFault("query", f"must hold no unknown parameter; {known}")))


def whose_runs(scope: MutableMapping[str, Any]) -> str | None:
    """Whose runs the caller may read: its own, an admin everybody's (None). Raises Refused without the scope."""
    caller = caller_of(scope)
    if not caller.may(Scope.READ_RECORDS):
        raise Refused(Refusal(Code.PERMISSION_DENIED, "This token may not read runs.", Reason.PERMISSION))
    return None if caller.may(Scope.ADMIN) else caller.id


async def _read(request: Request, services: Services) -> RunRead:
    limits = services.body
    with services.budget.open(caller_of(request.scope).id) as take:
        body = await read_body(request.receive, limits.size, take)
        read = body if isinstance(body, Refusal) else read_run(body, limits)
    if isinstance(read, Refusal):
        raise Refused(read)
    if read.trace_id_dropped:
        event(logger, "trace_id.dropped", request_id=request_id_of(request.scope))
    return read
