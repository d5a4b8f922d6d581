"""What the pages show, works: every block is run as a reader would type it, on the real service.

A block is run unless `NOT_RUN` names it with another way of checking it, so one added tomorrow is run tomorrow. By language:

    sh        run; every command must succeed; under it, a block `output` shows what it prints
    console   each command after `$ ` is run and prints what is shown; one that fails is followed by `$ echo $?`
    python    run as a program of its own, warnings as errors; `output` as above
    json      must be JSON
    javascript  a program for a sandbox: run as one by what `NOT_RUN` names
    text      prose that is no program

The blocks of a page share one shell. All pages share one service with the caller `reader`, whose address and token are in the
environment; so, as for somebody who reads them all, a caller made on one page keeps its name from the others. The only change
made to a block is the address of the service, where it shows the default one.

A block with the word `containers` behind its language is run on a second service, which has all three walls, on a docker daemon
of the tests' own. Both services are started by the commands that the pages show.
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
from tests.docs.guests import javascript_calls, python_calls
from tests.docs.pages import Block, blocks, pages, programs
from tests.docs.reader import Shell, exchanges, looks_like, steady
from tests.docs.service import running_service
from tests.support.docker import Daemon

DEFAULT_URL = f"http://{Settings().address.host}:{Settings().address.port}"
LANGUAGES = {"sh", "console", "python", "javascript", "output", "json", "text"}
RUN = {"sh", "console", "python", "javascript"}
CONTAINERS = "containers"
SERVE = "make serve"
SERVE_GRANTS = "PLIMSOLL_BROKER_SAME_USER=1 make serve"
SERVE_LOOPBACK = f"PLIMSOLL_BROKER_ALLOW_PRIVATE=127.0.0.0/8 {SERVE_GRANTS}"
SERVE_CONTAINERS = "SANDBOX_PROVIDER=docker@runsc,docker,wasm make serve"
BENCH = """make bench
make bench BENCH_FLAGS="--quick --only 3,12"
make bench BASE=HEAD~20 BENCH_FLAGS="--only 4\""""
INSTALL = """apt-get install --no-install-recommends docker.io mmdebstrap
deploy/install-gvisor.sh --backports --reload
make images"""


