"""The agent's start: take over the protocol, become who it is to be, warm up, serve."""

import fcntl
import os
import sys

from providers.docker.agent import guests, identity, limits, wire, workers
from providers.docker.agent.loop import Agent

_HIGH = 10


def main() -> int:
    """Serve one run; the container ends when this does."""
    source, sink = _take_over()
    uid, *languages = sys.argv[1:]
    identity.write_accounts(int(uid))
    limits.write_down(identity.ACCOUNTS)
    identity.become_agent(int(uid))
    warm = [worker for language in languages if (worker := workers.started(language))]
    try:
        Agent(source, sink, [worker for worker in warm if worker.ready()]).serve()
    except (wire.WireError, KeyError, TypeError, OSError):
        return 1
    return 0


def _take_over() -> tuple[int, int]:
    """The attached stream under numbers that no program inherits; the standard ones, and the spare one, lead nowhere."""
    source = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    sink = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(guests.SPARE + 1):
        if number != null:
            os.dup2(null, number)
    return source, sink
