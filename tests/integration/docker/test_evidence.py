"""What the host sees of real containers: enough for the tier, the same for equal walls, and everything that is missing."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from plimsoll.contract.requests import Python
from plimsoll.contract.tiers import Tier
from providers.docker import evidence, hidden, smoke
from providers.docker.frames import Output
from providers.docker.recipe import pids_limit
from providers.docker.settings import DockerSettings
from providers.docker.sight import Limits, Sight, Unseen
from providers.docker.smoke import Outcome
from providers.seam import Finish
from tests.integration.docker.conftest import Start
from tests.support.docker import Daemon, Sandbox

TIERS = {"runc": Tier.CONTAINER, "runsc": Tier.KERNEL}
SETTINGS = DockerSettings("docker", "/nonexistent")
MIB = 1 << 20

See = Callable[..., Sight]


def limits(runtime: str, uid: int = 0) -> Limits:
    pids = pids_limit(SETTINGS, gvisor=runtime != "runc")
    return Limits(SETTINGS.memory_mb * MIB, pids, SETTINGS.cpus, uid)


def ready(sandbox: Sandbox) -> Sandbox:
    assert sandbox.receive()[0]["t"] == "ready"
    return sandbox


@pytest.fixture
def see() -> Iterator[See]:
    """Looks at containers; every look ends with the test."""
    with ExitStack() as stack:

        def one(sandbox: Sandbox) -> Sight:
            pid = int(sandbox.state()["Pid"])
            return stack.enter_context(
                Sight.open(sandbox.id, pid, limits(sandbox.runtime, sandbox.uid), frozenset())
            )

        yield one


def judged(sight: Sight, runtime: str) -> Any:
    return evidence.judge_container(sight.observations, runtime=runtime)


class TestAWholeWall:
    def test_it_is_proven(self, start: Start, see: See, runtime: str) -> None:
        found = judged(see(ready(start("python"))), runtime)
        assert (found.tier, found.faults, found.shortfalls) == (TIERS[runtime], (), ())
        assert evidence.wall_of(found.observations) is TIERS[runtime]

    def test_equal_walls_have_equal_facts_whatever_is_warm(self, start: Start, see: See) -> None:
        seen = [see(ready(start(*warm))).observations for warm in ((), ("python",), ("python", "javascript"))]
        assert seen[0] == seen[1] == seen[2]

    def test_facts_hold_no_ids_and_no_places_of_the_machine(
        self, start: Start, see: See, docker: Daemon
    ) -> None:
        sandbox = ready(start("python"))
        told = " ".join(each.value for each in see(sandbox).observations)
        for secret in (sandbox.id, sandbox.id[:12], str(sandbox.state()["Pid"]), str(docker.place), "/runsc"):
            assert secret not in told

    def test_it_stays_the_same_and_a_look_back_is_cheap(self, start: Start, see: See) -> None:
        sight = see(ready(start("python")))
        best = 1.0
        for _ in range(50):
            began = time.perf_counter()
            assert sight.same()
            best = min(best, time.perf_counter() - began)
        assert best < 0.02

    def test_no_descriptor_stays_after_a_close(self, start: Start, runtime: str) -> None:
        sandbox = ready(start("python"))
        pid = int(sandbox.state()["Pid"])
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # names are counted
        for _ in range(3):
            with Sight.open(sandbox.id, pid, limits(runtime, sandbox.uid), frozenset()) as sight:
                sight.close()
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  # as above

    def test_whoever_may_not_read_what_it_runs_has_no_proof(self, start: Start, runtime: str) -> None:
        """A service that is not root."""
        sandbox = ready(start("python"))
        pid = int(sandbox.state()["Pid"])
        child = os.fork()
        if child == 0:
            code = 2
            try:
                os.setgid(65534)
                os.setuid(65534)
                Sight.open(sandbox.id, pid, limits(runtime, sandbox.uid), frozenset())
            except Unseen as unseen:
                code = 0 if unseen.code == "no_rights" else 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class TestLater:
    @pytest.mark.component("docker")
    @pytest.mark.parametrize(
        "change", [["--memory=600m", "--memory-swap=600m"], ["--pids-limit=2000"], ["--cpus=2"]]
    )
    def test_a_limit_that_the_daemon_changes_under_way_is_seen(
        self, docker: Daemon, image: str, see: See, change: list[str]
    ) -> None:
        sandbox = ready(Sandbox.start(docker, image, "runc", "python"))
        try:
            sight = see(sandbox)
            docker.docker("update", *change, sandbox.id)
            assert not sight.same()
            assert sight.alive
            assert judged(see(sandbox), "runc").tier is Tier.NONE
        finally:
            sandbox.destroy()

    def test_a_limit_that_is_changed_behind_the_daemons_back_is_seen(
        self, start: Start, see: See, runtime: str
    ) -> None:
        """So it has to be done under gVisor, which knows no update."""
        sandbox = ready(start("python"))
        sight = see(sandbox)
        Path(sight._groups.folders["pids"], "pids.max").write_text("2000")
        assert not sight.same()
        assert judged(see(sandbox), runtime).faults == ("cgroup_pids",)

    def test_a_container_that_is_gone_is_not_the_same_and_holds_nothing(self, start: Start, see: See) -> None:
        sandbox = ready(start("python"))
        sight = see(sandbox)
        pid = int(sandbox.state()["Pid"])
        sandbox.destroy()
        sandbox.gone()
        assert not sight.same()
        assert not sight.alive
        assert (sight.oom_kills(), sight.memory().held_bytes) == (0, 0)
        with pytest.raises(Unseen):
            Sight.open(sandbox.id, pid, limits(sandbox.runtime, sandbox.uid), frozenset())

    def test_memory_that_a_guest_holds_is_counted(self, start: Start, see: See) -> None:
        sandbox = ready(start("python"))
        sight = see(sandbox)
        before = sight.memory()
        sandbox.send(
            {"t": "run", "language": "python"},
            b"x = bytearray(b'x') * (100 << 20); print(1, flush=True); import time; time.sleep(60)",
        )
        sandbox.until("out")
        now = sight.memory()
        assert now.limit_bytes == SETTINGS.memory_mb * MIB
        assert 95 * MIB < now.held_bytes - before.held_bytes < 140 * MIB

    @pytest.mark.component("docker")
    def test_a_kill_for_want_of_memory_is_counted(self, docker: Daemon, image: str, see: See) -> None:
        sandbox = ready(Sandbox.start(docker, image, "runc", "python"))
        try:
            sight = see(sandbox)
            sandbox.send({"t": "run", "language": "python"}, b"x = bytearray(b'x') * (1 << 30)")
            sandbox.until("result")
            assert sight.oom_kills() == 1
            assert sight.same()
        finally:
            sandbox.destroy()


LACKING: dict[str, dict[str, Any]] = {
    "root_writable": {"ReadonlyRootfs": False},
    "mounts_unexpected": {"Binds": ["/etc:/host:ro"]},
    "mounts_promised": {
        "Tmpfs": {"/workspace": "rw,noexec,nosuid,nodev,size=64m,uid={guest},gid={guest},mode=0700"}
    },
    "sandbox_capabilities": {"CapAdd": ["KILL", "SETGID", "SETUID", "SYS_ADMIN"]},
    "cgroup_memory_bytes": {"Memory": 300 * MIB},
    "cgroup_swap_bytes": {"MemorySwap": 1024 * MIB},
    "cgroup_pids": {"PidsLimit": None},
    "cgroup_cpus": {"NanoCpus": 0},
    "cgroup_oom_kill": {"OomKillDisable": True},
    "namespace_shared": {"PidMode": "host"},
    "oom_score_adj": {"OomScoreAdj": 0},
    "seccomp_missing": {"SecurityOpt": ["no-new-privileges:true", "seccomp=unconfined"]},
    "mounts_hidden": {"MaskedPaths": [path for path in hidden.PATHS if path != "/proc/cmdline"]},
    "mounts_kernel": {"ReadonlyPaths": [], "MaskedPaths": []},
}
LACKING_ALIKE = {"cgroup_memory_bytes", "cgroup_pids", "cgroup_cpus", "oom_score_adj"}
"""What gVisor's sandbox process shows too; of the rest it makes something of its own."""


