"""The floor under a run over HTTP: the real service with one route more, `python -m tests.bench.floor_service BYTES`.

That route checks a run like the real one, answers a constant of that size and runs nothing. Listener, middleware,
authentication and validation are the real ones.
"""

import asyncio
import os
import sys

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.http.answers import read_body
from app.http.delivery import read_delivery
from app.http.listener import make_server
from app.http.sockets import bind_tcp
from app.http.strict import read_run
from app.log import configure_logging, event, logger
from app.main import create_service
from app.settings import read_settings
from plimsoll.contract import bounds
from plimsoll.contract.refusals import Refusal, Refused

PATH = "/v1/constant"


def router(answer: bytes) -> APIRouter:
    routes = APIRouter()

    @routes.post(PATH)
    async def constant(request: Request) -> Response:
        wanted = read_delivery(request.scope["headers"])
        body = await read_body(request.receive, bounds.BODY_BYTES)
        read = body if isinstance(body, Refusal) else read_run(body)
        for each in (wanted, read):
            if isinstance(each, Refusal):
                raise Refused(each)
        return Response(answer, media_type="application/json")

    return routes


async def main(size: int) -> None:
    configure_logging()
    settings = read_settings(os.environ)
    service = create_service(settings)
    service.api.include_router(router(b'{"constant":"' + b"x" * (size - 15) + b'"}'))
    sock = bind_tcp(settings.address.host, settings.address.port)
    address = "{}:{}".format(*sock.getsockname()[:2])
    ready = lambda: event(logger, "serving", address=address, providers="", pid=os.getpid())  # noqa: E731
    async with service.opened():
        await make_server(service.app, on_ready=ready, lifespan=False).serve(sockets=[sock])


if __name__ == "__main__":
    os.umask(0o077)
    asyncio.run(main(int(sys.argv[1])))
