"""The file of minters: what is read of it, and that every fault is named by minter and rule, never by a value."""

import os
from pathlib import Path

import pytest

from broker.addresses import AddressFault, Vetted, vet
from broker.hooks import HOOK_S, ExecHook, HttpHook
from broker.settings import Faulty, Hooks, from_file, read_hooks
from plimsoll.contract.grants import Origin
from tests.architecture.repository import ROOT
from tests.docs.pages import blocks

SECRET = "canary-of-a-minter"
GOOD = f"""
[exec.vault]
command = ["/usr/bin/mint", "--now"]
origins = ["https://hr.example.com"]
timeout_s = 2
environment = {{ VAULT_TOKEN = "{SECRET}" }}
[http.tokens]
url = "https://tokens.example.com"
path = "/v1/mint"
origins = ["https://hr.example.com", "https://pay.example.com:8443"]
headers = {{ Authorization = "Bearer {SECRET}" }}
"""


def stored(folder: Path, text: str | bytes) -> Path:
    path = folder / "minters.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o600)
    return path


def hooks(folder: Path, text: str) -> Hooks:
    return read_hooks(stored(folder, text))


def test_both_kinds_are_read(tmp_path: Path) -> None:
    origin = "https://hr.example.com"
    found = hooks(tmp_path, GOOD)
    assert found == {
        "vault": ExecHook(("/usr/bin/mint", "--now"), frozenset({origin}), {"VAULT_TOKEN": SECRET}, 2.0),
        "tokens": HttpHook(
            Origin("https", "tokens.example.com", 443),
            "/v1/mint",
            frozenset({origin, "https://pay.example.com:8443"}),
            (("authorization", f"Bearer {SECRET}"),),
        ),
    }
    assert SECRET not in repr(found)
    assert hooks(tmp_path, "") == {}


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    (shown,) = [block for block in blocks(ROOT / "docs" / "minters.md") if block.language == "sh"]
    text = shown.text.partition("<< 'END'\n")[2].partition("END\n")[0]
    assert {name: type(hook) for name, hook in hooks(tmp_path, text).items()} == {
        "vault": ExecHook,
        "tokens": HttpHook,
    }


def test_a_deadline_is_there_and_has_a_ceiling(tmp_path: Path) -> None:
    found = hooks(tmp_path, GOOD.replace("timeout_s = 2\n", ""))["vault"]
    assert isinstance(found, ExecHook)
    assert found.timeout_s == HOOK_S


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("[exec.vault]", "[script.vault]", "script: must be exec or http"),
        (GOOD, "exec = 5", "exec: must hold tables, as in [exec.vault]"),
        (GOOD, f'exec = "{SECRET}"', "exec: must hold tables"),
        (GOOD, "exec = { vault = 5 }", "exec: must hold tables"),
        (GOOD, "[[http]]", "http: must hold tables"),
        ("[http.tokens]", "[http.vault]", "http.vault: must have a name of its own"),
        ("[exec.vault]", '[exec."Vault!"]', "exec.Vault!: must have a name of its own, 1 to 64 of [a-z0-9-]"),
        (
            '["/usr/bin/mint", "--now"]',
            '["mint"]',
            "exec.vault: a hook's command must start with an absolute path",
        ),
        ('["/usr/bin/mint", "--now"]', "[]", "exec.vault: a hook's command must start with an absolute path"),
        (
            '["/usr/bin/mint", "--now"]',
            '"/usr/bin/mint"',
            "exec.vault: lacks a member, or has one of another type",
        ),
        ('["/usr/bin/mint", "--now"]', '["/usr/bin/mint", 5]', "exec.vault: lacks a member"),
        ('"--now"', '"a\\u0000b"', "exec.vault: command and environment must hold no NUL"),
        (
            f'VAULT_TOKEN = "{SECRET}"',
            f'VAULT_TOKEN = "{SECRET}\\u0000"',
            "exec.vault: command and environment must",
        ),
        ("VAULT_TOKEN", '"A=B"', "exec.vault: environment must have names of [A-Za-z0-9_]"),
        (f'{{ VAULT_TOKEN = "{SECRET}" }}', f'"{SECRET}"', "exec.vault: lacks a member"),
        (f'VAULT_TOKEN = "{SECRET}"', "VAULT_TOKEN = 5", "exec.vault: lacks a member"),
        ("timeout_s = 2", "timeout_s = 0", "exec.vault: timeout_s must be a number of seconds, up to 3"),
        ("timeout_s = 2", "timeout_s = 3.1", "exec.vault: timeout_s must be"),
        ("timeout_s = 2", "timeout_s = nan", "exec.vault: timeout_s must be"),
        ("timeout_s = 2", 'timeout_s = "2"', "exec.vault: timeout_s must be"),
        ("timeout_s = 2", "timeout_s = true", "exec.vault: timeout_s must be"),
        ("timeout_s = 2", "shell = true", "exec.vault: shell is no member of a minter"),
        ('command = ["/usr/bin/mint", "--now"]\n', "", "exec.vault: lacks a member"),
        ('origins = ["https://hr.example.com"]\n', "", "exec.vault: lacks a member"),
        (
            'origins = ["https://hr.example.com"]\n',
            "origins = []\n",
            "exec.vault: origins must list what it mints",
        ),
        ('["https://hr.example.com"]', '"https://hr.example.com"', "exec.vault: lacks a member"),
        (
            '["https://hr.example.com"]',
            '["https://hr.example.com/"]',
            "exec.vault: origin 'https://hr.example.com/'",
        ),
        (
            "https://tokens.example.com",
            "ftp://tokens.example.com",
            "http.tokens: origin 'ftp://tokens.example.com'",
        ),
        ('"https://tokens.example.com"', "5", "http.tokens: lacks a member"),
        ("/v1/mint", "/v1/mint?x=y z", "http.tokens: route"),
        ("/v1/mint", "v1/mint", "http.tokens: route"),
        ('"/v1/mint"', "5", "http.tokens: route"),
        ("Authorization", "Host", "http.tokens: headers must have names of [a-z0-9-], and none that"),
        ("Authorization", "Content-Length", "http.tokens: headers must have names"),
        ("Authorization", '"a b"', "http.tokens: headers must have names"),
        (
            f"Bearer {SECRET}",
            f"Bearer {SECRET}\\r\\nx: y",
            "http.tokens: headers must have values of visible ASCII",
        ),
        (f'{{ Authorization = "Bearer {SECRET}" }}', "5", "http.tokens: lacks a member"),
    ],
)
def test_a_fault_is_named_by_minter_and_rule_and_no_value(
    tmp_path: Path, old: str, new: str, fault: str
) -> None:
    assert old in GOOD
    with pytest.raises(Faulty) as caught:
        hooks(tmp_path, GOOD.replace(old, new, 1))
    assert str(caught.value).startswith(f"{tmp_path / 'minters.toml'}: {fault}")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("data", [f"exec = {SECRET}".encode(), b"\xff", b"[exec", b"a = 1\na = 2"])
