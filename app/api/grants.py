"""`/v1/grants`: which profiles a caller may use. `/.well-known/jwks.json`: the keys that APIs verify minted tokens with."""

import asyncio
import json
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.api.answers import HEADERS, answer, problems, public_problems
from app.api.services import GetServices, Services
from app.dispatch.dispatcher import NOT_PERMITTED
from app.http.ids import caller_of
from app.identity import Caller, Scope
from app.store.values import StoredGrant
from plimsoll.contract import jwk
from plimsoll.contract.refusals import Refused
from plimsoll.contract.rest import GrantBody, GrantsBody, KeysBody

KEYS_MS: Final = 1_000
"""How old the published keys may be: whoever asks for them, needs no token, and must cost the database nothing."""


def router(services: GetServices) -> APIRouter:
    """The routes over what `services` gives once the service runs."""
    routes = APIRouter(tags=["grants"])
    published = _Published()

    @routes.get(
        "/v1/grants",
        response_model=GrantsBody,
        responses={200: {"headers": HEADERS}, **problems()},
        operation_id="list_grants",
    )
    async def grants(request: Request) -> Response:
        """The grant profiles this caller may name in a request. Neither an API's address nor a secret is ever shown."""
        caller = caller_of(request.scope)
        if not caller.may(Scope.RUN):
            raise Refused(NOT_PERMITTED)
        return answer(GrantsBody(grants=await _usable(services(), caller)))

    @routes.get(
        "/.well-known/jwks.json",
        response_model=KeysBody,
        responses={200: {"headers": HEADERS}, **public_problems()},
        operation_id="list_keys",
        openapi_extra={"security": []},
    )
    async def keys() -> Response:
        """The public keys that tokens of today can be signed with, as a JWK set. A token's `kid` names one."""
        return Response(await published.document(services()), media_type="application/json")

    return routes


class _Published:
    """The JWK set as it was at most `KEYS_MS` ago, read by one asker for all."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._document = b""
        self._until_ms = 0

    async def document(self, services: Services) -> bytes:
        async with self._lock:
            if not self._until_ms - KEYS_MS <= services.unix_ms() < self._until_ms:
                self._document = jwk.document(await services.grants.keys())
                self._until_ms = services.unix_ms() + KEYS_MS
            return self._document


async def _usable(services: Services, caller: Caller) -> list[GrantBody]:
    if services.broker.kind == "none":
        return []
    return [_shown(each) for each in await services.grants.usable(caller.name)]


def _shown(grant: StoredGrant) -> GrantBody:
    """An allow list of fields, so that one that is added to profiles is not shown by accident."""
    return GrantBody(
        name=grant.profile.name,
        description=grant.description,
        routes=list(grant.profile.allow),
        max_calls=grant.profile.max_calls,
        catalog=grant.catalog,
        preamble=json.loads(grant.preamble),
    )
