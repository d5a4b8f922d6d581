"""The parts of the bench. Each is a process of its own, because some fork and others count what their process uses.

Modules are imported where they are needed: a fork server holds none of what comes after it, and a commit that lacks a module
lacks only the parts that need it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench.report import Report

if TYPE_CHECKING:
    from app.settings import Settings
    from providers.wasm.provider import WasmProvider


@dataclass(frozen=True, slots=True)
class Effort:
    """How many samples: enough to trust a median, or enough to see that it works."""

    quick: bool
    vm_rounds: int
    http_rounds: int
    limits: int
    slices: int
    slice_s: float
    starts: int
    streams: int


FULL: Final = Effort(
    quick=False, vm_rounds=150, http_rounds=40, limits=40, slices=3, slice_s=1.0, starts=5, streams=500
)
QUICK: Final = Effort(
    quick=True, vm_rounds=30, http_rounds=8, limits=10, slices=1, slice_s=0.5, starts=1, streams=50
)


@dataclass(frozen=True, slots=True)
class Part:
    """Figures that are measured together, with their data in a folder of their own."""

    name: str
    figures: tuple[int, ...]
    measure: Callable[[Report, Path, Effort], None]


def _wasm(folder: Path) -> "tuple[Settings, WasmProvider]":
    """A provider in this process. It forks: nothing is imported or started yet that runners must not have."""
    from app.settings import read_settings  # noqa: PLC0415
    from providers.wasm.provider import WasmProvider  # noqa: PLC0415
    from tests.support.service import environment  # noqa: PLC0415

    settings = read_settings(environment(folder / "data", SANDBOX_PROVIDER="wasm"))
    return settings, WasmProvider.from_settings(settings.provider_frame("wasm"))


def _vm(report: Report, folder: Path, effort: Effort) -> None:
    settings, provider = _wasm(folder)
    from providers.wasm import cache  # noqa: PLC0415
    from providers.wasm.vm import MIB, Engine, EngineConfig  # noqa: PLC0415
    from tests.bench import pool_figures  # noqa: PLC0415

    async def measured() -> None:
        config = EngineConfig(memory_bytes=settings.memory_of("wasm") * MIB)
        with Engine.load(cache.compiled(settings.cache_dir, config), config) as engine:
            async with pool_figures.opened(provider) as pool:
                engine.start_ticker()
                await pool_figures.vm_and_pool(report, engine, pool, effort.vm_rounds)

    asyncio.run(measured())


def _http(report: Report, folder: Path, effort: Effort) -> None:
    _, provider = _wasm(folder)
    from tests.bench import http_figures, pool_figures, store_figures  # noqa: PLC0415

    async def measured() -> None:
        async with pool_figures.opened(provider) as pool, store_figures.opened(folder / "commits") as commits:
            with (
                http_figures.served(folder / "service", SANDBOX_PROVIDER="wasm") as service,
                http_figures.served(folder / "floor", *http_figures.FLOOR) as floor,
            ):
                with report.attempt("figures 3 and 8"):
                    await http_figures.one_run(report, service, floor, pool, commits, effort.http_rounds)
                slices, seconds = effort.slices, effort.slice_s
                with report.measuring(4, "Runs a second") as four:
                    await pool_figures.throughput(four, pool, slices=slices, seconds=seconds)
                    http_figures.throughput(four, service, floor, commits, slices=slices, seconds=seconds)

    (folder / "commits").mkdir(mode=0o700)
    asyncio.run(measured())


def _limits(report: Report, folder: Path, effort: Effort) -> None:
    settings, provider = _wasm(folder)
    from providers.wasm.vm import MIB  # noqa: PLC0415
    from tests.bench import pool_figures  # noqa: PLC0415

    async def measured() -> None:
        title = "Limits: an endless loop at its deadline, an allocation bomb at its cap"
        with report.measuring(6, title) as figure:
            async with pool_figures.opened(provider) as pool:
                await pool_figures.limits(figure, pool, settings.memory_of("wasm") * MIB, effort.limits)

    asyncio.run(measured())


def _memory(report: Report, folder: Path, effort: Effort) -> None:
    from tests.bench import http_figures  # noqa: PLC0415

    with report.measuring(5, "Memory of runners, KiB") as figure:
        http_figures.runner_memory(figure, folder / "memory")


def _start(report: Report, folder: Path, effort: Effort) -> None:
    from tests.bench import start_figures  # noqa: PLC0415

    with report.measuring(7, "Start-up") as figure:
        start_figures.start_up(figure, folder / "start", effort.starts)


def _load(report: Report, folder: Path, effort: Effort) -> None:
    from tests.bench import load_figures  # noqa: PLC0415

    load_figures.figures(
        report,
        folder / "load",
        rounds=effort.http_rounds,
        seconds=2 * effort.slice_s,
        streams=effort.streams,
    )


def _containers(report: Report, folder: Path, effort: Effort) -> None:
    from tests.bench import docker_figures  # noqa: PLC0415

    docker_figures.figures(report, folder / "docker", quick=effort.quick)


def _calls(report: Report, folder: Path, effort: Effort) -> None:
    from tests.bench import call_figures  # noqa: PLC0415

    call_figures.figures(report, folder / "calls", quick=effort.quick)


def _places(report: Report, folder: Path, effort: Effort) -> None:
    from tests.bench import place_figures  # noqa: PLC0415

    place_figures.figures(report, rounds=2 if effort.quick else 8, calls=200)


PARTS: Final = (
    Part("vm", (1, 2), _vm),
    Part("http", (3, 4, 8), _http),
    Part("limits", (6,), _limits),
    Part("memory", (5,), _memory),
    Part("start", (7,), _start),
    Part("load", (9, 10, 11), _load),
    Part("containers", (12, 13, 14, 15), _containers),
    Part("calls", (16, 17), _calls),
    Part("places", (18,), _places),
)
