"""The service over the effect provider, killing itself at one named point: `kill_service EFFECTS [POINT NTH]`.

It is the real composition with one thing passed in: a callback at the kill points that sends this process SIGKILL. The point
`any` counts every point of every run, so that an arbitrary NTH is an arbitrary moment.

Times that a test would have to wait out can be shortened with variables of the environment, in milliseconds: TEST_LEASE_MS
(a replica's lease; it beats five times in it), TEST_FINAL_MS (until an orphan's state is final), TEST_BUSY_MS (how long SQLite
waits for another writer). TEST_SLOTS is the number of slots, TEST_PROVIDER another provider instead of the effect provider, and
TEST_SIGNAL another signal instead of SIGKILL: SIGSTOP makes the process stand still at the point. With TEST_PATIENCE a provider
that stands still is not killed for it, and its run is waited for only a second, until it is accepted and beyond its deadline.
"""

import asyncio
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from app.dispatch.killpoints import KillPoint, Reached
from app.dispatch.supervisor import ProviderProcess, spawn
from app.log import configure_logging, event, logger
from app.settings import Settings, read_settings
from plimsoll.contract.tiers import Tier

EVERY = "any"


def killer(point: str, nth: int) -> Reached:
    left = nth
    number = signal.Signals[os.environ.get("TEST_SIGNAL", "SIGKILL")]

    def reached(at: KillPoint) -> None:
        nonlocal left
        if point in {at, EVERY}:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)

    return reached


def provider(settings: Settings, effects: str) -> ProviderProcess:
    slots = int(os.environ.get("TEST_SLOTS", "16"))
    if name := os.environ.get("TEST_PROVIDER"):
        frame = replace(settings, providers=(name,)).provider_frame(name)
        return spawn(name, frame | {"slots": slots})
    frame = {"slots": slots, "effects": effects, "evidence_interval_s": 60, "insecure": True}
    return spawn("effect", frame, module="tests.support.effect_provider")


def shorten() -> None:
    """Before anything reads these constants."""
    from app.dispatch import replica, supervisor  # noqa: PLC0415  # as in service: after the provider is started
    from app.dispatch.link import WorkerLink  # noqa: PLC0415
    from app.store import ballast, sqlite  # noqa: PLC0415

    if "TEST_PATIENCE" in os.environ:
        supervisor._MISSES = 1_000
        vars(supervisor)["WorkerLink"] = partial(WorkerLink, accept_s=1.0, grace_s=1.0)
    ballast.MOST_BYTES = 1 << 16  # what is killed leaves it behind
    replica.LEASE_MS = int(os.environ.get("TEST_LEASE_MS", replica.LEASE_MS))
    replica.BEAT_S = replica.LEASE_MS / 5_000
    replica.FINAL_AFTER_MS = int(os.environ.get("TEST_FINAL_MS", replica.FINAL_AFTER_MS))
    sqlite.BUSY_TIMEOUT_MS = int(os.environ.get("TEST_BUSY_MS", sqlite.BUSY_TIMEOUT_MS))


async def main(effects: str, point: str, nth: int, owned: ExitStack) -> None:
    os.umask(0o077)
    configure_logging()
    settings = read_settings(os.environ)
    process = provider(settings, effects)
    shorten()
    from app.brokerage import open_broker  # noqa: PLC0415  # as in service: after the provider is started
    from app.dispatch.dispatcher import Surroundings  # noqa: PLC0415
    from app.http.listener import make_server  # noqa: PLC0415
    from app.http.sockets import bind_tcp  # noqa: PLC0415
    from app.main import around, create_service  # noqa: PLC0415

    real = around()
    told = Surroundings(
        real.unix_ms, real.new_run_id, killer(point, nth), lambda _: Tier.PROCESS, owner=real.owner
    )
    sock = bind_tcp(settings.address.host, settings.address.port)
    broker = open_broker(settings, [sock], owned)
    service = create_service(settings, [process], surroundings=told, broker=broker)
    address = "{}:{}".format(*sock.getsockname()[:2])
    ready = lambda: event(logger, "serving", address=address, providers="effect", pid=os.getpid())  # noqa: E731
    proxies = settings.trusted_proxies
    async with service.opened():
        server = make_server(
            service.app, limits=service.limits, trusted_proxies=proxies, on_ready=ready, lifespan=False
        )
        await server.serve(sockets=[sock])


if __name__ == "__main__":
    effects_file, at_point, at_nth = [*sys.argv[1:], "", "0"][:3]
    with ExitStack() as owning:
        asyncio.run(main(effects_file, at_point, int(at_nth), owning))
