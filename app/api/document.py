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


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document, in the order of the routes."""
    spec = app.openapi()
    _, extra = models_json_schema([(RunBody, "validation"), (Problem, "serialization")], ref_template=_REF)
    components: dict[str, Any] = spec.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    schemas |= extra["$defs"]
    # What FastAPI's own validation would answer is never answered here.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["schemas"] = dict(sorted(schemas.items()))
    components["securitySchemes"] = {"bearer": _BEARER}
    spec["security"] = [{"bearer": []}]
    for operation in (each for path in spec["paths"].values() for each in path.values()):
        operation.setdefault("parameters", []).append(_REQUEST_ID)
    return spec
