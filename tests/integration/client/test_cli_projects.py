"""`plimsoll project` against a real service: what is sent, shown and written, and what is never touched."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from plimsoll.cli import main, trees
from plimsoll.contract import bounds
from plimsoll.contract.results import Artifact
from tests.integration.service.stand import Stand

PROGRAM = [sys.executable, "-c", "import sys; from plimsoll.cli import main; sys.exit(main())"]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stand, str]]:
    stand = Stand(tmp_path_factory.mktemp("cli-projects"))
    with stand.service() as served:
        yield stand, served.running.url


@pytest.fixture(autouse=True)
def service(stand: tuple[Stand, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_URL", stand[1])
    monkeypatch.delenv("PLIMSOLL_TOKEN", raising=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "sub").mkdir(parents=True)
    (folder / "in.txt").write_bytes(b"a\r\n")
    (folder / "sub" / "raw").write_bytes(bytes(range(256)))
    (folder / "empty").mkdir()
    return folder


def project(folder: Path, *arguments: str, steps: Sequence[str] = ("cat:in.txt write:a/b=42",)) -> list[str]:
    return ["project", str(folder), *(word for step in steps for word in ("--step", step)), *arguments]


def line_of(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


def test_a_folder_is_run_and_the_artifacts_are_written(
    tree: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    out = tmp_path / "out"
    steps = ("cat:in.txt err:warned write:a/b=42", "cat:sub/raw")
    arguments = ("--artifact", "a/b", "--artifact", "sub/raw", "--artifact", "absent", "-o", str(out))
    assert main(project(tree, *arguments, steps=steps)) == 0
    shown = capfdbinary.readouterr()
    assert shown.out == b"a\r\n" + bytes(range(256))
    warned, line = shown.err.split(b"ran ")
    assert warned == b"warned"
    assert line.startswith(
        b"isolation=process provider=effect outcome=completed steps=2/2 artifacts=2 exit=0 duration="
    )
    assert (out / "a" / "b").read_bytes() == b"42"
    assert (out / "sub" / "raw").read_bytes() == bytes(range(256))
    assert sorted(path.name for path in out.rglob("*")) == ["a", "b", "raw", "sub"]


def test_a_grant_is_named_and_where_none_is_served_nothing_runs(
    tree: Path, stand: tuple[Stand, str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = stand[0].effects()
    for way in ((), ("--later",)):
        assert main(project(tree, "--grant", "hr-read", *way, steps=("effect",))) == 69
        assert line_of(capsys).startswith("nothing ran (unsupported): Grants need a broker")
    assert stand[0].effects() == before


def test_the_exit_status_is_that_of_the_step_that_failed(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(project(tree, steps=("out:1", "exit:7", "out:3"))) == 7
    assert "steps=2/3 artifacts=0 exit=7" in line_of(capsys)
    assert main(project(tree, steps=("slow",))) == 124
    assert "outcome=timed_out steps=1/1 artifacts=0 exit=124 (deadline)" in line_of(capsys)
    (tree / "setup").touch()
    assert main(project(tree)) == 1
    assert "outcome=setup_failed steps=0/1" in line_of(capsys)


def test_json_is_one_object_or_a_line_for_each_event(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = ("hex:ff write:a=42", "out:2")
    assert main(project(tree, "--artifact", "a", "--json", steps=steps)) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["outcome"], shown["ran"], shown["exit_code"], shown["kind"]) == (
        "completed",
        True,
        0,
        "project",
    )
    assert (shown["steps"][0]["stdout"], shown["steps"][0]["stdout_encoding"]) == ("/w==", "base64")
    assert shown["artifacts"] == [{"path": "a", "content": "42", "content_encoding": "utf-8"}]
    assert main(project(tree, "--artifact", "a", "--json", "--stream", steps=steps)) == 0
    *events, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert [(each["event"], each.get("step")) for each in events] == [
        ("accepted", None),
        ("stdout", 0),
        ("step", 0),
        ("stdout", 1),
        ("step", 1),
    ]
    assert (last["kind"], last["record"]["version"]) == ("project", 4)


def test_later_and_wait_with_its_artifacts(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(project(tree, "--artifact", "a/b", "--later")) == 0
    run_id = capsys.readouterr().out.strip()
    assert main(["wait", run_id, "-o", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert shown.out == "a\r\n"
    assert shown.err.startswith("ran isolation=process provider=effect exit=0")
    assert (tmp_path / "out" / "a" / "b").read_bytes() == b"42"
    assert main(["wait", run_id, "-o", str(tmp_path / "out")]) == 73
    assert "ran, but not every artifact was written: a/b: is there already" in capsys.readouterr().err


def test_a_key_runs_it_once(stand: tuple[Stand, str], tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(project(tree, "--key", "cli-1", steps=("effect:cli-key out:1",))) == 0
        assert capsys.readouterr().out == "1"
    assert stand[0].labels()["cli-key"] == 1


# --- what is not sent ----------------------------------------------------------------------------------------------------


def nothing_ran(capsys: pytest.CaptureFixture[str], what: str) -> None:
    line = line_of(capsys)
    assert line.startswith("nothing ran")
    assert what in line


def test_a_link_a_fifo_or_a_name_that_cannot_travel_is_refused(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tree / "odd"
    makers: dict[str, Callable[[], None]] = {
        "odd: a link": lambda: odd.symlink_to("in.txt"),
        "a link": lambda: odd.symlink_to("/etc"),
        ": a link": lambda: odd.symlink_to("nowhere"),
        "odd: no regular file": lambda: os.mkfifo(odd),
    }
    for what, make in makers.items():
        make()
        assert main(project(tree)) == 66
        nothing_ran(capsys, what)
        odd.unlink()
    strange = os.fsencode(tree) + b"/\xff"
    for name in (strange, os.fsencode(tree / "a\nb"), os.fsencode(tree / "a\\b")):
        os.close(os.open(name, os.O_CREAT))
        assert main(project(tree)) == 66
        nothing_ran(capsys, "its path")
        Path(os.fsdecode(name)).unlink()
    assert main(project(tree / "absent")) == 66
    nothing_ran(capsys, "absent")


def test_a_folder_that_is_too_much_is_refused(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "big").write_bytes(b"x" * bounds.FILES_BYTES)
    assert main(project(tree)) == 66
    nothing_ran(capsys, "bytes of files")
    (tree / "big").unlink()
    for number in range(bounds.FILES):
        (tree / str(number)).touch()
    assert main(project(tree)) == 66
    nothing_ran(capsys, "more than 200 files")


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../b", "a//b"])
def test_a_path_that_leads_out_is_never_asked_for(
    path: str, tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(project(tree, "--artifact", path, "-o", str(tmp_path / "out"))) == 64
    nothing_ran(capsys, "artifacts.0")


# --- what is not touched -------------------------------------------------------------------------------------------------


def test_a_file_that_is_there_is_kept_unless_told_and_that_is_known_before_anything_runs(
    stand: tuple[Stand, str], tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (out / "a").mkdir(parents=True)
    (out / "a" / "b").write_text("mine")
    arguments = ("--artifact", "a/b", "-o", str(out))
    assert main(project(tree, *arguments, steps=("effect:overwrite write:a/b=42",))) == 73
    nothing_ran(capsys, "a/b: is there already")
    assert (stand[0].labels()["overwrite"], (out / "a" / "b").read_text()) == (0, "mine")
    assert main(project(tree, *arguments, "--force")) == 0
    assert (out / "a" / "b").read_text() == "42"
    assert [path.name for path in (out / "a").iterdir()] == ["b"]


def test_no_link_is_followed(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    outside.mkdir()
    (outside / "b").write_text("mine")
    (out / "a").symlink_to(outside)
    for force in ((), ("--force",)):
        assert main(project(tree, "--artifact", "a/b", "-o", str(out), *force)) == 73
        nothing_ran(capsys, "a link or a file is in the way")
    (out / "a").unlink()
    (out / "a").mkdir()
    (out / "a" / "b").symlink_to(outside / "b")
    assert main(project(tree, "--artifact", "a/b", "-o", str(out))) == 73
    assert main(project(tree, "--artifact", "a/b", "-o", str(out), "--force")) == 0
    assert not (out / "a" / "b").is_symlink()
    assert ((out / "a" / "b").read_text(), (outside / "b").read_text()) == ("42", "mine")


def test_a_link_that_appears_meanwhile_is_not_followed_either(tmp_path: Path) -> None:
    """As if it had come between the look and the writing."""
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    artifacts = [Artifact("a/b", b"42"), Artifact("link", b"42")]
    trees.check(str(out), [each.path for each in artifacts], force=False)
    out.mkdir()
    (out / "a").symlink_to(outside)
    (out / "link").symlink_to(outside / "made")
    for each in artifacts:
        with pytest.raises(trees.Unwritable):
            trees.write(str(out), [each], force=False)
    with pytest.raises(trees.Unwritable):
        trees.write(str(out), artifacts[:1], force=True)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", ".", "", "a\0"])
def test_a_path_that_leads_out_is_never_written_whoever_says_it(path: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(trees.Unwritable):
        trees.write(str(tmp_path / "out"), [Artifact(path, b"x")], force=True)
    assert [each.name for each in tmp_path.rglob("*")] == ["out"]


def test_a_folder_is_never_replaced_and_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "f").touch()
    for path in ("a", "f/x"):
        with pytest.raises(trees.Unwritable):
            trees.check(str(tmp_path), [path], force=True)
        with pytest.raises(trees.Unwritable):
            trees.write(str(tmp_path), [Artifact(path, b"x")], force=True)
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "f"]


# --- a terminal ----------------------------------------------------------------------------------------------------------


def test_on_a_terminal_the_step_under_way_is_shown_and_taken_away(tree: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*PROGRAM, *project(tree, steps=("sleep:50", "hex:610a\nsleep:50", "out:\x1b[31m"))]
    with (
        os.fdopen(ours, "rb", buffering=0) as terminal,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as done,
    ):
        os.close(theirs)
        assert done.stdout is not None
        assert done.stdout.read() == b"a\n\x1b[31m"
        assert done.wait(30) == 0
        shown = b""
        with suppress(OSError):  # the end of a pseudo-terminal
            while part := terminal.read(4096):
                shown += part
    text = shown.decode()
    assert "step 1 of 3: sleep:50\r\x1b[K" in text
    assert "step 2 of 3: hex:610a sleep:50\r\x1b[K" in text
    assert "\x1b[31m" not in text
    assert text.rstrip().splitlines()[-1].rpartition("\x1b[K")[2].startswith("ran isolation=process")


def test_help_names_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["project", "--help"])
    text = capsys.readouterr().out
    assert all(word in text for word in ("--step", "--artifact", "--output", "--force", "--later", "--floor"))
    with pytest.raises(SystemExit) as caught:
        main(["project", "."])
    assert caught.value.code == 64
