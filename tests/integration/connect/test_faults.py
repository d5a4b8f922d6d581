"""What the published client is told when a run breaks or nothing can run: marked only where nothing ran."""

import sys
from pathlib import Path

import pytest

from tests.integration.connect.published import javascript, judge
from tests.support.service import environment, make_caller, started

pytestmark = pytest.mark.component("published-client")

BROKEN: dict[str, tuple[str, str | None]] = {
    "begin effect break": ("internal", None),
    "effect raise": ("internal", None),
    "refuse": ("unavailable", "environment"),
    "begin effect die": ("internal", None),
}
"""What the code does, the Connect code of the answer, its mark. The last one takes the provider with it."""


def test_an_error_is_marked_only_when_the_worker_itself_says_that_nothing_started(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.kill_service", str(tmp_path / "effects")]
    environ = environment(tmp_path / "data", PLIMSOLL_INSECURE="1")
    with started(environ, tmp_path / "log", *command) as running:
        outcomes = judge(running.url, None, *map(javascript, BROKEN))
    found = [(each.error["code"], each.error["not_dispatched"]) for each in outcomes]
    assert found == list(BROKEN.values())
    assert {each.error["class"] for each in outcomes} == {"PlimsollError"}
    assert len((tmp_path / "effects").read_text().split()) == 3


def test_with_execution_off_everything_is_disabled_and_marked(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    token = make_caller(environ, "caller")
    with started(environ, tmp_path / "log") as running:
        described, refused = judge(
            running.url, token, ("describe", {}), javascript("1", minimum_isolation="vm")
        )
    assert (described.result["provider"], described.result["isolation"]) == ("", "none")
    assert refused.verdict == ("DisabledError", "unsupported")


def test_a_token_without_the_scope_may_describe_and_not_run(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    token = make_caller(environ, "reader", "--scope", "records:read")
    with started(environ, tmp_path / "log") as running:
        described, refused = judge(running.url, token, ("describe", {}), javascript("1"))
    assert described.result["protocol"] == 4
    assert (refused.error["code"], refused.error["not_dispatched"]) == ("permission_denied", "permission")
