"""The lock files pin every package by version and hash, name no address, and agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.repository import ROOT

FOLDER = ROOT / "requirements"
LOCKS = sorted(FOLDER.glob("*.lock"))
SERVER = ROOT / "pyproject.toml"
CLIENT = ROOT / "clients" / "python" / "pyproject.toml"

# What each lock was compiled from.
SOURCES = {
    "server": (SERVER, CLIENT, FOLDER / "server.in"),
    "client": (CLIENT, FOLDER / "client.in"),
    "guest": (FOLDER / "guest.in",),
    "published-client": (FOLDER / "published-client.in",),
    "llm-sandbox": (FOLDER / "llm-sandbox.in",),
    "dev": (SERVER, CLIENT, FOLDER / "server.in", FOLDER / "dev.in"),
}
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def entries(lock: Path) -> list[str]:
    """The lock's requirements, one string each, with their hashes."""
    lines = [line for line in lock.read_text().splitlines() if not line.lstrip().startswith("#")]
    return [entry for entry in "\n".join(lines).replace("\\\n", " ").splitlines() if entry.strip()]


def pins(lock: Path) -> dict[str, set[str]]:
    """Package -> locked versions (a universal lock may hold one for each platform)."""
    found: dict[str, set[str]] = {}
    for entry in entries(lock):
        requirement = Requirement(entry.split(" --hash")[0])
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", entry
        found.setdefault(canonicalize_name(requirement.name), set()).add(specifier.version)
    return found


def asked(source: Path) -> list[Requirement]:
    if source.suffix == ".toml":
        project = tomllib.loads(source.read_text())
        lines = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    else:
        lines = [line.split(" #")[0].strip() for line in source.read_text().splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_the_locks_are_found() -> None:
    assert {lock.stem for lock in LOCKS} >= SOURCES.keys()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_requirement_has_a_hash_and_nothing_else(lock: Path) -> None:
    for entry in entries(lock):
        requirement, *hashes = entry.split(" --hash=")
        assert hashes, f"{lock.name}: no hash for {requirement}"
        assert not _HASH.sub("", entry.removeprefix(requirement)).strip(), (
            f"{lock.name}: options on {requirement}"
        )


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_no_lock_names_an_address_or_a_path(lock: Path) -> None:
    for line in lock.read_text().splitlines():
        assert "://" not in line, line
        assert not re.search(r"(^|\s)/", line), line
        assert not line.startswith("-"), line


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_lock_meets_what_it_was_compiled_from(name: str) -> None:
    locked = pins(FOLDER / f"{name}.lock")
    for source in SOURCES[name]:
        for requirement in asked(source):
            versions = locked.get(canonicalize_name(requirement.name), set())
            assert versions, f"{source.name} asks for {requirement}: run `make lock`"
            for version in versions:
                assert requirement.specifier.contains(version), (
                    f"{requirement} is locked at {version}: run `make lock`"
                )


@pytest.mark.parametrize("name", ["client", "dev"])
def test_the_locks_agree(name: str) -> None:
    """What is tested, and what a client gets, is what is served."""
    server, other = pins(FOLDER / "server.lock"), pins(FOLDER / f"{name}.lock")
    both = server.keys() & other.keys()
    assert {package: other[package] for package in both} == {package: server[package] for package in both}


def test_the_tools_come_on_top_of_the_service() -> None:
    assert pins(FOLDER / "server.lock").keys() <= pins(FOLDER / "dev.lock").keys()


def test_the_library_stays_light() -> None:
    assert {requirement.name for requirement in asked(CLIENT)} == {
        "cryptography",
        "hatchling",
        "httpx2",
        "pydantic",
    }
    assert not pins(FOLDER / "client.lock").keys() & {"fastapi", "sqlalchemy", "uvicorn", "wasmtime"}


def test_the_service_is_private() -> None:
    """A package index refuses to take a project with this classifier."""
    assert "Private :: Do Not Upload" in tomllib.loads(SERVER.read_text())["project"]["classifiers"]


def test_both_licences_are_the_same_text() -> None:
    assert (ROOT / "LICENSE").read_bytes() == (CLIENT.parent / "LICENSE").read_bytes()
