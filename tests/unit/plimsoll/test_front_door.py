"""The package's front door: sorted, complete, light, and drawn as it is."""

import inspect
import subprocess
import sys
from importlib import metadata

import pytest

import plimsoll
from plimsoll.client import errors

LOADED = """
import sys
import plimsoll, plimsoll.contract.worker, plimsoll.contract.frames, plimsoll.records
print([name for name in ("httpx2", "pydantic", "asyncio", "ssl", "importlib.metadata") if name in sys.modules])
"""


def test_names_are_sorted_and_exist() -> None:
    assert list(plimsoll.__all__) == sorted(plimsoll.__all__)
    assert all(getattr(plimsoll, name) is not None for name in plimsoll.__all__)
    assert set(plimsoll.__all__) <= set(dir(plimsoll))


def test_every_error_is_exported() -> None:
    classes = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    raised = {name for name in classes if issubclass(getattr(errors, name), errors.PlimsollError)}
    assert raised <= set(plimsoll.__all__)


def test_the_drawn_tree_is_the_tree() -> None:
    lines = [line for line in (errors.__doc__ or "").splitlines() if "──" in line]
    drawn: dict[str, str] = {}
    path = ["PlimsollError"]
    for line in lines:
        before, _, after = line.partition("── ")
        depth = (len(before) - 5) // 4 + 1
        path[depth:] = [after.split()[0]]
        drawn[path[depth]] = path[depth - 1]
    bases = {
        name: value.__bases__[0].__name__
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.PlimsollError) and name != "PlimsollError"
    }
    assert drawn == bases


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_this"):
        plimsoll.nothing_like_this  # noqa: B018 - the access is the test


def test_the_version_is_the_distributions() -> None:
    assert plimsoll.__version__ == metadata.version("plimsoll-sandbox")
    assert "__version__" in dir(plimsoll)


def test_importing_contract_and_records_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_local_is_a_function_whatever_was_imported_before() -> None:
    code = "import plimsoll.client.local, plimsoll; print(callable(plimsoll.local))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
