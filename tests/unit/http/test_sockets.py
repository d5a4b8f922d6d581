"""A Unix listener is bound only where nobody else can be in its place."""

import os
import socket
import stat
from pathlib import Path

import pytest

from app.http.sockets import UnsafePathError, bind_unix


@pytest.fixture
def private(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    return directory


def test_the_socket_is_ours_alone(private: Path) -> None:
    umask = os.umask(0)
    try:
        with bind_unix(private / "s"):
            status = (private / "s").lstat()
            assert os.umask(0) == 0
    finally:
        os.umask(umask)
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_uid == os.geteuid()


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o777, 0o1700, 0o500])
def test_a_directory_that_others_can_use_is_refused(private: Path, mode: int) -> None:
    private.chmod(mode)
    with pytest.raises(UnsafePathError, match="0700"):
        bind_unix(private / "s")


def test_a_directory_of_somebody_else_is_refused(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(UnsafePathError, match="ours"):
        bind_unix(private / "s")


def test_a_link_to_a_directory_is_refused(private: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(private)
    with pytest.raises(UnsafePathError):
        bind_unix(tmp_path / "link" / "s")


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafePathError):
        bind_unix(tmp_path / "missing" / "s")


def test_a_socket_left_behind_is_replaced(private: Path) -> None:
    bind_unix(private / "s").close()
    first = (private / "s").lstat().st_ino
    with bind_unix(private / "s"):
        assert (private / "s").lstat().st_ino != first or first


def test_a_socket_that_answers_is_left_alone(private: Path) -> None:
    with bind_unix(private / "s") as bound:
        bound.listen()
        with pytest.raises(OSError, match="listens"):
            bind_unix(private / "s")
        assert (private / "s").is_socket()


@pytest.mark.parametrize("kind", ["file", "directory", "link", "dangling link"])
def test_anything_else_in_its_place_is_left_alone(private: Path, kind: str, tmp_path: Path) -> None:
    place, elsewhere = private / "s", tmp_path / "elsewhere"
    match kind:
        case "file":
            place.write_text("keep")
        case "directory":
            place.mkdir()
        case "link":
            elsewhere.write_text("keep")
            place.symlink_to(elsewhere)
        case _:
            place.symlink_to(elsewhere)
    before = place.lstat().st_ino
    with pytest.raises(UnsafePathError, match="no socket of ours"):
        bind_unix(place)
    assert place.lstat().st_ino == before


def test_the_bound_socket_is_not_inherited(private: Path) -> None:
    with bind_unix(private / "s") as bound:
        assert bound.family == socket.AF_UNIX
        assert not bound.get_inheritable()
