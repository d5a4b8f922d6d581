"""`make bench`: every figure against a floor measured in the same minutes. See docs/performance.md for what they mean.

The table goes to stdout, the numbers to build/bench.json. Nothing is asserted: a missed target is printed as one.
"""

import argparse
import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from app.settings import Settings, read_settings
from providers.wasm.provider import WasmProvider
from tests.bench import page
from tests.bench.report import Report
from tests.support.service import ROOT, environment

OUT = ROOT / "build" / "bench.json"


@dataclass(frozen=True, slots=True)
class Effort:
    """How many samples: enough to trust a median, or enough to see that it works."""

    vm_rounds: int
    http_rounds: int
    limits: int
    slices: int
    slice_s: float
    starts: int
    streams: int


FULL = Effort(vm_rounds=150, http_rounds=40, limits=40, slices=3, slice_s=1.0, starts=5, streams=500)
QUICK = Effort(vm_rounds=30, http_rounds=8, limits=10, slices=1, slice_s=0.5, starts=1, streams=50)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples: about a third of the time")
    parser.add_argument("--page", action="store_true", help="also write the numbers into docs/performance.md")
    options = parser.parse_args(arguments)
    OUT.parent.mkdir(exist_ok=True)
    # Beside the code and not in /tmp, which may be memory: a commit must cost what a disk costs.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=OUT.parent) as folder:
        settings = read_settings(environment(Path(folder) / "data", SANDBOX_PROVIDER="wasm"))
        (Path(folder) / "commits").mkdir(mode=0o700)
        # First of all, because it forks: nothing is imported or started yet that runners must not have.
        provider = WasmProvider.from_settings(settings.provider_frame("wasm"))
        report = asyncio.run(measure(provider, settings, Path(folder), quick=options.quick))
        _containers(report, Path(folder) / "docker", quick=options.quick)
    report.figures.sort(key=lambda each: each.number)
    report.write(OUT)
    print("\n\n".join(each.text() for each in report.figures))
    if options.page:
        page.rewrite(report.document())
    return 0


async def measure(provider: WasmProvider, settings: Settings, folder: Path, *, quick: bool) -> Report:
    # Late, so that the fork server holds none of it.
    from providers.wasm import cache  # noqa: PLC0415
    from providers.wasm.vm import MIB, Engine, EngineConfig  # noqa: PLC0415
    from tests.bench import http_figures, load_figures, pool_figures, start_figures, store_figures  # noqa: PLC0415

    effort, report = QUICK if quick else FULL, Report(quick)
    config = EngineConfig(memory_bytes=settings.memory_of("wasm") * MIB)
    floor_command = (sys.executable, "-m", "tests.bench.floor_service", "1900")
    with Engine.load(cache.compiled(settings.cache_dir, config), config) as engine:
        async with pool_figures.opened(provider) as pool, store_figures.opened(folder / "commits") as commits:
            engine.start_ticker()
            await pool_figures.vm_and_pool(report, engine, pool, effort.vm_rounds)
            with (
                http_figures.served(folder / "service", SANDBOX_PROVIDER="wasm") as service,
                http_figures.served(folder / "floor", *floor_command) as floor,
            ):
                await http_figures.one_run(report, service, floor, pool, commits, effort.http_rounds)
                four = report.figure(4, "Runs a second")
                await pool_figures.throughput(four, pool, slices=effort.slices, seconds=effort.slice_s)
                slices, seconds = effort.slices, effort.slice_s
                http_figures.throughput(four, service, floor, commits, slices=slices, seconds=seconds)
            await pool_figures.limits(report, pool, config.memory_bytes, effort.limits)
    http_figures.runner_memory(report, folder / "memory")
    start_figures.start_up(report, folder / "start", effort.starts)
    # In a thread: it has event loops of its own.
    await asyncio.to_thread(
        load_figures.figures,
        report,
        folder / "load",
        rounds=effort.http_rounds,
        seconds=2 * effort.slice_s,
        streams=effort.streams,
    )
    return report


def _containers(report: Report, folder: Path, *, quick: bool) -> None:
    from tests.bench import call_figures, docker_figures  # noqa: PLC0415  # as above

    docker_figures.figures(report, folder, quick=quick)
    call_figures.figures(report, folder.with_name("calls"), quick=quick)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