def targets_exist(text: str) -> None:
    """Each line is `make TARGET…`, and make knows what it would do."""
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "make", line
        done = subprocess.run(
            ["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def starts_a_service(text: str) -> None:
    """The fixtures below run it, for whatever else the pages show."""
    assert text in {SERVE, SERVE_GRANTS, SERVE_CONTAINERS}


def starts_a_service_beside_an_api(text: str) -> None:
    """examples/grant.py runs a service with these settings, and an API on loopback."""
    *settings, make, target = shlex.split(text)
    assert (make, target) == ("make", "serve")
    assert read_settings(dict(setting.split("=", 1) for setting in settings)).broker_networks == "127.0.0.0/8"


def changes_the_machine(text: str) -> None:
    """It takes apt and the machine's own daemon.

    CI installs the same packages; tests/integration/docker/test_install_gvisor.py runs the script without these two flags, and
    the image for `containers` is built by what `make images` starts.
    """
    install, gvisor, images = text.splitlines()
    packages = {word for word in shlex.split(install)[2:] if not word.startswith("-")}
    assert packages <= set(re.findall(r"[\w.-]+", (ROOT / ".ci" / "run").read_text()))
    script, *flags = shlex.split(gvisor)
    explained = subprocess.run([ROOT / script, "--help"], capture_output=True, text=True, check=True).stdout
    assert set(flags) <= set(re.findall(r"^  (--\w+)", explained, re.MULTILINE))
    targets_exist(images)


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


def is_run_elsewhere(text: str) -> None:
    """A test with an API runs the very block: tests/integration/grants/test_specgen.py, and test_verify_tokens.py beside it."""
    compile(text, "page", "exec")


GUEST_API = [
    block for block in blocks(ROOT / "docs" / "guest-api.md") if block.language in {"javascript", "python"}
]
NOT_RUN: dict[str, Callable[[str], None]] = {
    **{
        block.text: javascript_calls if block.language == "javascript" else python_calls
        for block in GUEST_API
    },
    **{block.text: is_run_elsewhere for name in ("specgen", "verify-tokens") for block in programs(name)},
    "make demo": targets_exist,
    BENCH: targets_exist,
    SERVE: starts_a_service,
    SERVE_GRANTS: starts_a_service,
    SERVE_LOOPBACK: starts_a_service_beside_an_api,
    SERVE_CONTAINERS: starts_a_service,
    INSTALL: changes_the_machine,
    "pip install ./clients/python": paths_are_projects,
    "SANDBOX_PROVIDER=wasm PLIMSOLL_ADDR=127.0.0.1:8746 \\\n"
    "    PLIMSOLL_DATA_DIR=/var/lib/plimsoll PLIMSOLL_CACHE_DIR=/var/cache/plimsoll plimsolld": service_would_start,
    "cp -r deploy/images/dependencies my-sandbox\ncd my-sandbox\nnpm ci\ndocker build -t my-sandbox .": recipe_is_there,
}
"""Blocks that a test cannot run as they are, by their text, each with what is checked instead."""


def shown(path: Path, word: str = "") -> list[tuple[Block, Block | None]]:
    """The blocks of a page that are run where `word` says, each with the one after it."""
    found = blocks(path)
    return [
        (block, after)
        for block, after in zip_longest(found, found[1:])
        if block.language in RUN and block.text not in NOT_RUN and block.word == word
    ]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a reader's terminal has in its environment while the service runs."""
    with running_service(tmp_path_factory.mktemp("service"), SERVE_GRANTS) as environment:
        yield environment


@pytest.fixture(scope="module")
def walled(docker: Daemon, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The same with every wall. Only the daemon and its image are the tests' own."""
    where = docker.settings(image)
    with running_service(tmp_path_factory.mktemp("walled"), SERVE_CONTAINERS, **where) as environment:
        yield environment


@pytest.mark.component("wasm")
@pytest.mark.parametrize("path", [path for path in pages() if shown(path)], ids=short)
def test_what_a_page_shows_works(path: Path, terminal: dict[str, str], tmp_path: Path) -> None:
    _read(shown(path), terminal, tmp_path)


@pytest.mark.component("docker")
@pytest.mark.component("runsc")
@pytest.mark.component("wasm")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", [path for path in pages() if shown(path, CONTAINERS)], ids=short)
def test_what_a_page_shows_of_containers_works(path: Path, walled: dict[str, str], tmp_path: Path) -> None:
    _read(shown(path, CONTAINERS), walled, tmp_path)


def test_the_walk_from_process_to_kernel_changes_no_command() -> None:
    """What is typed for the floor `kernel` is refused on the first service, and runs on the second."""
    page = ROOT / "docs" / "getting-started.md"
    before, after = (
        {command: output for block, _ in shown(page, word) for command, output in exchanges(block.text)}
        for word in ("", CONTAINERS)
    )
    same = {command for command in before.keys() & after.keys() if before[command].startswith("nothing ran")}
    assert len(same) == 2  # a command and a program
    for command in same:
        assert all(word in after[command] for word in ("kernel", "docker@runsc")), command


def _read(them: list[tuple[Block, Block | None]], environment: dict[str, str], folder: Path) -> None:
    assert shutil.which("curl"), "the examples of the documentation need curl"
    shell = Shell(environment, folder)
    for block, after in them:
        _run(shell, block, after, environment["PLIMSOLL_URL"])


def _run(shell: Shell, block: Block, after: Block | None, url: str) -> None:
    text = block.text.replace(DEFAULT_URL, url)
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
        assert block.word in {"", CONTAINERS}, f"{block.place}: nobody knows the word {block.word!r}"
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
