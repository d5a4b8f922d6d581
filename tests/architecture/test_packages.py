"""What the two distributions contain, and that the library stays light where it is imported."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, files

LIBRARY = ROOT / "clients" / "python"


def contents(project: Path, target: Path) -> set[str]:
    """The files in the project's wheel, built without isolation by the locked build backend."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    done = subprocess.run(build, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = target.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def committed(folder: Path, base: Path) -> set[str]:
    return {str(path.relative_to(base)) for path in files() if path.is_relative_to(folder)}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return contents(LIBRARY, tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return contents(ROOT, tmp_path_factory.mktemp("service"))


def test_the_library_is_one_typed_package(library: set[str]) -> None:
    assert {name.split("/")[0] for name in library} == {"plimsoll", "plimsoll_sandbox-0.1.0.dist-info"}
    assert "plimsoll/py.typed" in library
    assert "plimsoll_sandbox-0.1.0.dist-info/licenses/LICENSE" in library


def test_the_library_has_every_file(library: set[str]) -> None:
    assert committed(LIBRARY / "src", LIBRARY / "src") <= library


def test_the_service_has_every_file_of_its_packages_and_nothing_else(service: set[str]) -> None:
    packages = {"app", "providers", "migrations", "broker"}
    for package in packages:
        assert committed(ROOT / package, ROOT) <= service
    assert {name.split("/")[0] for name in service} <= packages | {"plimsoll_server-0.1.0.dist-info"}


def test_importing_the_library_loads_no_part_of_the_service() -> None:
    program = (
        "import sys, pkgutil, importlib, plimsoll\n"
        "for module in pkgutil.walk_packages(plimsoll.__path__, 'plimsoll.'):\n"
        "    importlib.import_module(module.name)\n"
        "heavy = {'app', 'providers', 'migrations', 'broker', 'wasmtime', 'fastapi', 'sqlalchemy'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False
    )
    assert loaded.stdout.strip() == "[]", loaded.stderr
