"""Import rules that the contracts in pyproject.toml cannot say."""

import ast
import sys
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, named, short

PROVIDERS = [path for path in named(".py") if path.is_relative_to(ROOT / "providers")]
SERVICE = [
    path for path in named(".py") if path.relative_to(ROOT).parts[0] in {"app", "providers", "migrations"}
]
BROKER = [path for path in named(".py") if path.is_relative_to(ROOT / "broker")]
SEES = {"plimsoll.contract", "providers", "typing_extensions", *sys.stdlib_module_names}
"""What every provider may import: the contract, its own package, the standard library and what later versions of it have."""
ENGINES = {"docker": {"aiodocker", "aiohttp"}, "wasm": {"wasmtime"}, "host": {"h11"}}
"""What else: whatever its wall's engine, or a broker, is spoken to with."""


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, full dotted name) of everything the file imports, names taken from a package included."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{short(path)}:{node.lineno}: relative import"
            found.extend((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    return found


def within(name: str, rooms: set[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


@pytest.mark.parametrize("path", PROVIDERS, ids=short)
def test_a_provider_sees_the_contract_and_nothing_else(path: Path) -> None:
    sees = SEES | ENGINES.get(path.relative_to(ROOT / "providers").parts[0], set())
    assert [(line, name) for line, name in imports(path) if not within(name, sees)] == []


@pytest.mark.parametrize("path", BROKER, ids=short)
def test_the_broker_sees_the_contract_and_how_to_unseal_and_nothing_else_of_ours(path: Path) -> None:
    ours = {"app", "providers", "migrations", "plimsoll", "tests"}
    sees = {"plimsoll.contract", "app.vault.unseal"}
    found = [(line, name) for line, name in imports(path) if within(name, ours) and not within(name, sees)]
    assert found == []


@pytest.mark.parametrize("path", SERVICE, ids=short)
def test_only_the_broker_unseals(path: Path) -> None:
    if path == ROOT / "app" / "vault" / "unseal.py":
        return
    assert [(line, name) for line, name in imports(path) if within(name, {"app.vault.unseal"})] == []
