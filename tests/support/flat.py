"""A service over containers under one runtime, and the proof that many runs leave nothing behind."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.service.stand import http
from tests.support import mix
from tests.support.births import Births
from tests.support.docker import Daemon
from tests.support.left import Counts, Machine
from tests.support.service import environment, started

POOL = 2
WAITING = 2 * POOL
"""Containers of a service at rest: for each language."""
START_S = 180.0


@contextmanager
def machine(docker: Daemon, folder: Path) -> Iterator[Machine]:
    """The daemon, listened to, before there is any service."""
    with Births(docker) as births:
        before = docker.call("GET", "/containers/json?all=1")
        found = Machine(docker, births, folder / "data", others=frozenset(each["Id"] for each in before))
        try:
            yield found
        finally:
            found.clear()


@contextmanager
def serving(found: Machine, folder: Path, runtime: str, image: str) -> Iterator[Machine]:
    """The same machine with a service on it, at rest."""
    environ = environment(
        folder / "data",
        SANDBOX_PROVIDER=f"docker@{runtime}",
        **found.docker.settings(image),
        SANDBOX_DOCKER_POOL=str(POOL),
        SANDBOX_MEMORY_MB="128",
        SANDBOX_TOTAL_MEMORY_MB="1536",
        SANDBOX_RATE_PER_MIN="0",
        SANDBOX_EVIDENCE_INTERVAL_S="3600",  # a look makes containers, which are counted here
        PLIMSOLL_INSECURE="1",
    )
    with started(environ, folder / "log", start_s=START_S) as running:
        found.running = running
        with http(running.url) as client:
            reasons = client.get("/readyz").json()["reasons"]
            assert reasons == [], reasons
        found.settled(at_rest(found))
        yield found
    found.running = None


def at_rest(found: Machine) -> Callable[[], bool]:
    """Whether the service has as many containers as it keeps, and all of them run."""

    def holds() -> bool:
        return [each["State"] for each in found.listed().values()] == ["running"] * WAITING

    return holds


def flat_after(
    found: Machine, warm_up: int, runs: int, told: Callable[[int], None] = lambda _: None
) -> tuple[Counts, Counts, float]:
    """The counts after `warm_up` runs and after all `runs`, once they are as they were; what the runs took, seconds."""
    assert found.running is not None
    with http(found.running.url, mix.PATIENCE_S) as client:
        mix.run(client, range(warm_up), told)
        before = found.settled(at_rest(found))
        began = time.monotonic()
        mix.run(client, range(warm_up, runs), lambda done: told(warm_up + done))
        took = time.monotonic() - began
        return before, found.assert_flat(before, at_rest(found)), took


def table(before: Counts, now: Counts) -> str:
    """Both, for people."""
    return "\n".join(f"  {name:<26}{before.get(name, 0):>8.1f}{now[name]:>8.1f}" for name in now)
