"""SIGKILL in the middle of commits loses nothing that was answered for."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.store.store import open_store
from app.store.values import State
from tests.integration.store.samples import Clock

WRITER = """
import asyncio, sys
from app.store.store import open_store
from tests.integration.store.samples import Clock, finished, new_id, starting

async def endless(store):
    while True:
        run = starting(new_id())
        await store.runs.insert_starting(run)
        print("s", run.id, flush=True)
        assert await store.runs.finish(run.id, finished(run.id))
        print("f", run.id, flush=True)

async def main():
    async with open_store(sys.argv[1], clock=Clock()) as store:
        await asyncio.gather(*(endless(store) for _ in range(8)))

asyncio.run(main())
"""


def acknowledged(url: str, lines: int) -> tuple[set[str], set[str]]:
    """Run a writer, kill it after so many answers; the ids it was told are written and finished."""
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True, cwd=root
    ) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.readlines()
    words = [line.split() for line in told if line.endswith("\n")]
    return {word[1] for word in words if word[0] == "s"}, {word[1] for word in words if word[0] == "f"}


@pytest.mark.parametrize("lines", [1, 50, 333, 1_000])
async def test_no_acknowledged_commit_is_lost(database_url: str, lines: int) -> None:
    started, ended = acknowledged(database_url, lines)
    async with open_store(database_url, clock=Clock()) as store:
        await store.runs.reconcile_at_start(9_000, "service_restarted")
        page = await store.runs.page(None, None, 100_000)
    assert page is not None
    kept = {run.id: run for run in page.runs}
    assert started <= kept.keys()
    assert ended <= {run_id for run_id, run in kept.items() if run.state is State.FINISHED}
    for run in kept.values():
        assert (run.record is not None) == (run.state is State.FINISHED)
        assert run.settled
    assert len(kept) <= len(started) + 8
