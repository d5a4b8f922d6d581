"""A private service with a broker: profiles applied by its own command, runs that call an API, and what it leaves."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import plimsoll
from plimsoll.client import errors
from plimsoll.contract.refusals import Reason
from tests.integration.grants.conftest import BROKER, CANARY, PROFILE, Api, api

pytestmark = pytest.mark.component("wasm")

PROGRAM = (
    "console.log((await host.get('/v1/employees/7')).status); await host.get('/v1/salaries').catch(() => 0)"
)


@pytest.fixture(scope="module")
def hr() -> Iterator[Api]:
    with api() as server:
        yield server


def profile(hr: Api) -> str:
    return PROFILE.format(name="hr-read", origin=hr.origin, max_calls=50).replace("reporting", "local")


@pytest.fixture(scope="module")
def service(hr: Api) -> Iterator[plimsoll.LocalService]:
    started = plimsoll.local(settings=BROKER).start()
    try:
        started.apply_grants(profile(hr), {"HR_TOKEN": CANARY})
        yield started
    finally:
        started.close()


def test_a_run_calls_by_the_profile_that_it_names(service: plimsoll.LocalService, hr: Api) -> None:
    with service.client() as sandbox:
        assert sandbox.describe().grants.served
        assert [(each.name, each.max_calls) for each in sandbox.grants()] == [("hr-read", 50)]
        run = sandbox.run_javascript(PROGRAM, grant_profile="hr-read")
        assert (run.text, run.ok) == ("200\n", True)
        kept = sandbox.get_run(run.id)
    assert kept.grant_profile == "hr-read"
    assert kept.calls is not None
    assert (kept.calls.sent, kept.calls.delivered, kept.calls.failed) == (1, 1, {"denied": 1})
    assert hr.seen[-1][2]["authorization"] == f"Bearer {CANARY}"


def test_so_does_one_that_is_started_or_streamed_also_with_asyncio(service: plimsoll.LocalService) -> None:
    with service.client() as sandbox:
        assert sandbox.start_javascript(PROGRAM, grant_profile="hr-read").wait().text == "200\n"
        with sandbox.stream_javascript(PROGRAM, grant_profile="hr-read") as stream:
            assert b"".join(each.data for each in stream if isinstance(each, plimsoll.Output)) == b"200\n"

    async def main() -> tuple[str, list[str]]:
        async with service.async_client() as sandbox:
            run = await sandbox.run_javascript(PROGRAM, grant_profile="hr-read")
            return run.text, [each.name for each in await sandbox.grants()]

    assert asyncio.run(main()) == ("200\n", ["hr-read"])


def test_a_profile_that_is_not_there_is_refused_and_nothing_ran(service: plimsoll.LocalService) -> None:
    with service.client() as sandbox, pytest.raises(plimsoll.PermissionDenied) as caught:
        sandbox.run_javascript(PROGRAM, grant_profile="hr-write")
    assert caught.value.not_dispatched is Reason.PERMISSION


def test_faults_of_profiles_are_named_and_nothing_is_applied(service: plimsoll.LocalService, hr: Api) -> None:
    wrong = profile(hr).replace("hr-read", "other").replace("= 50", "= 0")
    with pytest.raises(errors.LocalServiceError) as caught:
        service.apply_grants(wrong)
    assert caught.value.errors[1:] == (
        "other: max_calls must be 1 to 100000",
        "other: credential.env: HR_TOKEN is not set",
    )
    with service.client() as sandbox:
        assert [each.name for each in sandbox.grants()] == ["hr-read"]


@pytest.mark.parametrize(
    "secrets", [{"PLIMSOLL_DATA_DIR": "x"}, {"a": "x"}, {"A": "x\0"}, {"A": 1}, {1: "x"}]
)
def test_a_secret_that_cannot_be_given(
    service: plimsoll.LocalService, hr: Api, secrets: dict[str, str]
) -> None:
    with pytest.raises(errors.InvalidOption):
        service.apply_grants(profile(hr), secrets)


def test_its_log_is_kept_where_it_was_asked_for_and_its_data_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    service = plimsoll.local(settings=BROKER, log=log)
    with service as sandbox:
        run = sandbox.run_javascript("console.log(1)")
        data = Path(service.data_dir)
        assert (data / "plimsoll.db").exists()
        assert Path(f"/proc/{service.pid}").exists()
    assert run.id in log.read_text()
    assert '"event":"draining"' in log.read_text()
    assert not data.exists()
    for look in (lambda: service.data_dir, lambda: service.pid, lambda: service.apply_grants("")):
        with pytest.raises(errors.InvalidOption, match="not running"):
            look()


def test_a_log_that_cannot_be_written_starts_nothing(tmp_path: Path) -> None:
    for log in (tmp_path / "absent" / "log", ""):
        with pytest.raises(errors.InvalidOption, match="log"):
            plimsoll.local(log=log).start()


def test_without_the_command_beside_its_program_no_profile_is_applied(tmp_path: Path) -> None:
    from plimsoll.client.administer import apply_grants  # noqa: PLC0415 - one use

    with pytest.raises(errors.LocalServiceError, match="plimsoll-admin could not be started"):
        apply_grants(str(tmp_path / "plimsolld"), {}, "", {})
