"""docs/operations.md: every event that the service can log is on the page, and nothing else is."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.repository import ROOT, named
from tests.docs.pages import page, plain, table

BESIDE = {"refused", "foreign", "provider-failed", "fork-server-failed"}
"""Written otherwise: refusals are counted, other libraries have their own words, and providers have no logger."""


def events_in(path: Path) -> Iterator[str]:
    """The names in `event(source, "name", …)` and `failure(source, "name", …)`."""
    for call in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] in {"event", "failure"}:
            yield from (
                word.value
                for word in call.args[1:2]
                if isinstance(word, ast.Constant) and isinstance(word.value, str)
            )


def test_every_event_of_the_log_is_on_its_page() -> None:
    ours = [path for path in named(".py") if path.is_relative_to(ROOT / "app")]
    written = {name for path in ours for name in events_in(path)}
    rows = table(page("operations"), "event", "level", "what it means")
    shown = [name.strip() for events, *_ in rows for name in plain(events).split(",")]
    assert len(shown) == len(set(shown))
    assert set(shown) == written | BESIDE


def test_events_that_are_written_otherwise_are_written() -> None:
    sources = [
        path.read_text() for path in named(".py") if path.relative_to(ROOT).parts[0] in {"app", "providers"}
    ]
    for name in BESIDE:
        assert any(f'"{name}"' in source for source in sources), name
