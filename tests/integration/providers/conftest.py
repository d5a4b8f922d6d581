"""One provider process of each kind, and what the shared contract suite must know of each.

A later provider joins by one more `Subject` in SUBJECTS: how it is started and a program for each behaviour.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.dispatch.link import WorkerLink
from app.dispatch.supervisor import ProviderSupervisor, spawn
from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Health

SLOTS = 4


@dataclass(frozen=True)
class Subject:
    """How to start one kind of provider, and its programs, all in JavaScript."""

    name: str
    module: str
    tier: Tier
    """that it proves"""
    settings: Callable[[Path], dict[str, Any]]
    hello: str
    """prints `hello` to stdout and ends with 0"""
    failing: str
    """ends with 1"""
    endless: str
    """never ends by itself"""
    unserved: Kind
    """what it does not run"""
    components: tuple[str, ...] = ()
    on_docker: bool = False
    patience_s: float = 60
    """how long its first look may take"""


def docker_subject(name: str, tier: Tier, component: str) -> Subject:
    """A provider of containers, on the tests' own daemon."""
    return Subject(
        name=name,
        module="providers.main",
        tier=tier,
        settings=lambda place: {"state_dir": str(place / name), "docker_pool": 1},
        hello="console.log('hello')",
        failing="throw new Error('no')",
        endless="for (;;);",
        unserved=Kind.MODULE,
        components=(component,),
        on_docker=True,
        patience_s=240,
    )


DOCKER_SUBJECTS = (
    docker_subject("docker", Tier.CONTAINER, "docker"),
    docker_subject("docker@runsc", Tier.KERNEL, "runsc"),
)
SUBJECTS = (
    Subject(
        name="wasm",
        module="providers.main",
        tier=Tier.PROCESS,
        settings=lambda place: {"cache_dir": str(place), "memory_mb": 64},
        hello="console.log('hello')",
        failing="throw new Error('no')",
        endless="for (;;);",
        unserved=Kind.PROJECT,
        components=("wasm", "seccomp"),
    ),
    Subject(
        name="effect",
        module="tests.support.effect_provider",
        tier=Tier.PROCESS,
        settings=lambda place: {"effects": str(place / "effects")},
        hello="out:hello\n",
        failing="exit:1",
        endless="begin hang",
        unserved=Kind.MODULE,
    ),
    *DOCKER_SUBJECTS,
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


@pytest.fixture(scope="module")
def settings(subject: Subject, place: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a provider of this kind is started with, by whoever starts one."""
    found = {**subject.settings(place), "slots": SLOTS}
    if subject.on_docker:
        found["docker_host"] = request.getfixturevalue("docker").host
        found["docker_image"] = request.getfixturevalue("image")
    return found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def provider(subject: Subject, place: Path, settings: dict[str, Any]) -> AsyncIterator[Running]:
    """One for the tests of a module; a test that harms it starts its own."""
    process = spawn(subject.name, settings, module=subject.module)
    async with ProviderSupervisor(process) as supervisor:
        info = await supervisor.wait_first_evidence(timeout_s=subject.patience_s)
        assert info
        assert info.health is Health.SERVING, info.faults
        yield Running(subject, supervisor, place)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of a subject that needs a component is a test of that component, and with containers it may take longer."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        subject = callspec.params.get("subject") if callspec else None
        if not isinstance(subject, Subject):
            continue
        for component in subject.components:
            item.add_marker(pytest.mark.component(component))
        if subject.on_docker:
            item.add_marker(pytest.mark.timeout(900))
