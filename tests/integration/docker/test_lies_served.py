"""Lies about a wall, told to a whole provider: it serves what the container really has, or nothing, and never silently another.

The relay stands for a daemon elsewhere: what comes through it is real, but the process that it names is another one, of a
gVisor that really runs on this machine.
"""

import asyncio
import contextlib
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plimsoll.contract.requests import Python
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Out
from providers.docker.provider import DockerProvider
from providers.seam import Break, Findings, Finish, NotStarted, Order
from tests.integration.docker.test_lies import (
    AGENTS,
    LINES,
    PLATFORM,
    RUNSC,
    Begin,
    Build,
    Register,
    begin,
    build,
    register,
    script,
)
from tests.support.docker import Daemon, state_knowing

__all__ = ["begin", "build", "register"]

pytestmark = [pytest.mark.component("runsc"), pytest.mark.component("docker"), pytest.mark.timeout(400)]


@dataclass
class Served:
    """A provider, and what it said without being asked."""

    provider: DockerProvider
    dropped: list[str] = field(default_factory=list)

    async def look(self) -> Findings:
        return await self.provider.collect()

    async def run(self, code: str = "print(6 * 7)") -> bytes | Break | None:
        """What it printed, or None when nothing was started."""
        stdout = b""
        try:
            async for step in self.provider.run(Order("1" * 32, "2" * 32, Python(code), 20_000, 65_536)):
                if isinstance(step, Out) and step.stream == "stdout":
                    stdout += step.data
                if isinstance(step, Break):
                    return step
                if isinstance(step, Finish):
                    assert step == Finish(0)
        except NotStarted:
            return None
        return stdout


@asynccontextmanager
async def served(
    folder: Path, docker: Daemon, image: str, runtime: str, *, socket: str = ""
) -> AsyncIterator[Served]:
    settings = {
        "provider": f"docker@{runtime}",
        "state_dir": state_knowing(image, folder / "state"),
        "docker_host": f"unix://{socket or docker.socket}",
        "docker_image": image,
        "docker_pool": 1,
        "memory_mb": 256,
        "slots": 4,
    }
    one = Served(DockerProvider.from_settings(settings))
    try:
        await one.provider.open(one.dropped.append)
        yield one
    finally:
        await one.provider.close()


def fact(found: Findings, name: str) -> str:
    (value,) = [each.value for each in found.observations if each.name == name]
    return value


class TestRuntimes:
    async def test_runc_by_the_name_runsc_serves_containers(
        self, tmp_path: Path, docker: Daemon, image: str, register: Register
    ) -> None:
        runtime = register("runsc-lie", Path(shutil.which("runc") or "runc"))
        async with served(tmp_path, docker, image, runtime) as one:
            found = await one.look()
            assert (found.tier, found.faults, found.shortfalls) == (Tier.CONTAINER, (), ("gvisor_unproven",))
            assert await one.run() == b"42\n"

    async def test_a_gvisor_without_limits_serves_nothing_and_harms_nobody(
        self, tmp_path: Path, docker: Daemon, image: str, register: Register
    ) -> None:
        wrapper = script(tmp_path / "runsc", f'exec {RUNSC} --ignore-cgroups "$@"')
        runtime = register("runsc-unbound", wrapper, PLATFORM, "--network=none")
        async with served(tmp_path, docker, image, runtime) as one:
            found = await one.look()
            assert found.tier is Tier.NONE
            assert "runsc_flag_ignore_cgroups" in found.faults
            assert await one.run() is None

    async def test_a_runtime_that_is_not_there_serves_nothing(
        self, tmp_path: Path, docker: Daemon, image: str
    ) -> None:
        async with served(tmp_path, docker, image, "runsc-away") as one:
            found = await one.look()
            assert (found.tier, found.faults) == (Tier.NONE, ("runtime_missing",))

    async def test_a_binary_that_is_swapped_before_a_claim_takes_the_tier_at_once(
        self, tmp_path: Path, docker: Daemon, image: str, register: Register
    ) -> None:
        binary = tmp_path / "runsc"
        shutil.copy(RUNSC, binary)
        runtime = register("runsc-swapped", binary, PLATFORM, "--network=none")
        async with served(tmp_path, docker, image, runtime) as one:
            assert (await one.look()).tier is Tier.KERNEL
            assert await one.run() == b"42\n"
            script(tmp_path / "other", f'exec {RUNSC} --ignore-cgroups "$@"').replace(binary)
            assert await one.run() is None
            assert one.dropped
            found = await one.look()
            assert found.tier is Tier.NONE

    async def test_gvisor_itself_serves_the_tier_kernel(
        self, tmp_path: Path, docker: Daemon, image: str
    ) -> None:
        """So that the others fail for what they are."""
        async with served(tmp_path, docker, image, "runsc") as one:
            found = await one.look()
            assert (found.tier, found.faults, found.shortfalls) == (Tier.KERNEL, (), ())


