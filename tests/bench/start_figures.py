"""Figure 7: from nothing to ready."""

import subprocess
import sys
import time
from pathlib import Path

from tests.bench.report import Figure
from tests.bench.sampling import Series
from tests.bench.wire import Connection, get
from tests.support.service import ROOT, Running, environment, started

_IMPORTS = "import app.serve, app.main, app.http.listener"
_PATIENCE_S = 30.0
_DEMO_S = 120.0


def start_up(figure: Figure, folder: Path, times: int) -> None:
    """The daemon with a database that is there, the imports alone in turn with it, and the demo."""
    ready, imports = Series(), Series()
    for number in range(-1, times):  # the first makes the database
        kept = number >= 0
        for series, took in ((ready, _to_ready(folder)), (imports, _seconds(sys.executable, "-c", _IMPORTS))):
            series.values += [took] * kept
    figure.line("plimsolld, exec to ready", ready, "s")
    figure.line("the interpreter with the same imports", imports, "s")
    figure.value("ratio of medians", ready.p50 / imports.p50)
    _seconds("make", "-s", "demo")
    figure.value("make demo, second time", _seconds("make", "-s", "demo"), "s")


def _seconds(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=_DEMO_S)
    return time.perf_counter() - began


def _to_ready(folder: Path) -> float:
    environ = environment(folder / "data", SANDBOX_PROVIDER="wasm")
    began = time.perf_counter()
    with started(environ, folder.with_suffix(".log"), wait=False) as running:
        _wait(running)
        return time.perf_counter() - began


def _wait(running: Running) -> None:
    until = time.monotonic() + _PATIENCE_S
    with Connection(running.url) as connection:
        while connection.ask(get("/readyz"))[0] != 200:  # the status, by its number
            if time.monotonic() > until:
                raise RuntimeError("the service did not get ready")
            time.sleep(0.005)
