"""Figures 9 to 11: what a run costs by database and key, what many callers get, what slow readers cost in memory."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from app.identity import DEFAULT_SCOPES, mint_token, token_sha256
from app.store.store import open_store
from app.store.values import CallerToken, NewCaller
from tests.bench.http_figures import BODY
from tests.bench.processes import cpu_s
from tests.bench.report import Figure, Report
from tests.bench.sampling import Series
from tests.bench.wire import Connection, closed_loop, post
from tests.integration.store import servers
from tests.integration.store.samples import new_id
from tests.support.service import Running, environment, started

CALLERS = (1, 8, 64)
_TURNS = 10
_MOST_KIB_EACH, _MOST_KIB = 2 * 2 * 64, 8 * 1024
"""Both streams of a run at their cap, twice: as they were heard and as they are sent. And something for all together."""


@dataclass(slots=True)
class Served:
    """A service on one database, and the tokens of its callers."""

    running: Running
    tokens: list[str] = field(repr=False)

    def asking(self, number: int, *more: str) -> bytes:
        """One caller's request."""
        return post("/v1/runs", BODY, self.tokens[number], *more)


def figures(report: Report, folder: Path, *, rounds: int, seconds: float, streams: int) -> None:
    """Figures 9, 10 and 11. Without a Postgres server they are those of SQLite, and that is printed."""
    folder.mkdir(mode=0o700)
    with ExitStack() as stack:
        urls = {"SQLite": ""}
        if programs := servers.binaries():
            # Beside the other databases, and durable as they are.
            server = servers.postgres(programs, place=folder.parent.parent, fsync=True)
            urls["Postgres"] = servers.url(stack.enter_context(server))
        services = {name: stack.enter_context(_served(folder / name, url)) for name, url in urls.items()}
        title = "One run over HTTP by database, without and with an Idempotency-Key"
        with report.measuring(9, title) as figure:
            _cost(figure, services, rounds)
        title = "Runs a second for callers of their own, each one run at a time"
        with report.measuring(10, title) as figure:
            _callers(figure, services, seconds)
        if "Postgres" not in services:
            for figure in report.figures:
                figure.note("Postgres: not measured, no server is installed")
    with report.measuring(11, "Memory of the service under slow streams") as figure:
        _streams(figure, folder / "streams", streams)


@contextmanager
def _served(folder: Path, url: str) -> Iterator[Served]:
    folder.mkdir(mode=0o700)
    (folder / "data").mkdir(mode=0o700)
    url = url or f"sqlite+aiosqlite:///{folder / 'data' / 'bench.db'}"
    tokens = asyncio.run(_make_callers(url, max(CALLERS)))
    settings = {"SANDBOX_PROVIDER": "wasm", "SANDBOX_RATE_PER_MIN": "0", "PLIMSOLL_DATABASE_URL": url}
    with started(environment(folder / "data", **settings), folder / "log") as running:
        yield Served(running, tokens)


async def _make_callers(url: str, number: int) -> list[str]:
    """All at once: the command makes one in half a second."""
    texts = [mint_token(lambda size: bytes.fromhex(new_id() * 2)[:size]) for _ in range(number)]
    digests = [token_sha256(text) or "" for text in texts]
    async with open_store(url, clock=lambda: time.time_ns() // 1_000_000, sole_owner=False) as store:
        for at, digest in enumerate(digests):
            await store.callers.create(NewCaller(new_id(), f"b{at}", DEFAULT_SCOPES, (CallerToken(digest),)))
    return texts


def _cost(figure: Figure, services: dict[str, Served], rounds: int) -> None:
    """One caller, one connection, one run after the other; the four take turns."""
    numbers = count()
    wall = {(name, keyed): Series() for name in services for keyed in (False, True)}
    cpu = dict.fromkeys(wall, 0.0)
    with ExitStack() as stack:
        connections = {
            name: stack.enter_context(Connection(each.running.url)) for name, each in services.items()
        }
        for turn in range(-1, rounds):
            for (name, keyed), series in wall.items():
                service, before = services[name], cpu_s(services[name].running.process.pid)
                for _ in range(_TURNS):
                    headers = (f"Idempotency-Key: {next(numbers)}",) * keyed
                    request = service.asking(0, *headers)
                    began = time.perf_counter()
                    status, body = connections[name].ask(request)
                    took = 1000 * (time.perf_counter() - began)
                    if status != 200:  # the status, by its number
                        raise RuntimeError(f"the service answered {status}: {body.decode()}")
                    series.values += [took] * (turn >= 0)
                cpu[name, keyed] += (cpu_s(service.running.process.pid) - before) * (turn >= 0)
    for (name, keyed), series in wall.items():
        figure.line(f"{name}, {'keyed' if keyed else 'unkeyed'}", series)
    for name in services:
        ratio = wall[name, True].p50 / wall[name, False].p50
        figure.value(f"{name}, keyed against unkeyed", ratio)
    for (name, keyed), used in cpu.items():
        figure.value(
            f"CPU of the API, {name}, {'keyed' if keyed else 'unkeyed'}",
            1000 * used / (rounds * _TURNS),
            "ms",
        )


def _callers(figure: Figure, services: dict[str, Served], seconds: float) -> None:
    """Every caller has runners of its own (S12), and one that is refused for want of a slot asks again a little later."""
    for name, service in services.items():
        with ExitStack() as stack:
            connections = [stack.enter_context(Connection(service.running.url)) for _ in range(max(CALLERS))]
            requests = [service.asking(at) for at in range(max(CALLERS))]
            for callers in CALLERS:
                answers, took = closed_loop(connections[:callers], requests[:callers], seconds)
                if set(answers) - {200, 429}:
                    raise RuntimeError(f"the service answered {dict(answers)}")
                each = f"{name}, {callers} caller{'s' * (callers > 1)}"
                figure.value(each, answers[200] / took, "runs/s")
                if answers[429]:
                    figure.value(f"{each}, refused for want of a slot", answers[429] / took, "/s")


def _streams(figure: Figure, folder: Path, streams: int) -> None:
    # Late: a commit that has no such program has the other figures.
    from tests.soak.slow_streams import measure  # noqa: PLC0415

    folder.mkdir(mode=0o700)
    before, most, after = measure(streams, folder)
    most_each = round(_MOST_KIB_EACH + _MOST_KIB / streams)
    figure.value("RSS before", before, "MiB")
    figure.value(f"RSS at most, {streams} slow streams of 2 x 64 KiB", most, "MiB")
    figure.value("RSS after the last was read", after, "MiB")
    figure.value("growth for each stream", (most - before) * 1024 / streams, "KiB", at_most=most_each)
