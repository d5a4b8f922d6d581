"""The admin command on Postgres: the same commands, no file and no user to check."""

import io
from pathlib import Path

from app.admin import run_admin
from app.store.store import open_store
from tests.integration.store.samples import Clock, caller, token


def test_callers_are_looked_after_on_postgres_too(postgres_url: str, tmp_path: Path) -> None:
    environ = {
        "PLIMSOLL_DATABASE_URL": postgres_url,
        "PLIMSOLL_DATA_DIR": str(tmp_path / "data"),
        "HOME": str(tmp_path),
    }

    def admin(*argv: str) -> str:
        out, err = io.StringIO(), io.StringIO()
        assert run_admin(argv, environ, out, err) == 0, err.getvalue()
        return out.getvalue()

    admin("callers", "create", "alice")
    admin("callers", "rotate", "alice")
    admin("callers", "create", "bob")
    admin("callers", "revoke", "bob")
    names = [line.split()[0] for line in admin("callers", "list").splitlines()]
    assert names == ["alice", "bob"]
    assert not (tmp_path / "data").exists()


async def test_what_one_store_grants_or_revokes_counts_in_the_other(postgres_url: str) -> None:
    """Two stores on one database, as two machines have them."""
    async with (
        open_store(postgres_url, clock=Clock()) as one,
        open_store(postgres_url, clock=Clock()) as other,
    ):
        await one.callers.create(caller("alice", token("01")))
        assert await other.callers.authenticate("01" * 32, 1) is not None
        await other.callers.revoke("alice")
        assert await one.callers.authenticate("01" * 32, 1) is None
