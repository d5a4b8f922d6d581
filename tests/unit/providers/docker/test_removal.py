"""What the daemon cannot end is ended only where it is certain whose process it is."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from providers.docker.daemon import Daemon, DaemonError
from providers.docker.removal import remove

SOME_ID = "ab" * 32


class StubbornDaemon:
    """It can remove nothing, and names some process."""

    def __init__(self, code: str, state: object) -> None:
        self.code, self.state, self.asked = code, state, 0

    async def remove(self, _name: str) -> bool:
        self.asked += 1
        raise DaemonError(self.code)

    async def inspect(self, _name: str) -> dict[str, Any]:
        return {"Id": SOME_ID, "State": self.state}


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


async def test_a_process_of_another_control_group_is_left_alone(stranger: "subprocess.Popen[bytes]") -> None:
    daemon = StubbornDaemon("failed", {"Pid": stranger.pid})
    with pytest.raises(DaemonError):
        await remove(cast("Daemon", daemon), "name")
    assert (stranger.poll(), daemon.asked) == (None, 1)


@pytest.mark.parametrize("state", [None, {}, {"Pid": 0}, {"Pid": -1}, {"Pid": "1"}, {"Pid": 1 << 22}])
async def test_what_is_no_process_here_is_the_daemons_failure(state: object) -> None:
    with pytest.raises(DaemonError, match="failed"):
        await remove(cast("Daemon", StubbornDaemon("failed", state)), "name")


@pytest.mark.parametrize("code", ["unreachable", "unknown"])
async def test_a_daemon_that_is_away_is_not_asked_again(code: str) -> None:
    daemon = StubbornDaemon(code, {"Pid": 1})
    with pytest.raises(DaemonError, match=code):
        await remove(cast("Daemon", daemon), "name")
    assert daemon.asked == 1
