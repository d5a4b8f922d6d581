"""`/v1/grants`: which profiles a caller may use. `/.well-known/jwks.json`: the keys that APIs verify minted tokens with."""

import json

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.api.answers import HEADERS, answer, problems, public_problems
from app.api.services import GetServices, Services
from app.dispatch.brokerlink import BrokerDown
from app.dispatch.dispatcher import NOT_PERMITTED
from app.http.ids import caller_of
from app.identity import Caller, Scope
from app.store.values import StoredGrant
from plimsoll.contract.refusals import Code, Reason, Refusal, Refused
from plimsoll.contract.rest import GrantBody, GrantsBody, KeysBody

BROKER_DOWN = Refusal(Code.UNAVAILABLE, "The broker does not answer right now.", Reason.ENVIRONMENT)


def router(services: GetServices) -> APIRouter:
    """The routes over what `services` gives once the service runs."""
    routes = APIRouter(tags=["grants"])

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
        """The public keys that the broker signed with since it started, as a JWK set. A token's `kid` names one."""
        try:
            document = await services().broker.keys()
        except BrokerDown as error:
            raise Refused(BROKER_DOWN) from error
        return Response(document, media_type="application/json")

    return routes


async def _usable(services: Services, caller: Caller) -> list[GrantBody]:
    if services.broker.kind == "none":
        return []
    found = await services.grants.all()
    return [_shown(each) for each in found if caller.name in each.profile.allowed_callers]


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