def test_what_is_no_toml_is_refused_without_a_word_of_it(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(Faulty, match=r"must be TOML in UTF-8$"):
        read_hooks(stored(tmp_path, data))


def test_a_file_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, GOOD)
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(Faulty, match="can be reached by others"):
            read_hooks(path)


def test_what_is_not_a_file_of_ours_is_refused_at_once(tmp_path: Path) -> None:
    real = stored(tmp_path, GOOD)
    link, fifo = tmp_path / "link", tmp_path / "fifo"
    link.symlink_to(real)
    os.mkfifo(fifo, 0o600)
    for path, rule in (
        (link, "symbolic links"),
        (fifo, "regular file"),
        (tmp_path, "regular file"),
    ):
        with pytest.raises(Faulty, match=rule):
            read_hooks(path)


def test_a_file_that_is_too_long_is_refused_and_not_cut(tmp_path: Path) -> None:
    path = stored(tmp_path, GOOD + "#" * (1 << 20))
    with pytest.raises(Faulty, match=r"must be at most 1048576 bytes$"):
        read_hooks(path)


def by_hand(folder: Path, listen: str) -> Path:
    (folder / "control").write_text("c" * 64)
    (folder / "control").chmod(0o600)
    path = folder / "broker.toml"
    told = {"key": "/k", "listen": listen, "control_file": str(folder / "control")}
    lines = [f'{name} = "{value}"' for name, value in told.items()]
    path.write_text("\n".join([*lines, 'networks = "127.0.0.0/8, ::1/128"', ""]))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("listen", "host", "port", "is_itself"),
    [
        ("127.0.0.1:8747", "127.0.0.1", 8747, True),
        ("[::1]:8747", "::1", 8747, True),
        ("0.0.0.0:8747", "127.0.0.1", 8747, True),
        ("127.0.0.1:8747", "127.0.0.1", 8748, False),
        ("unix:/run/broker/socket", "127.0.0.1", 8747, False),
    ],
)
async def test_a_broker_that_is_started_by_hand_is_no_api_of_its_own(
    tmp_path: Path, listen: str, host: str, port: int, *, is_itself: bool
) -> None:
    rules = from_file(by_hand(tmp_path, listen)).rules
    found = await vet(Origin("http", host, port), rules, here=lambda _: True)
    assert found is AddressFault.OURSELVES if is_itself else isinstance(found, Vetted)


def test_a_listener_that_is_no_address_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Faulty, match="listen"):
        from_file(by_hand(tmp_path, "somewhere"))
