"""Texts beside a file of profiles: what is read, and everything that is not."""

import os
from pathlib import Path

import pytest

from app import beside
from app.beside import Unreadable, read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a good text, and one outside of it."""
    (tmp_path / "outside.md").write_text("canary", encoding="utf-8")
    inside = tmp_path / "profiles"
    (inside / "texts").mkdir(parents=True)
    (inside / "texts" / "good.md").write_text("größer ☃\r\n", encoding="utf-8", newline="")
    return inside


def test_a_text_is_read_as_it_is(folder: Path) -> None:
    assert read(folder, "texts/good.md", 100) == "größer ☃\r\n"


def test_a_text_may_be_exactly_as_long_as_it_may(folder: Path) -> None:
    size = (folder / "texts" / "good.md").stat().st_size
    assert read(folder, "texts/good.md", size)
    with pytest.raises(Unreadable, match=rf"must be at most {size - 1} bytes"):
        read(folder, "texts/good.md", size - 1)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "/etc/hostname", "a\0b", "x" * (beside.PATH_CHARACTERS + 1)),
        *("../outside.md", "texts/../../outside.md", "texts//good.md", "texts/", "./texts/good.md"),
    ],
)
def test_a_path_that_does_not_go_down_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(Unreadable, match="by a relative path that goes down"):
        read(folder, name, 100)


def test_a_link_that_leads_out_is_refused(folder: Path) -> None:
    (folder / "link.md").symlink_to(folder.parent / "outside.md")
    (folder / "up").symlink_to(folder.parent)
    for name in ("link.md", "up/outside.md"):
        with pytest.raises(Unreadable, match="leads out of it"):
            read(folder, name, 100)


def test_a_link_that_stays_inside_is_followed(folder: Path) -> None:
    """Mounted configuration is made of such links."""
    (folder / "now").symlink_to("texts")
    (folder / "good.md").symlink_to("now/good.md")
    assert read(folder, "good.md", 100) == "größer ☃\r\n"
    (folder.parent / "elsewhere").symlink_to(folder)
    assert read(folder.parent / "elsewhere", "good.md", 100) == "größer ☃\r\n"


def test_a_link_that_is_put_there_after_the_look_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = os.path.realpath

    def swap(path: str | os.PathLike[str], *, strict: bool = False) -> str:
        found = looked(path, strict=strict)
        if found.endswith("good.md"):
            Path(found).unlink()
            Path(found).symlink_to(folder.parent / "outside.md")
        return found

    monkeypatch.setattr(os.path, "realpath", swap)
    with pytest.raises(Unreadable, match="cannot be read"):
        read(folder, "texts/good.md", 100)


def test_what_is_no_regular_file_is_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    for name, rule in (
        ("fifo", "regular file"),
        ("texts", "regular file"),
        ("loop", "cannot be read"),
    ):
        with pytest.raises(Unreadable, match=rule):
            read(folder, name, 100)


def test_a_file_that_is_not_there_or_not_readable_is_named(folder: Path) -> None:
    with pytest.raises(Unreadable, match=r"cannot be read: 'no\\x1b\.md': No such file or directory"):
        read(folder, "no\x1b.md", 100)


def test_what_is_not_utf_8_is_refused_and_not_shown(folder: Path) -> None:
    (folder / "bytes").write_bytes(b"canary\xff")
    with pytest.raises(Unreadable, match="must be UTF-8: 'bytes' is not") as caught:
        read(folder, "bytes", 100)
    assert "canary" not in str(caught.value)


def test_from_stdin_there_is_no_folder() -> None:
    with pytest.raises(Unreadable, match="stdin"):
        read(None, "description.md", 100)
