"""No two runs ever share a record, however equal they are (S8)."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.dispatch.attempt import Cancel
from app.dispatch.supervisor import spawn
from app.identity import Caller
from app.main import around, create_service
from app.settings import read_settings
from tests.support.fakes import javascript
from tests.support.layers import sized
from tests.support.service import environment

RUNS = sized(2_000, 10_000)
CALLERS = [Caller("a" * 32, "alice"), Caller("b" * 32, "bob")]


@pytest.mark.sized
@pytest.mark.component("wasm")
async def test_thousands_of_identical_runs_by_two_callers_have_as_many_records(tmp_path: Path) -> None:
    os.umask(0o077)
    settings = read_settings(
        environment(tmp_path / "data", SANDBOX_PROVIDER="wasm", SANDBOX_RATE_PER_MIN="0")
    )
    service = create_service(
        settings, [spawn("wasm", settings.provider_frame("wasm"))], surroundings=around()
    )
    room = asyncio.Semaphore(settings.slots["wasm"] - 2)
    async with service.opened() as services:
        while not services.readiness().ready:
            await asyncio.sleep(0.05)

        async def one(number: int) -> tuple[str, str]:
            async with room:
                run = await services.dispatcher.run(CALLERS[number % 2], javascript("1"), Cancel())
            assert replace(run.record, record_sha256="") != run.record
            return run.record.record_sha256, run.record.instance

        seen = await asyncio.gather(*(one(number) for number in range(RUNS)))
        assert len({digest for digest, _ in seen}) == RUNS
        assert len({instance for _, instance in seen}) == RUNS
        page = await services.runs.page(None, None, 100)
        assert page is not None
        assert all(run.state == "finished" for run in page.runs)
