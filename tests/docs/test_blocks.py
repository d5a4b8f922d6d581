"""What the pages show, works: every block is run as a reader would type it, on the real service.

A block is run unless `NOT_RUN` names it with another way of checking it, so one added tomorrow is run tomorrow. By language:

    sh        run; every command must succeed; under it, a block `output` shows what it prints
    console   each command after `$ ` is run and prints what is shown; one that fails is followed by `$ echo $?`
    python    run as a program of its own, warnings as errors; `output` as above
    json      must be JSON
    text      prose that is no program

The blocks of a page share one shell. All pages share one service with the caller `reader`, whose address and token are in the
environment; so, as for somebody who reads them all, a caller made on one page keeps its name from the others. The only change
made to a block is the address of the service, where it shows the default one.
"""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from app.settings import Settings, read_settings
from tests.architecture.repository import ROOT, short
from tests.docs.pages import Block, blocks, pages
from tests.docs.reader import Shell, exchanges, looks_like, steady
from tests.docs.service import running_service

DEFAULT_URL = f"http://{Settings().address.host}:{Settings().address.port}"
LANGUAGES = {"sh", "console", "python", "output", "json", "text"}
RUN = {"sh", "console", "python"}


def targets_exist(text: str) -> None:
    """Each line is `make TARGET…`, and make knows what it would do."""
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "make", line
        done = subprocess.run(
            ["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def service_would_start(text: str) -> None:
    """It is `NAME=VALUE … plimsolld`, and the settings are good."""
    *settings, command = shlex.split(text.replace("\\\n", " "))
    assert command == "plimsolld"
    read_settings(dict(setting.split("=", 1) for setting in settings))


def paths_are_projects(text: str) -> None:
    """It is `pip install ./PATH`, and there is a project."""
    command, verb, path = shlex.split(text)
    assert (command, verb) == ("pip", "install")
    assert path.startswith("./")
    assert (ROOT / path / "pyproject.toml").is_file()


def recipe_is_there(text: str) -> None:
    """It builds an image, which tests/integration/docker/test_guest_dependencies.py does; here, what it copies is there."""
    verb, flag, source, _ = shlex.split(text.splitlines()[0])
    assert (verb, flag) == ("cp", "-r")
    assert {"Dockerfile", "package-lock.json"} <= {path.name for path in (ROOT / source).iterdir()}


NOT_RUN: dict[str, Callable[[str], None]] = {
    "make demo\nmake test": targets_exist,
    "make demo": targets_exist,
    "make serve": targets_exist,
    "pip install ./clients/python": paths_are_projects,
    "SANDBOX_PROVIDER=wasm PLIMSOLL_ADDR=127.0.0.1:8746 \\\n"
    "    PLIMSOLL_DATA_DIR=/var/lib/plimsoll PLIMSOLL_CACHE_DIR=/var/cache/plimsoll plimsolld": service_would_start,
    "cp -r deploy/images/dependencies my-sandbox\ncd my-sandbox\nnpm ci\ndocker build -t my-sandbox .": recipe_is_there,
}
"""Blocks that a test cannot run as they are, by their text, each with what is checked instead."""


def runnable(path: Path) -> bool:
    return any(block.language in RUN and block.text not in NOT_RUN for block in blocks(path))


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a reader's terminal has in its environment while the service runs."""
    with running_service(tmp_path_factory.mktemp("service")) as environment:
        yield environment


@pytest.mark.component("wasm")
@pytest.mark.parametrize("path", [path for path in pages() if runnable(path)], ids=short)
def test_what_a_page_shows_works(path: Path, terminal: dict[str, str], tmp_path: Path) -> None:
    assert shutil.which("curl"), "the examples of the documentation need curl"
    shell = Shell(terminal, tmp_path)
    for block, after in zip_longest(shown := blocks(path), shown[1:]):
        _run(shell, block, after, terminal["PLIMSOLL_URL"])


def _run(shell: Shell, block: Block, after: Block | None, url: str) -> None:
    text = block.text.replace(DEFAULT_URL, url)
    if block.text in NOT_RUN:
        return
    if block.language == "console":
        _converse(shell, block, text)
    elif block.language in {"sh", "python"}:
        done = shell.run(text) if block.language == "sh" else shell.python(text)
        assert done.returncode == 0, f"{block.place} ended with {done.returncode}:\n{done.stdout}"
        if after is not None and after.language == "output":
            _compare(after, after.text, done.stdout)


def _converse(shell: Shell, block: Block, text: str) -> None:
    failed = 0
    for command, output in exchanges(text):
        assert not failed or command == "echo $?", (
            f"{block.place}: the command before {command!r} ended with {failed}"
        )
        done = shell.type(command)
        failed = done.returncode
        _compare(block, output, done.stdout, command)
    assert not failed, f"{block.place}: the last command ended with {failed}"


def _compare(block: Block, shown: str, came: str, command: str = "") -> None:
    assert looks_like(shown, came), f"{block.place} {command}\nshows:\n{steady(shown)}\nprinted:\n{came}"


@pytest.mark.parametrize("path", pages(), ids=short)
def test_every_block_says_how_it_is_checked(path: Path) -> None:
    for block in blocks(path):
        assert block.language in LANGUAGES, (
            f"{block.place}: {block.language!r} is none of {sorted(LANGUAGES)}"
        )
        if block.language == "json":
            json.loads(block.text)


def test_no_fence_is_overlooked() -> None:
    for path in pages():
        fences = len(re.findall(r"^\s*(?:```|~~~)", path.read_text(), re.MULTILINE))
        assert fences == 2 * len(blocks(path)), short(path)


@pytest.mark.parametrize("text", NOT_RUN, ids=lambda text: text.replace("\n", "; "))
def test_a_block_that_is_not_run_is_checked_otherwise(text: str) -> None:
    assert [block for path in pages() for block in blocks(path) if block.text == text], (
        "no page shows it any more"
    )
    NOT_RUN[text](text)
