"""Figures of the service in processes of its own: one run over HTTP, many at once, and the memory of runners."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import store_figures
from tests.bench.pool_figures import PROGRAM, Pool
from tests.bench.processes import children, cpu_s, descendants, memory
from tests.bench.report import Figure, Report
from tests.bench.sampling import Operation, Series, Timed, interleaved
from tests.bench.store_figures import Commits
from tests.bench.wire import Connection, closed_loop, get, post
from tests.support.service import Running, environment, make_caller, started

BODY = json.dumps({"payload": {"kind": "javascript", "code": PROGRAM}}).encode()
FLOOR = (sys.executable, "-m", "tests.bench.floor_service", "1900")
_START_S = 180.0
"""Walls of containers are tried for some time before they serve."""
_LOOP = json.dumps({"payload": {"kind": "javascript", "code": "for (;;);"}, "timeout_ms": 400}).encode()


@dataclass(slots=True)
class Service:
    """A started service and one caller of it."""

    running: Running
    token: str = field(repr=False)

    @property
    def pid(self) -> int:
        return self.running.process.pid

    def connect(self) -> Connection:
        return Connection(self.running.url)

    def post(self, path: str = "/v1/runs", body: bytes = BODY) -> bytes:
        return post(path, body, self.token)


@contextmanager
def served(folder: Path, *command: str, **settings: str) -> Iterator[Service]:
    """A service with its data in `folder`, without a rate limit."""
    environ = environment(folder / "data", SANDBOX_RATE_PER_MIN="0", **settings)
    token = make_caller(environ, "bench")
    with started(environ, folder.with_suffix(".log"), *command, start_s=_START_S) as running:
        yield Service(running, token)


def asking(connection: Connection, request: bytes) -> Operation:
    """One exchange, checked."""

    async def ask() -> None:
        status, body = connection.ask(request)
        if status != 200:  # the status, by its number
            raise RuntimeError(f"the service answered {status}: {body.decode()}")

    return ask


async def one_run(
    report: Report, service: Service, floor: Service, pool: Pool, commits: Commits, rounds: int
) -> None:
    """Figures 3 and 8."""
    with ExitStack() as stack:
        ours, theirs, probe = (stack.enter_context(each.connect()) for each in (service, floor, service))
        operations = {
            "run": asking(ours, service.post()),
            "constant": asking(theirs, floor.post("/v1/constant")),
            "health": asking(probe, get("/healthz")),
            "pool": pool.run,
            "insert": commits.insert,
            "finish": commits.finish,
            "plain": commits.plain,
        }
        timed = await interleaved(operations, rounds=rounds)
    _figure_3(report.figure(3, f"One run over HTTP, sequential, kept connection: {PROGRAM}"), timed)
    store_figures.figure(report, timed)


def _figure_3(figure: Figure, timed: dict[str, Timed]) -> None:
    names = {
        "run": "POST /v1/runs",
        "constant": "constant answer behind the same checks",
        "health": "GET /healthz (listener and framework)",
        "pool": "through the pool (figure 2), in this mix",
    }
    for name, text in names.items():
        figure.line(text, timed[name].wall)
    parts = ("constant", "insert", "finish", "pool")
    figure.value("POST /v1/runs, p50", timed["run"].wall.p50, "ms", at_most=3)
    floor = sum(timed[each].wall.p50 for each in parts)
    figure.value("floor: constant + two commits + pool, p50", floor, "ms")
    figure.value("ratio of medians", timed["run"].wall.p50 / floor, at_most=1.3)
    least = sum(timed[each].wall.least for each in parts)
    figure.value("ratio of minimums", timed["run"].wall.least / least)


def throughput(
    figure: Figure, service: Service, floor: Service, commits: Commits, *, slices: int, seconds: float
) -> None:
    """Runs a second over HTTP with 1, 2 and 8 connections, in turn, and the CPU time of the service's processes for one."""
    rates = {each: Series() for each in (1, 2, 8)}
    constant, disk = Series(), Series()
    before, finished = _cpu(service.pid), 0
    with ExitStack() as stack:
        ours = [stack.enter_context(service.connect()) for _ in range(max(rates))]
        theirs = [stack.enter_context(floor.connect()) for _ in range(max(rates))]
        for _ in range(slices):
            for each, series in rates.items():
                answers, took = closed_loop(ours[:each], [service.post()] * each, seconds)
                series.values.append(answers[200] / took)
                finished += answers[200]
            answers, took = closed_loop(theirs, [floor.post("/v1/constant")] * len(theirs), seconds)
            constant.values.append(answers[200] / took)
            disk.values.append(commits.plain_rate(seconds))
    for each, series in rates.items():
        figure.line(f"HTTP, {each} at once", series, "runs/s")
    figure.line("HTTP, constant answer, 8 at once", constant, "answers/s")
    figure.line("durable rows by the bare driver, one by one", disk, "commits/s")
    for name, used in _cpu(service.pid).items():
        figure.value(f"CPU of one run over HTTP, {name}", 1000 * (used - before[name]) / finished, "ms")


def _cpu(daemon: int) -> dict[str, float]:
    (provider,) = children(daemon)
    below = descendants(provider)
    return {
        "API process": cpu_s(daemon),
        "provider process": cpu_s(provider),
        "fork server and runners": sum(map(cpu_s, below)),
    }


def runner_memory(figure: Figure, folder: Path) -> None:
    """Figure 5, in a service that lets itself be looked at."""
    settings = {"PLIMSOLL_INSECURE": "1", "PLIMSOLL_DEBUG_DUMPABLE": "1"}
    with served(folder, SANDBOX_PROVIDER="wasm", **settings) as service, service.connect() as connection:
        time.sleep(0.3)
        spares = _runners(service.pid)
        for _ in range(200):
            connection.ask(service.post())
        fresh = {pid: memory(pid) for pid in spares}
        used = max(spares, key=lambda pid: memory(pid).rss)
        idle = memory(used)
        connection.sock.sendall(service.post(body=_LOOP))
        time.sleep(0.2)
        busy = memory(used)
        while connection.read() is None:
            pass
    never = min(fresh.values(), key=lambda each: each.private)
    for name, each in (("never used", never), ("after 200 runs, idle", idle), ("while it runs", busy)):
        figure.value(f"runner {name}, private", each.private, "KiB")
        figure.value(f"runner {name}, RSS", each.rss, "KiB")
    figure.value("kept for the next VM of a used runner, private", idle.private - never.private, "KiB")
    figure.value("added by a VM while it runs, private", busy.private - idle.private, "KiB")


def _runners(daemon: int) -> list[int]:
    (provider,) = children(daemon)
    (forks,) = children(provider)
    return children(forks)
