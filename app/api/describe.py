"""`/v1/describe`, `/v1/providers`, `/v1/evidence/{sha256}`: what is served, by which wall, on what evidence."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from app.api.answers import HEADERS, answer, problems, unknown
from app.api.services import GetServices, Services
from app.api.shapes import evidence_body, kinds_served, provider_body
from app.store.values import StoredEvidence
from plimsoll.contract import bounds
from plimsoll.contract.requests import PROTOCOL
from plimsoll.contract.rest import DescribeBody, EvidenceBody, GrantsServed, LimitsBody, ProvidersBody
from plimsoll.contract.tiers import FLOORS, Tier

Digest = Annotated[
    str,
    Path(description="An `evidence_sha256`.", json_schema_extra={"pattern": f"^{bounds.SHA256.pattern}$"}),
]


def router(services: GetServices) -> APIRouter:
    """The routes over what `services` gives once the service runs."""
    routes = APIRouter(prefix="/v1", tags=["service"])

    @routes.get(
        "/describe",
        response_model=DescribeBody,
        responses={200: {"headers": HEADERS}, **problems()},
        operation_id="describe",
    )
    async def describe() -> Response:
        """What this service serves right now."""
        return answer(_describe(services()))

    @routes.get(
        "/providers",
        response_model=ProvidersBody,
        responses={200: {"headers": HEADERS}, **problems()},
        operation_id="list_providers",
    )
    async def providers() -> Response:
        """Every configured provider, in order of preference."""
        bodies = [provider_body(each) for each in services().dispatcher.candidates()]
        return answer(ProvidersBody(providers=bodies))

    @routes.get(
        "/evidence/{sha256}",
        response_model=EvidenceBody,
        responses={200: {"headers": HEADERS}, **problems(404)},
        operation_id="get_evidence",
    )
    async def evidence(sha256: Digest) -> Response:
        """The facts behind one digest."""
        found = await _evidence(services(), sha256) if bounds.SHA256.fullmatch(sha256) else None
        if found is None:
            unknown("evidence")
        return answer(evidence_body(found))

    return routes


async def _evidence(services: Services, sha256: str) -> StoredEvidence | None:
    """What is proven right now, or was when some run referred to it."""
    for each in services.dispatcher.candidates():
        if each.info and each.info.evidence_sha256 == sha256:
            return StoredEvidence(sha256, each.provider, each.info.tier, each.info.facts)
    return await services.evidence.get(sha256)


def _describe(services: Services) -> DescribeBody:
    candidates = services.dispatcher.candidates()
    first = candidates[0] if candidates else None
    return DescribeBody(
        service="plimsoll",
        version=services.version,
        protocol=PROTOCOL,
        execution=bool(candidates),
        provider=first.provider if first else "",
        isolation=first.tier if first else Tier.NONE,
        kinds=kinds_served(candidates),
        floors=[floor.value for floor in FLOORS if any(each.tier.meets(floor) for each in candidates)],
        limits=LimitsBody(
            code_bytes=bounds.CODE_BYTES,
            body_bytes=services.body.size,
            output_bytes=services.output_bytes,
            timeout_default_ms=bounds.TIMEOUT_DEFAULT_MS,
            timeout_ceiling_ms=bounds.TIMEOUT_CEILING_MS,
        ),
        providers=[provider_body(each) for each in candidates],
        grants=GrantsServed(served=services.broker.serving(), broker=services.broker.kind),
    )
