"""`plimsoll-admin` in a process of its own, beside a store that is being served from."""

import asyncio
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.identity import token_sha256
from app.store.store import Store, open_store
from tests.integration.store.samples import finished, new_id, starting

ADMIN = "from app.cli import admin_main; admin_main()"


def now() -> int:
    return time.time_ns() // 1_000_000


class Service:
    """A store in this process and the admin command in others."""

    def __init__(self, data: Path) -> None:
        self.environ = {"PLIMSOLL_DATA_DIR": str(data), "HOME": str(data.parent), "PATH": os.defpath}
        self.url = f"sqlite+aiosqlite:///{data / 'plimsoll.db'}"

    def admin(self, *argv: str) -> str:
        """Standard output of one successful command."""
        command = [sys.executable, "-W", "error", "-c", ADMIN, *argv]
        done = subprocess.run(
            command, env=self.environ, check=False, capture_output=True, text=True, timeout=60, umask=0
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path / "data")


async def knows(store: Store, token: str) -> bool:
    return await store.callers.authenticate(token_sha256(token.strip()) or "", now()) is not None


async def test_what_another_process_grants_or_revokes_counts_from_the_next_request(service: Service) -> None:
    async with open_store(service.url, clock=now) as store:
        assert not await store.callers.any_exist()
        token = await asyncio.to_thread(service.admin, "callers", "create", "alice")
        assert await knows(store, token)
        newer = await asyncio.to_thread(service.admin, "callers", "rotate", "alice", "--overlap", "0s")
        assert not await knows(store, token)
        assert await knows(store, newer)
        await asyncio.to_thread(service.admin, "callers", "revoke", "alice")
        assert not await knows(store, newer)


async def test_neither_loses_anything_while_both_write(service: Service) -> None:
    async with open_store(service.url, clock=now) as store:
        stop = asyncio.Event()

        async def load() -> int:
            count = 0
            while not stop.is_set():
                run = starting(new_id())
                await store.runs.insert_starting(run)
                assert await store.runs.finish(run.id, finished(run.id))
                count += 1
            return count

        loads = [asyncio.ensure_future(load()) for _ in range(8)]
        names = [f"caller-{number}" for number in range(3)]
        creating = (asyncio.to_thread(service.admin, "callers", "create", name) for name in names)
        tokens = await asyncio.gather(*creating)
        stop.set()
        total = sum(await asyncio.gather(*loads))
        assert [await knows(store, token) for token in tokens] == [True] * 3
        page = await store.runs.page(None, None, total + 1)
        assert page is not None
        assert len(page.runs) == total


def test_the_first_command_makes_private_files_whatever_the_umask(service: Service, tmp_path: Path) -> None:
    service.admin("callers", "create", "alice")
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").iterdir()}
    assert found == {"plimsoll.db": 0o600}
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
