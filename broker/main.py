"""The broker's process: `python -I -m broker.main --fd N --listen M` under `plimsolld`, `--settings FILE` by hand.

1. it becomes the user it is told, and protects itself, before anything is read
2. settings, key and minters are read, and a fault is said, and nothing served
3. it serves one listener, and closes leases that expired
4. the end of its inherited socket, or SIGTERM, is its end: leases are closed, and a broker started anew knows none
"""

import argparse
import asyncio
import os
import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from app.vault import unseal
from app.vault.unseal import KeyUnusable
from broker.api import Api, load
from broker.calls import Clocks
from broker.desk import Desk, Means
from broker.lease import Leases
from broker.listener import Server, bind, make_server
from broker.names import THREADS
from broker.process import Tie, become, die_with_parent, protect
from broker.settings import Faulty, Given, from_file, given
from broker.upstream import trust
from plimsoll.contract.frames import FrameError

SWEEP_S: Final = 5.0
OK, FAILED, FAULTY = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until told to end. Returns the exit code: 0 ended, 1 the socket broke, 2 faulty settings."""
    options = _options(argv)
    if options.user:
        load()
        become(*options.user)
    protect()
    tie: Tie | None = None
    try:
        if options.fd is not None:
            die_with_parent()
            tie = Tie(options.fd)
            settings, sock = given(tie.settings()), socket.socket(fileno=options.listen)
        else:
            settings = from_file(options.settings)
            sock = bind(settings.listen)
        means = _means(settings)
    except (Faulty, KeyUnusable, ValueError) as error:
        return _faulty(tie, str(error))
    except (OSError, FrameError) as error:
        sys.stderr.write(f"plimsoll broker: {error}\n")
        return FAILED
    with sock:
        asyncio.run(_serve(settings, means, sock, tie))
    return OK


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="plimsoll broker", description="Calls APIs for guests.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--fd", type=int, metavar="N", help="an inherited socket that brings the settings")
    source.add_argument("--settings", type=Path, metavar="FILE", help="the settings as TOML")
    parser.add_argument("--listen", type=int, metavar="M", help="with --fd: an inherited socket to listen on")
    parser.add_argument("--user", type=_user, metavar="UID:GID", help="become this user first")
    options = parser.parse_args(argv)
    if (options.fd is None) is not (options.listen is None):
        parser.error("--listen goes with --fd")
    return options


def _user(text: str) -> tuple[int, int]:
    uid, _, gid = text.partition(":")
    return int(uid), int(gid)


def _faulty(tie: Tie | None, fault: str) -> int:
    if tie is None:
        sys.stderr.write(f"plimsoll broker: {fault}\n")
    else:
        tie.say(op="fault", fault=fault)
    return FAULTY


def _means(settings: Given) -> Means:
    try:
        tls = trust(settings.ca_file)
    except OSError as error:  # an SSLError is one
        raise Faulty(f"{settings.ca_file}: must hold certificates ({type(error).__name__})") from None
    clocks = Clocks(time.monotonic, time.time)
    return Means(unseal.load(settings.key), settings.hooks, settings.rules, tls, clocks, os.urandom)


async def _serve(settings: Given, means: Means, sock: socket.socket, tie: Tie | None) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="names"))
    async with Leases(means.clocks, means.randomness) as leases:
        api = Api(Desk(means, leases), settings.control)
        server = make_server(api, settings.peers, (lambda: tie.say(op="ready")) if tie else _nothing)
        tasks = [asyncio.create_task(_sweep(leases))]
        if tie is not None:
            _end_with(tie, server)
        try:
            await server.serve(sockets=[sock])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _nothing() -> None:
    """Nobody waits for the word."""


async def _sweep(leases: Leases) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        await leases.sweep()


def _end_with(tie: Tie, server: Server) -> None:
    """Whatever comes on the tie now is its end."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(tie.socket)
        server.stop()

    loop.add_reader(tie.socket, end)


if __name__ == "__main__":
    raise SystemExit(main())
