"""A Postgres server of our own for one test session: Debian's binaries, an ordinary user, a Unix socket, no fsync."""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

_SETTINGS = ("listen_addresses=", "max_connections=60")


def binaries() -> Path | None:
    """Where a server's programs are, or None when none is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@contextmanager
def postgres(programs: Path, *, place: Path | None = None, fsync: bool = False) -> Iterator[Path]:
    """Run a server; its socket is in the directory given. The server refuses to run as root, so root lends it a user.

    Its files are in a directory of their own in `place` (the system's for temporary files).
    """
    owner = pwd.getpwnam("postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name)
    # Not under pytest's directory: the server's user may not enter that one.
    home = Path(tempfile.mkdtemp(prefix="plimsoll-pg-", dir=place))
    os.chown(home, owner.pw_uid, owner.pw_gid)

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), "-D", str(home / "data"), *arguments]
        # Root names the server's user; anybody else is it already.
        user, group = (owner.pw_uid, owner.pw_gid) if os.geteuid() == 0 else (None, None)
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
            cwd="/",
            env={"LC_ALL": "C"},
            user=user,
            group=group,
        )

    try:
        run("initdb", "-U", "postgres", "--auth=trust", "--no-sync")
        own = (f"fsync={'on' if fsync else 'off'}", f"unix_socket_directories={home}")
        options = " ".join(f"-c {setting}" for setting in (*_SETTINGS, *own))
        run("pg_ctl", "-w", "-t", "30", "-l", str(home / "log"), "-o", options, "start")
        try:
            yield home
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home)


def url(socket: Path) -> str:
    return f"postgresql+asyncpg://postgres@/postgres?host={socket}"


def execute(socket: Path, *statements: str) -> None:
    """Run statements as the server's owner, outside any transaction."""

    async def run() -> None:
        engine = create_async_engine(url(socket), isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            for statement in statements:
                await connection.execute(sa.text(statement))
        await engine.dispose()

    asyncio.run(run())
