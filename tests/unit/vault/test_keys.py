"""Key files: made once, read only where nobody else could."""

import os
from pathlib import Path

import pytest

from app.vault import seal, unseal
from app.vault.keys import KeyUnusable, make_pair, read_private, read_public
from app.vault.seal import Binding
from app.vault.unseal import Secret

BOUND = Binding("p", "https://a.example", "static", "", (), ())


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    private, public = tmp_path / "private", tmp_path / "public"
    make_pair(private, public)
    return private, public


def test_a_pair_seals_and_opens(pair: tuple[Path, Path]) -> None:
    private, public = pair
    sealed = seal.seal(b"x", BOUND, read_public(public))
    assert unseal.load(private).open(sealed, BOUND) == Secret(b"x")


def test_the_private_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_pair(tmp_path / "private", tmp_path / "public")
    finally:
        os.umask(before)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o644


def test_a_file_that_exists_is_never_overwritten(pair: tuple[Path, Path]) -> None:
    private, public = pair
    kept = private.read_bytes(), public.read_bytes()
    with pytest.raises(KeyUnusable, match="exists"):
        make_pair(private, public)
    with pytest.raises(KeyUnusable, match="exists"):
        make_pair(private.with_name("other"), public)
    assert (private.read_bytes(), public.read_bytes()) == kept
    assert not private.with_name("other").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666])
def test_a_private_file_in_others_reach_is_refused(pair: tuple[Path, Path], mode: int) -> None:
    pair[0].chmod(mode)
    with pytest.raises(KeyUnusable, match="reached by others"):
        read_private(pair[0])


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_public_file_that_others_could_change_is_refused(pair: tuple[Path, Path], mode: int) -> None:
    """Who changes it has secrets sealed for a key of theirs."""
    pair[1].chmod(mode)
    with pytest.raises(KeyUnusable, match="changed by others"):
        read_public(pair[1])


def test_a_link_is_not_followed(pair: tuple[Path, Path], tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(pair[0])
    with pytest.raises(KeyUnusable, match="link"):
        read_private(link)


def test_a_second_name_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "second").hardlink_to(pair[0])
    with pytest.raises(KeyUnusable, match="one name"):
        read_private(pair[0])


def test_another_owners_file_is_refused(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    with pytest.raises(KeyUnusable, match=f"belongs to uid {us}"):
        read_private(pair[0])


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(KeyUnusable):
            read_private(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"plimsoll-vault-private-1\n",
        b"plimsoll-vault-private-1 canary\n",
        b"plimsoll-vault-private-2 " + b"A" * 43 + b"\n",
        b"plimsoll-vault-public-1 " + b"A" * 43 + b"\n",
        b"plimsoll-vault-private-1 " + b"A" * 43,
        b"plimsoll-vault-private-1 " + b"A" * 42 + b"B\n",
        b"plimsoll-vault-private-1 " + b"A" * 43 + b"\nx",
        b"plimsoll-vault-private-1 " + b"A" * 44 + b"\n",
        b"plimsoll-vault-private-1 " + b"/" * 43 + b"\n",
    ],
)
def test_another_format_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "private"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyUnusable) as caught:
        read_private(path)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyUnusable, match="missing: No such file"):
        read_private(tmp_path / "missing")


def test_a_public_file_is_no_private_one(pair: tuple[Path, Path]) -> None:
    pair[1].chmod(0o600)
    with pytest.raises(KeyUnusable, match="private-1 and a key"):
        read_private(pair[1])
