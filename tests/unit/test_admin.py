"""`plimsoll-admin` on a SQLite file: what it prints where, what it refuses, and its exit codes."""

import asyncio
import io
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.admin import run_admin
from app.identity import Caller, Scope, token_sha256
from app.store.store import open_store

NOW = 1_800_000_000_000
DAY = 86_400_000
TOKEN = re.compile(r"plim_[A-Za-z0-9_-]{43}_[A-Za-z0-9_-]{6}\n")


@dataclass
class Said:
    code: int
    out: str
    err: str


class Admin:
    """The command with a data directory of its own and a clock that a test moves."""

    def __init__(self, data: Path) -> None:
        self.environ = {"PLIMSOLL_DATA_DIR": str(data), "HOME": str(data.parent)}
        self.now = NOW

    def __call__(self, *argv: str, stdin: str = "") -> Said:
        out, err = io.StringIO(), io.StringIO()
        code = run_admin(argv, self.environ, out, err, stdin=io.StringIO(stdin), clock=lambda: self.now)
        return Said(code, out.getvalue(), err.getvalue())

    def who(self, token: str) -> Caller | None:
        """The caller a service would see for this token."""
        url = f"sqlite+aiosqlite:///{self.environ['PLIMSOLL_DATA_DIR']}/plimsoll.db"

        async def ask() -> Caller | None:
            async with open_store(url, clock=lambda: self.now, sole_owner=False) as store:
                return await store.callers.authenticate(token_sha256(token.strip()) or "", self.now)

        return asyncio.run(ask())


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin(tmp_path / "data")


def test_a_new_token_is_alone_on_stdout_and_good_at_once(admin: Admin) -> None:
    said = admin("callers", "create", "alice")
    assert said.code == 0
    assert TOKEN.fullmatch(said.out)
    assert said.out.strip() not in said.err
    assert "alice" in said.err
    caller = admin.who(said.out)
    assert caller is not None
    assert caller.name == "alice"
    assert caller.scopes == {Scope.RUN, Scope.READ_RECORDS}


def test_scopes_are_the_ones_given(admin: Admin) -> None:
    said = admin("callers", "create", "root", "--scope", "admin", "--scope", "records:sign")
    caller = admin.who(said.out)
    assert caller is not None
    assert caller.scopes == {Scope.ADMIN, Scope.SIGN_RECORDS}


@pytest.mark.parametrize(
    ("when", "last"),
    [
        ("30d", NOW + 30 * DAY - 1),
        ("2027-02-01", 1_801_439_999_999),
        ("2027-02-01T00:00:00Z", 1_801_439_999_999),
    ],
)
def test_a_token_ends_when_it_was_told_to(admin: Admin, when: str, last: int) -> None:
    said = admin("callers", "create", "alice", "--expires", when)
    admin.now = last
    assert admin.who(said.out) is not None
    admin.now = last + 1
    assert admin.who(said.out) is None


def test_rotation_keeps_the_old_token_for_the_overlap(admin: Admin) -> None:
    old = admin("callers", "create", "alice").out
    said = admin("callers", "rotate", "alice", "--overlap", "1h")
    assert TOKEN.fullmatch(said.out)
    assert admin.who(old) == admin.who(said.out) != None  # noqa: E711 - both, and somebody
    admin.now += 3_600_000
    assert admin.who(old) is None
    assert admin.who(said.out) is not None
    last = admin("callers", "rotate", "alice", "--overlap", "0s").out
    assert admin.who(said.out) is None
    assert admin.who(last) is not None


def test_a_revoked_caller_is_gone_and_its_name_with_it(admin: Admin) -> None:
    token = admin("callers", "create", "alice").out
    assert admin("callers", "revoke", "alice").code == 0
    assert admin.who(token) is None
    for words in (("revoke", "alice"), ("rotate", "alice"), ("rotate", "nobody"), ("create", "alice")):
        said = admin("callers", *words)
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("plimsoll-admin: ")
    assert "revoked" in admin("callers", "list").out


def test_a_listing_is_imported_as_it_is(admin: Admin, tmp_path: Path) -> None:
    token = admin("callers", "create", "alice", "--expires", "30d").out
    admin("callers", "create", "bob")
    admin("callers", "revoke", "bob")
    listing = admin("callers", "list", "--json").out
    first = json.loads(listing.splitlines()[0])
    assert first["tokens"] == [{"sha256": token_sha256(token.strip()), "expires": "2027-02-14T08:00:00.000Z"}]
    assert token.strip() not in listing
    other = Admin(tmp_path / "other")
    assert other("callers", "import", "-", stdin=listing).code == 0
    assert other("callers", "list", "--json").out == listing
    assert other.who(token) == admin.who(token) != None  # noqa: E711 - both, and somebody
    assert other("callers", "create", "bob").code == 1


