"""Thousands of runs in containers through one service: what grows a little with each of them shows here.

`make soak` asks for it by SOAK_RUNS; tests/integration/docker/test_flat.py does the same with fewer runs.
"""

import os
import time
from pathlib import Path

import pytest

from tests.integration.docker.conftest import runtime
from tests.support.docker import Daemon
from tests.support.flat import flat_after, machine, serving, table

__all__ = ["runtime"]  # a fixture

RUNS = int(os.environ.get("SOAK_RUNS", "0"))
WARM_UP = 100
EVERY = 100
_EACH_S = 3.0
"""A run's share of the time, on a machine that does much else."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        RUNS <= WARM_UP, reason="long: `make soak` asks for it; test_flat.py is the short form"
    ),
    pytest.mark.timeout(600 + RUNS * _EACH_S),
]


def test_thousands_of_runs_leave_nothing_behind(
    docker: Daemon, image: str, runtime: str, tmp_path: Path
) -> None:
    began = time.monotonic()

    def told(done: int) -> None:
        if done % EVERY == 0:
            print(f"{runtime}: {done} of {RUNS} runs after {time.monotonic() - began:.0f} s", flush=True)

    with machine(docker, tmp_path) as found, serving(found, tmp_path, runtime, image):
        before, now, took = flat_after(found, WARM_UP, RUNS, told)
    print(f"{runtime}: {RUNS - WARM_UP} runs in {took:.0f} s; before and after:\n{table(before, now)}")
