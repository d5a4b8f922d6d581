"""One provider process of each kind, and what the shared contract suite must know of each.

A later provider joins by one more `Kind of provider` in SUBJECTS: how it is started and a program for each behaviour.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.dispatch.link import WorkerLink
from app.dispatch.supervisor import ProviderSupervisor, spawn
from plimsoll.contract.tiers import Tier

SLOTS = 4


@dataclass(frozen=True)
class Subject:
    """How to start one kind of provider, and its programs."""

    name: str
    module: str
    ceiling: Tier
    settings: Callable[[Path], dict[str, Any]]
    hello: str
    """prints `hello` to stdout and ends with 0"""
    failing: str
    """ends with 1"""
    endless: str
    """never ends by itself"""
    component: str | None = None


SUBJECTS = (
    Subject(
        name="wasm",
        module="providers.main",
        ceiling=Tier.PROCESS,
        settings=lambda place: {"cache_dir": str(place), "memory_mb": 64},
        hello="console.log('hello')",
        failing="throw new Error('no')",
        endless="for (;;);",
        component="wasm",
    ),
    Subject(
        name="effect",
        module="tests.support.effect_provider",
        ceiling=Tier.PROCESS,
        settings=lambda place: {"effects": str(place / "effects")},
        hello="out:hello\n",
        failing="exit:1",
        endless="begin hang",
    ),
)


@dataclass
class Running:
    """A provider process under its supervisor."""

    subject: Subject
    supervisor: ProviderSupervisor
    place: Path
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def worker(self) -> WorkerLink:
        return self.supervisor.worker


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private directory: the cache, filled once for the whole session, and side effects."""
    folder = tmp_path_factory.mktemp("providers")
    folder.chmod(0o700)
    return folder


@pytest.fixture(scope="module", params=SUBJECTS, ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    param = request.param
    assert isinstance(param, Subject)
    return param


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def provider(subject: Subject, place: Path) -> AsyncIterator[Running]:
    """One for the tests of a module; a test that harms it starts its own."""
    process = spawn(subject.name, {**subject.settings(place), "slots": SLOTS}, module=subject.module)
    async with ProviderSupervisor(process) as supervisor:
        assert await supervisor.wait_first_evidence(timeout_s=60)
        yield Running(subject, supervisor, place)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of a subject that needs a component is a test of that component."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        subject = callspec.params.get("subject") if callspec else None
        if isinstance(subject, Subject) and subject.component:
            item.add_marker(pytest.mark.component(subject.component))
            item.add_marker(pytest.mark.component("seccomp"))