def test_an_import_with_faults_names_every_line_and_keeps_nothing(admin: Admin, tmp_path: Path) -> None:
    admin("callers", "create", "alice")
    good = {"name": "carol", "scopes": [], "tokens": []}
    file = tmp_path / "callers"
    file.write_text("\n".join([json.dumps(good), "{", json.dumps(good | {"name": "X"})]))
    said = admin("callers", "import", str(file))
    assert said.code == 1
    assert "line 2: must be one JSON object" in said.err
    assert "line 3: name: must match" in said.err
    said = admin(
        "callers", "import", "-", stdin=json.dumps(good) + "\n\n" + json.dumps(good | {"name": "alice"})
    )
    assert (said.code, said.err) == (
        1,
        "plimsoll-admin: nothing was imported\nline 3: name: was used before\n",
    )
    assert "carol" not in admin("callers", "list").out


def test_a_file_that_cannot_be_read_is_a_clear_failure(admin: Admin, tmp_path: Path) -> None:
    assert admin("callers", "import", str(tmp_path / "none")).err.endswith("No such file or directory\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    assert admin("callers", "import", str(tmp_path / "binary")).err.endswith("is not UTF-8\n")


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("callers",),
        ("callers", "create"),
        ("callers", "create", "Alice"),
        ("callers", "create", "a" * 65),
        ("callers", "create", "anonymous"),
        ("callers", "create", "alice", "--scope", "all"),
        ("callers", "create", "alice", "--expires", "soon"),
        ("callers", "create", "alice", "--expires", "2020-01-01"),
        ("callers", "create", "alice", "--expires", "0d"),
        ("callers", "rotate", "alice", "--overlap", "-1h"),
        ("callers", "rotate", "alice", "--overlap", "24"),
        ("cache",),
        ("nonsense",),
    ],
)
def test_what_is_not_understood_is_2_and_touches_nothing(
    admin: Admin, tmp_path: Path, argv: tuple[str, ...]
) -> None:
    said = admin(*argv)
    assert (said.code, said.out) == (2, "")
    assert "usage:" in said.err
    assert not (tmp_path / "data").exists()


def test_help_is_0_and_on_stdout(admin: Admin) -> None:
    said = admin("callers", "--help")
    assert said.code == 0
    for word in ("create", "list", "rotate", "revoke", "import"):
        assert word in said.out


def test_bad_settings_are_all_named(admin: Admin) -> None:
    admin.environ |= {"SANDBOX_MEMORY_MB": "x", "PLIMSOLL_NONSENSE": "1"}
    said = admin("callers", "list")
    assert said.code == 2
    assert "SANDBOX_MEMORY_MB" in said.err
    assert "PLIMSOLL_NONSENSE" in said.err


def test_a_reachable_data_directory_is_refused(admin: Admin, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    said = admin("callers", "create", "alice")
    assert (said.code, said.out) == (1, "")
    assert "make it 700" in said.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("exists", [True, False])
def test_root_is_told_whose_command_it_is_and_makes_nothing(
    admin: Admin, tmp_path: Path, *, exists: bool
) -> None:
    theirs = tmp_path / "data" if exists else tmp_path
    theirs.mkdir(exist_ok=True)
    os.chown(theirs, 12_345, 12_345)
    said = admin("callers", "create", "alice", "--expires", "30d")
    assert (said.code, said.out) == (1, "")
    again = f"env PLIMSOLL_DATA_DIR={tmp_path / 'data'} plimsoll-admin callers create alice --expires 30d\n"
    assert said.err.endswith(f"runuser -u '#12345' -- {again}")
    assert [path for path in tmp_path.rglob("*") if path != theirs] == []


def test_a_lost_answer_is_not_called_a_failure(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit may have happened, and then the name is taken: say where to look."""
    from app.store import callers  # noqa: PLC0415 - to break it
    from app.store.values import StoreUnavailable  # noqa: PLC0415

    def lost(*_: object) -> None:
        raise StoreUnavailable("unknown", "OperationalError")

    monkeypatch.setattr(callers, "_add", lost)
    said = admin("callers", "create", "alice")
    assert (said.code, said.out) == (1, "")
    assert "whether it was done is not known" in said.err


def test_only_filling_the_cache_needs_no_database(
    admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it starts is isolated from the environment and the current directory."""
    started: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], *, env: dict[str, str], **_: object) -> object:
        started.append((command, env))
        return type("Done", (), {"stdout": "", "stderr": "refused\n", "returncode": 3})

    monkeypatch.setattr("app.admin.subprocess.run", run)
    admin.environ |= {"PLIMSOLL_CACHE_DIR": str(tmp_path / "cache"), "SANDBOX_MEMORY_MB": "128"}
    said = admin("cache", "fill")
    assert (said.code, said.err) == (1, "refused\n")
    [(command, env)] = started
    assert command[1:] == ["-I", "-m", "providers.wasm.cache", str(tmp_path / "cache"), "--memory-mb", "128"]
    assert env == {}
    assert not (tmp_path / "data").exists()
