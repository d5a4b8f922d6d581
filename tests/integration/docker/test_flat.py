"""What whole services leave on the machine: nothing, after many runs, and when they or their daemon are killed under load."""

import time
from pathlib import Path

import pytest

from tests.support import mix
from tests.support.docker import Daemon
from tests.support.flat import at_rest, flat_after, machine, serving, table
from tests.support.layers import sized

pytestmark = pytest.mark.timeout(600)

RUNS, WARM_UP = sized(55, 150), 15


@pytest.mark.slow
@pytest.mark.sized
def test_after_many_runs_everything_is_as_it_was(
    docker: Daemon, image: str, runtime: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with machine(docker, tmp_path) as found, serving(found, tmp_path, runtime, image):
        before, now, took = flat_after(found, WARM_UP, RUNS)
    with capsys.disabled():
        print(f"\n{runtime}: {RUNS - WARM_UP} runs in {took:.0f} s; before and after:\n{table(before, now)}")


def test_a_service_killed_under_load_leaves_nothing_on_the_machine(
    docker: Daemon, image: str, runtime: str, tmp_path: Path
) -> None:
    with machine(docker, tmp_path) as found:
        before = found.settled()
        with serving(found, tmp_path, runtime, image):
            assert found.running is not None
            with mix.load(found.running.url):
                time.sleep(3)  # in the middle of whatever is going on then
                found.running.process.kill()
                found.running.process.wait()
                found.running, found.data = None, None  # its names stay, for the next service
                found.assert_flat(before, lambda: True)


@pytest.mark.parametrize("how", ["killed", "restarted"])
def test_a_daemon_that_ends_under_load_leaves_nothing_once_it_is_back(
    docker: Daemon, image: str, runtime: str, tmp_path: Path, how: str
) -> None:
    with machine(docker, tmp_path) as found:
        with serving(found, tmp_path, runtime, image):
            assert found.running is not None
            before = found.counts()
            with mix.load(found.running.url):
                time.sleep(3)  # as above
                found.forget()  # what it had,
                (docker.kill if how == "killed" else docker.stop)()
                found.forget()  # and what it was told to make on the way
                docker.start_again()
            found.assert_flat(before, at_rest(found), 120)
            assert found.running_unknown() == []
        found.settled(lambda: not found.listed())
