"""The service over the effect provider, killing itself at one named point: `kill_service EFFECTS [POINT NTH]`.

It is the real composition with one thing passed in: a callback at the kill points that sends this process SIGKILL.
"""

import asyncio
import os
import signal
import sys

from app.dispatch.dispatcher import Surroundings
from app.dispatch.killpoints import KillPoint, Reached
from app.dispatch.supervisor import spawn
from app.log import configure_logging, event, logger
from app.settings import read_settings
from plimsoll.contract.tiers import Tier


def killer(point: str, nth: int) -> Reached:
    left = nth

    def reached(at: KillPoint) -> None:
        nonlocal left
        if at == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


async def main(effects: str, point: str, nth: int) -> None:
    os.umask(0o077)
    configure_logging()
    settings = read_settings(os.environ)
    frame = {"slots": 16, "effects": effects, "evidence_interval_s": 60, "insecure": True}
    process = spawn("effect", frame, module="tests.support.effect_provider")
    from app.http.listener import make_server  # noqa: PLC0415  # as in service: after the provider is started
    from app.http.sockets import bind_tcp  # noqa: PLC0415
    from app.main import around, create_service  # noqa: PLC0415

    real = around()
    told = Surroundings(real.unix_ms, real.new_run_id, killer(point, nth), lambda _: Tier.PROCESS)
    service = create_service(settings, [process], surroundings=told)
    sock = bind_tcp(settings.address.host, settings.address.port)
    address = "{}:{}".format(*sock.getsockname()[:2])
    ready = lambda: event(logger, "serving", address=address, providers="effect", pid=os.getpid())  # noqa: E731
    async with service.opened():
        await make_server(service.app, on_ready=ready, lifespan=False).serve(sockets=[sock])


if __name__ == "__main__":
    effects_file, at_point, at_nth = [*sys.argv[1:], "", "0"][:3]
    asyncio.run(main(effects_file, at_point, int(at_nth)))
