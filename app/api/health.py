"""`/healthz` and `/readyz`: neither needs a token, and what they say is codes only."""

from fastapi import APIRouter
from starlette.responses import Response

from app.api.answers import HEADERS, answer, public_problems
from app.api.services import GetServices
from plimsoll.contract.rest import HealthBody


def router(services: GetServices) -> APIRouter:
    """The routes over what `services` gives once the service runs."""
    routes = APIRouter(tags=["health"])

    @routes.get(
        "/healthz",
        response_model=HealthBody,
        responses={200: {"headers": HEADERS}, **public_problems()},
        operation_id="healthz",
        openapi_extra={"security": []},
    )
    async def healthz() -> Response:
        """The process lives."""
        return answer(HealthBody(status="ok"))

    @routes.get(
        "/readyz",
        response_model=HealthBody,
        responses={
            200: {"headers": HEADERS},
            **public_problems(),
            503: {"model": HealthBody, "headers": HEADERS, "description": "Not ready; `reasons` says why."},
        },
        operation_id="readyz",
        openapi_extra={"security": []},
    )
    async def readyz() -> Response:
        """Ready once the first evidence of every configured provider ended, well or badly."""
        now = services().readiness()
        body = HealthBody(status="ready" if now.ready else "not_ready", reasons=list(now.reasons))
        return answer(body, 200 if now.ready else 503)

    return routes
