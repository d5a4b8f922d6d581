"""openapi.json: what FastAPI says of the routes, completed with the bodies and problems that our own parser and rim handle."""

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from plimsoll.contract.rest import Problem, RunBody

_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token made with `plimsoll-admin callers create NAME`. Not needed in insecure mode.",
}
_REQUEST_ID = {
    "name": "Plimsoll-Request-Id",
    "in": "header",
    "required": False,
    "description": "32 hex digits of the caller's choice, copied onto the answer.",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
}
_REF = "#/components/schemas/{model}"
_PROBLEM = "application/problem+json"
_SUMMARIES = {
    "create_run": "Run code, or refuse it with a proof that nothing ran",
    "list_runs": "List your runs, newest first",
    "get_run": "Look at one run, or wait for its end",
    "cancel_run": "Ask a run to end",
    "get_record": "Read the record of a finished run",
    "list_grants": "List the APIs that your programs may call",
    "list_keys": "Read the public keys that tokens of grants are verified with",
    "describe": "Say what this service runs, and behind which walls",
    "list_providers": "List the providers, and how each stands",
    "get_evidence": "Read the facts that a tier was derived from",
    "healthz": "Say that the process lives",
    "readyz": "Say whether runs are taken",
}
"""By operation: each has one."""

Json = dict[str, Any]


def document(app: FastAPI) -> Json:
    """The whole document, in the order of the routes. What many operations share is said once and referred to."""
    spec = app.openapi()
    _, extra = models_json_schema([(RunBody, "validation"), (Problem, "serialization")], ref_template=_REF)
    components: Json = spec.setdefault("components", {})
    schemas: Json = components.setdefault("schemas", {}) | extra["$defs"]
    # What FastAPI's own validation would answer is never answered here.
    components["schemas"] = {name: schemas[name] for name in sorted(schemas) if "ValidationError" not in name}
    for each in components["schemas"].values():
        _say_no_defaults(each)
    components["parameters"] = {"RequestId": _REQUEST_ID}
    components["headers"], components["responses"] = {}, {}
    components["securitySchemes"] = {"bearer": _BEARER}
    spec["security"] = [{"bearer": []}]
    for operation in (each for path in spec["paths"].values() for each in path.values()):
        operation["summary"] = _SUMMARIES[operation["operationId"]]
        operation.setdefault("parameters", []).append({"$ref": "#/components/parameters/RequestId"})
        operation["responses"] = _responses(components, operation["responses"])
    return spec


def _say_no_defaults(schema: Json) -> None:
    """A field that may be left out says so by not being required; some generators make one with a default required."""
    for field in schema.get("properties", {}).values():
        field.pop("default", None)


def _responses(components: Json, responses: Json) -> Json:
    ours = {status: each for status, each in responses.items() if "ValidationError" not in str(each)}
    for each in ours.values():
        each["headers"] = {
            name: _shared(components, "headers", name.removeprefix("Plimsoll-").replace("-", ""), header)
            for name, header in each["headers"].items()
        }
    return {
        status: _shared(components, "responses", f"Problem{status}", each)
        if _PROBLEM in each["content"]
        else each
        for status, each in ours.items()
    }


def _shared(components: Json, section: str, name: str, what: Json) -> Json:
    """A reference to `what`, kept once under `name`. Raises ValueError for two things of one name."""
    if components[section].setdefault(name, what) != what:
        raise ValueError(f"{section}/{name} would be two things")
    return {"$ref": f"#/components/{section}/{name}"}
