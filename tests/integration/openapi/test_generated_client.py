"""A client that a stranger's tool generates from openapi.json works, with typed answers and typed refusals."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.integration.openapi.conftest import Served
from tests.support.service import ROOT

PACKAGE = "generated_plimsoll_client"
pytestmark = [pytest.mark.component("openapi-client"), pytest.mark.slow]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated package; a warning of the generator is a failure."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "config.yml").write_text("post_hooks: []\n")
    command = [
        *(sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning", "--meta", "none"),
        *("--path", str(ROOT / "openapi.json"), "--output-path", str(folder / PACKAGE)),
        *("--config", str(folder / "config.yml")),
    ]
    environ = {"PATH": os.defpath, "HOME": str(folder)}
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, check=False, timeout=90)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return folder / PACKAGE


@pytest.fixture
def load(package: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of the package by its path inside it."""
    monkeypatch.syspath_prepend(str(package.parent))

    def by_name(name: str) -> ModuleType:
        return import_module(f"{PACKAGE}.{name}")

    return by_name


@pytest.fixture
def client(load: Any, served: Served) -> Iterator[Any]:
    made = load("client").AuthenticatedClient
    with made(base_url=served.running.url, token=served.token, httpx_args={"trust_env": False}) as opened:
        yield opened


def body(load: Any, code: str, **more: Any) -> Any:
    models = load("models")
    return models.RunBody(payload=models.JavaScriptBody(kind="javascript", code=code), **more)


def test_it_makes_a_run_and_reads_the_result(load: Any, client: Any, served: Served) -> None:
    answer = load("api.runs.create_run").sync_detailed(client=client, body=body(load, "console.log(6 * 7)"))
    models = load("models")
    if not served.executes:
        assert isinstance(answer.parsed, models.Problem)
        assert answer.parsed.code is models.Code.EXECUTION_DISABLED
        return
    assert answer.status_code == 200
    assert isinstance(answer.parsed, models.RunAnswer)
    assert isinstance(answer.parsed.result, models.ScriptResultBody)
    assert answer.parsed.isolation is models.Tier.PROCESS
    assert (answer.parsed.result.exit_code, answer.parsed.result.stdout) == (0, "42\n")
    kept = load("api.runs.get_run").sync(answer.parsed.id, client=client)
    assert kept.state is models.RunViewState.FINISHED


def test_it_reads_a_refusal_with_its_mark(load: Any, client: Any, served: Served) -> None:
    models = load("models")
    asked = body(load, "console.log(1)", minimum_isolation=models.RunBodyMinimumIsolation.KERNEL)
    answer = load("api.runs.create_run").sync_detailed(client=client, body=asked)
    assert isinstance(answer.parsed, models.Problem)
    reason = models.Reason.ISOLATION if served.executes else models.Reason.UNSUPPORTED
    assert answer.parsed.not_dispatched.reason is reason
    assert answer.headers["Plimsoll-Not-Dispatched"] == reason.value
    assert answer.headers["Plimsoll-Request-Id"] == answer.parsed.request_id


def test_it_reads_what_is_served(load: Any, client: Any, served: Served) -> None:
    described = load("api.service.describe").sync(client=client)
    assert described.service == "plimsoll"
    assert described.execution is served.executes
    page = load("api.runs.list_runs").sync(client=client, limit=1)
    assert len(page.runs) == int(served.executes)


def test_without_a_token_it_reads_a_problem(load: Any, served: Served) -> None:
    made = load("client").Client
    with made(base_url=served.running.url, httpx_args={"trust_env": False}) as stranger:
        answer = load("api.service.describe").sync_detailed(client=stranger)
    models = load("models")
    assert answer.status_code == 401
    assert answer.parsed.not_dispatched.reason is models.Reason.PERMISSION
