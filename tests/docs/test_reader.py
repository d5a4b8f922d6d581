"""The reader sees what is wrong: without this, the tests of the pages could pass whatever the pages show."""

from pathlib import Path

import pytest

from tests.docs.pages import blocks, table
from tests.docs.reader import Shell, exchanges, looks_like

DIGEST = "0123456789abcdef" * 4


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell({"PATH": "/usr/bin:/bin"}, tmp_path)


def test_a_block_sees_what_an_earlier_one_assigned(shell: Shell) -> None:
    shell.run("name='two words'; export other=1")
    assert shell.run('echo "$name $other"').stdout == "two words 1\n"


def test_a_block_ends_at_the_first_failure(shell: Shell) -> None:
    done = shell.run("false\necho still here")
    assert (done.returncode, done.stdout) == (1, "")


def test_a_failure_inside_a_pipe_counts(shell: Shell) -> None:
    assert shell.run("false | cat").returncode == 1


def test_a_typed_command_sees_the_status_of_the_one_before(shell: Shell) -> None:
    assert shell.type("sh -c 'exit 3'").returncode == 3
    assert shell.type("echo $?").stdout == "3\n"


def test_commands_and_their_output_are_told_apart() -> None:
    text = "$ one \\\n>   more\nout\n\n$ two\n$ three\nlast"
    assert list(exchanges(text)) == [("one \\\n  more", "out\n"), ("two", ""), ("three", "last")]


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("42", "42\n"),
        (f"record {DIGEST}", f"record {'f' * 64}"),
        ('"duration_ms":1,"x":2', '"duration_ms":77,"x":2'),
        ("took 3 ms", "took 1.25 ms"),
        ("until 2026-11-29T10:00:00Z", "until 2027-01-01T00:00:00Z"),
        ("a … z", "a b c\nd z"),
        ("a\n…\nz", "a\nb\nc\nz"),
        ("…\na\n…", "a"),
        ("…\na\n…", "x\na\ny\nz"),
        ("", ""),
    ],
)
def test_what_differs_from_run_to_run_is_overlooked(shown: str, came: str) -> None:
    assert looks_like(shown, came)


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("42", "43"),
        ("", "a warning"),
        (f"record {DIGEST}", "record "),
        (f"record {DIGEST}", f"record {DIGEST[:32]}"),
        ('"exit_code":0', '"exit_code":1'),
        ("a … z", "a b c"),
        ("a\n…\nz", "a\nb z"),
        ("42", ""),
        ("process", "none"),
    ],
)
def test_everything_else_is_seen(shown: str, came: str) -> None:
    assert not looks_like(shown, came)


def test_blocks_are_found_also_inside_lists(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```sh\nls\n```\n\n- item\n\n  ```console\n  $ x\n  y\n  ```\n")
    found = [(block.line, block.language, block.text) for block in blocks(page)]
    assert found == [(3, "sh", "ls"), (9, "console", "$ x\ny")]


def test_a_table_is_found_by_its_head() -> None:
    text = "| a | b |\n|---|---|\n| 1 | `x\\|y` |\n| 2 | z |\n\n| other | b |\n|---|---|\n| 3 | z |\n"
    assert table(text, "a", "b") == [("1", "`x|y`"), ("2", "z")]