class TestImages:
    @pytest.mark.parametrize("fault", LINES)
    async def test_one_that_asks_for_more_serves_nothing(
        self, tmp_path: Path, docker: Daemon, build: Build, fault: str
    ) -> None:
        async with served(tmp_path, docker, build(LINES[fault]), "runc") as one:
            found = await one.look()
            assert (found.tier, found.faults) == (Tier.NONE, (fault,))
            assert await one.run() is None

    @pytest.mark.parametrize("lie", ["changed", "writable"])
    async def test_one_with_another_agent_serves_nothing(
        self, tmp_path: Path, docker: Daemon, build: Build, lie: str
    ) -> None:
        async with served(tmp_path, docker, build(AGENTS[lie]), "runc") as one:
            found = await one.look()
            assert found.tier is Tier.NONE
            assert "agent_unknown" in found.faults

    async def test_a_name_that_moves_after_the_look_moves_nothing(
        self, tmp_path: Path, docker: Daemon, image: str, build: Build
    ) -> None:
        other = build("RUN rm -r /usr/lib/plimsoll")
        docker.docker("tag", image, "lie-sandbox:now")
        try:
            async with served(tmp_path, docker, "lie-sandbox:now", "runc") as one:
                assert (await one.look()).tier is Tier.CONTAINER
                docker.docker("tag", other, "lie-sandbox:now")
                for _ in range(3):  # more than were waiting
                    assert await one.run() == b"42\n"
                assert (await one.look()).tier is Tier.CONTAINER
                assert not one.dropped
        finally:
            docker.docker("rmi", "lie-sandbox:now")

    async def test_a_mended_image_of_the_same_name_is_taken_without_a_new_start(
        self, tmp_path: Path, docker: Daemon, image: str, build: Build
    ) -> None:
        docker.docker("tag", build(AGENTS["changed"]), "lie-sandbox:mended")
        try:
            async with served(tmp_path, docker, "lie-sandbox:mended", "runc") as one:
                assert (await one.look()).tier is Tier.NONE
                docker.docker("tag", image, "lie-sandbox:mended")
                assert (await one.look()).tier is Tier.CONTAINER
                assert await one.run() == b"42\n"
        finally:
            docker.docker("rmi", "lie-sandbox:mended")


# --- a daemon elsewhere ---------------------------------------------------------------------------------------------------

_PID = re.compile(rb'"Dead":false,"Pid":([1-9]\d*)')


@asynccontextmanager
async def relay(folder: Path, target: str, pid: int) -> AsyncIterator[str]:
    """A socket that gives all that the daemon says, but for the process of every container: that is `pid`."""
    path = str(folder / "relay.sock")

    def lie(data: bytes) -> bytes:
        """Of the same length, so that no head must be changed; what stands before the number makes room for a longer one."""
        return _PID.sub(lambda hit: (b'"Pid":%d' % pid).ljust(len(hit[0])), data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ours, theirs = await asyncio.open_unix_connection(target)
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, theirs, bytes))
            group.create_task(_copy(ours, writer, lie))

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield path
    finally:
        server.close()


async def _copy(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, change: Callable[[bytes], bytes]
) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(change(data))
            await sink.drain()
    with contextlib.suppress(OSError):
        sink.close()


class TestADaemonElsewhere:
    async def test_a_local_decoy_makes_no_gvisor_of_what_runs_there(
        self, tmp_path: Path, docker: Daemon, image: str, begin: Begin
    ) -> None:
        """A program inside a real gVisor does not find a container's limits, so nothing is served on the daemon's word."""
        decoy = int(begin("runsc").state()["Pid"])
        async with (
            relay(tmp_path, docker.socket, decoy) as socket,
            served(tmp_path, docker, image, "runsc", socket=socket) as one,
        ):
            found = await one.look()
        assert found.tier is Tier.NONE
        assert "smoke_inside" in found.faults

    async def test_what_runs_there_is_a_container_at_most_and_the_facts_say_on_whose_word(
        self, tmp_path: Path, docker: Daemon, image: str, begin: Begin, register: Register
    ) -> None:
        """Also where it is called runsc, as here."""
        decoy = int(begin("runsc").state()["Pid"])
        runtime = register("runsc-lie", Path(shutil.which("runc") or "runc"))
        async with (
            relay(tmp_path, docker.socket, decoy) as socket,
            served(tmp_path, docker, image, runtime, socket=socket) as one,
        ):
            found = await one.look()
            assert found.tier in {Tier.NONE, Tier.CONTAINER}
            # Only the host's own counter tells a kill for want of memory from any other while the agent lives.
            assert set(found.faults) <= {"smoke_memory"}
            assert found.shortfalls == ("gvisor_unproven",)
            assert fact(found, "local_proof") == "cgroup_other"
            assert "daemon" in {each.source for each in found.observations}
            assert "sandbox.executable" not in {each.name for each in found.observations}

    async def test_a_daemon_in_another_pid_namespace_proves_nothing(
        self, tmp_path: Path, docker: Daemon, image: str
    ) -> None:
        """Its numbers mean other processes here."""
        async with (
            relay(tmp_path, docker.socket, 1) as socket,
            served(tmp_path, docker, image, "runsc", socket=socket) as one,
        ):
            found = await one.look()
        assert found.tier is Tier.NONE
        assert fact(found, "local_proof") == "cgroup_other"


def test_runsc_is_what_the_daemon_has() -> None:
    """The lies are built from this file."""
    assert subprocess.run([RUNSC, "--version"], capture_output=True, check=False).returncode == 0