class TestSomethingIsMissing:
    @pytest.mark.component("docker")
    @pytest.mark.parametrize("fault", LACKING)
    def test_a_container_that_lacks_it_proves_nothing(
        self, docker: Daemon, image: str, see: See, fault: str
    ) -> None:
        sandbox = ready(Sandbox.start(docker, image, "runc", "python", **LACKING[fault]))
        try:
            found = judged(see(sandbox), "runc")
        finally:
            sandbox.destroy()
        assert found.tier is Tier.NONE
        assert fault in found.faults

    @pytest.mark.component("docker")
    def test_the_hosts_network_is_seen(self, docker: Daemon, image: str, see: See) -> None:
        sandbox = ready(Sandbox.start(docker, image, "runc", "python", NetworkMode="host"))
        try:
            found = judged(see(sandbox), "runc")
        finally:
            sandbox.destroy()
            # The daemon keeps this mount, and its folder could not be removed.
            subprocess.run(["umount", docker.place / "exec" / "netns" / "default"], check=True)
        assert found.tier is Tier.NONE
        assert {"namespace_shared", "network_devices"} <= set(found.faults)

    @pytest.mark.component("runsc")
    @pytest.mark.parametrize("fault", sorted(LACKING_ALIKE))
    def test_so_does_a_gvisor(self, docker: Daemon, image: str, see: See, fault: str) -> None:
        sandbox = ready(Sandbox.start(docker, image, "runsc", "python", **LACKING[fault]))
        try:
            found = judged(see(sandbox), "runsc")
        finally:
            sandbox.destroy()
        assert found.tier is Tier.NONE
        assert fault in found.faults

    @pytest.mark.component("docker")
    def test_an_agent_that_stays_root_is_seen(self, docker: Daemon, image: str, see: See) -> None:
        """Any other program in its place."""
        made = docker.docker(
            "run", "-d", "--network=none", "--entrypoint=sleep", "--read-only", image, "600"
        ).strip()
        try:
            pid = int(docker.docker("inspect", "-f", "{{.State.Pid}}", made))
            with Sight.open(made, pid, limits("runc"), frozenset()) as sight:
                found = judged(sight, "runc")
        finally:
            docker.docker("rm", "-f", made)
        assert found.tier is Tier.NONE
        assert {"sandbox_user", "sandbox_capabilities", "no_new_privs_missing", "cgroup_memory_bytes"} <= set(
            found.faults
        )


def test_what_a_guest_finds_inside_is_what_the_wall_promises(start: Start, runtime: str) -> None:
    case = smoke.cases(TIERS[runtime], SETTINGS)[smoke.INSIDE]
    assert isinstance(case.payload, Python)
    said = b"".join(event.data for event in start("python").run(case.payload) if isinstance(event, Output))
    places = ("/tmp", "/workspace", "/dev/shm")
    assert smoke.wrongs(said, Finish(0), TIERS[runtime], places, SETTINGS.disk_mb * MIB) == ()
    assert case.holds(Outcome(Finish(0), said, 1000))
