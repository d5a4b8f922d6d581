"""Lies about a wall, tried on real daemons: whatever is called gVisor, is changed after the look, or brings its own agent.

No lie makes `kernel`, and none makes more than what the container really has.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from plimsoll.contract.tiers import Tier
from providers.docker import evidence, runsc
from providers.docker import image as images
from providers.docker.sight import Sight, Unseen
from providers.seam import Findings
from tests.integration.docker.test_evidence import limits, ready
from tests.support.docker import Daemon, Sandbox, Unix, runsc_platform

RUNSC = Path(shutil.which("runsc") or "runsc").resolve()
PLATFORM = f"--platform={runsc_platform()}" if shutil.which("runsc") else ""

pytestmark = [pytest.mark.component("runsc"), pytest.mark.timeout(300)]


class Register(Protocol):
    """Makes something a runtime of the daemon's."""

    def __call__(self, name: str, path: Path, *words: str) -> str: ...


class Begin(Protocol):
    """Starts a container under a runtime."""

    def __call__(self, runtime: str, **changes: Any) -> Sandbox: ...


@pytest.fixture
def register(docker: Daemon) -> Iterator[Register]:
    """The daemon's configuration is as before in the end."""
    file = docker.place / "daemon.json"
    before = file.read_text()

    def one(name: str, path: Path, *words: str) -> str:
        config = json.loads(file.read_text())
        config["runtimes"][name] = {"path": str(path), "runtimeArgs": list(words)}
        _reload(docker, file, json.dumps(config), name)
        return name

    yield one
    file.write_text(before)
    os.kill(docker.process.pid, signal.SIGHUP)


def _reload(docker: Daemon, file: Path, content: str, name: str) -> None:
    file.write_text(content)
    os.kill(docker.process.pid, signal.SIGHUP)
    deadline = time.monotonic() + 30
    while name not in docker.call("GET", "/info")["Runtimes"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def begin(docker: Daemon, image: str) -> Iterator[Begin]:
    with ExitStack() as stack:

        def one(runtime: str, **changes: Any) -> Sandbox:
            sandbox = Sandbox.start(docker, image, runtime, "python", **changes)
            stack.callback(sandbox.destroy)
            return ready(sandbox)

        yield one


def look(sandbox: Sandbox, *vouched: str) -> Findings:
    """As a provider judges a container: by what is seen here, else on the daemon's word."""
    try:
        with Sight.open(sandbox.id, _pid(sandbox), limits("runsc", sandbox.uid), frozenset(vouched)) as sight:
            return evidence.judge_container(sight.observations, runtime="runsc")
    except Unseen as unseen:
        inspected = sandbox.daemon.call("GET", f"/containers/{sandbox.id}/json")
        seen = evidence.of_daemon(inspected, limits("runsc", sandbox.uid), unseen.code)
        return evidence.judge_container(seen, runtime="runsc")


def _pid(sandbox: Sandbox) -> int:
    return int(sandbox.state()["Pid"])


class TestARuntimeThatIsSomethingElse:
    def test_runc_by_the_name_runsc_is_a_container_that_falls_short(
        self, register: Register, begin: Begin
    ) -> None:
        found = look(begin(register("runsc-lie", Path(shutil.which("runc") or "runc"))))
        assert (found.tier, found.faults, found.shortfalls) == (Tier.CONTAINER, (), ("gvisor_unproven",))

    def test_runc_with_gvisors_words_around_it_too(
        self, register: Register, begin: Begin, tmp_path: Path
    ) -> None:
        """What a sandbox process is called, and with what, is for anybody to choose."""
        wrapper = script(tmp_path / "runsc", f'exec -a runsc-sandbox {shutil.which("runc")} "$@"')
        assert look(begin(register("runsc-words", wrapper))).tier is Tier.CONTAINER

    def test_a_binary_that_differs_by_a_byte_is_unknown(
        self, register: Register, begin: Begin, tmp_path: Path
    ) -> None:
        changed = tmp_path / "runsc"
        changed.write_bytes(RUNSC.read_bytes() + b"\0")
        changed.chmod(0o755)
        sandbox = begin(register("runsc-changed", changed, PLATFORM, "--network=none"))
        found = look(sandbox)
        assert found.tier is Tier.NONE
        assert "runsc_unknown" in found.faults
        vouched = look(sandbox, runsc_sum(changed))  # that is the operator's word, and the facts say so
        assert ("sandbox.release", runsc.SETTING) in values(vouched)
        assert (vouched.tier is Tier.KERNEL) == (runsc_platform() == "systrap")  # judged as the newest


def runsc_sum(path: Path) -> str:
    return subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]


def values(found: Findings) -> set[tuple[str, str]]:
    return {(each.name, each.value) for each in found.observations}


def script(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/bash\n{line}\n")
    path.chmod(0o755)
    return path


# --- flags ----------------------------------------------------------------------------------------------------------------

FLAGS = {
    "--ignore-cgroups": "runsc_flag_ignore_cgroups",
    "--network=host": "runsc_flag_network",
    "--network=sandbox": "runsc_flag_network",
    "--host-uds=open": "runsc_flag_host_uds",
    "--host-uds=all": "runsc_flag_host_uds",
    "--fsgofer-host-uds": "runsc_flag_fsgofer_host_uds",
    "--overlay": "runsc_flag_overlay",
    "--overlay2=all:memory": "runsc_flag_overlay2",
    "--overlay2=root:dir=/tmp": "runsc_flag_overlay2",
    "--debug": "runsc_flag_debug",
    "--strace": "runsc_flag_strace",
    "--net-raw": "runsc_flag_net_raw",
    "--oci-seccomp": "runsc_flag_oci_seccomp",
    "--allow-flag-override": "runsc_flag_allow_flag_override",
    "--file-access=shared": "runsc_flag_file_access",
    "--profile": "runsc_flag_profile",
    "--rootless": "runsc_flag_rootless",
    "--watchdog-action=panic": "runsc_flag_watchdog_action",
    "--a-flag-of-tomorrow": "runsc_flag_a_flag_of_tomorrow",
}
ALWAYS_STARTS = {
    "--ignore-cgroups",
    "--network=host",
    "--debug",
    "--net-raw",
    "--host-uds=open",
    "--file-access=shared",
}
"""So that these are seen, and not just refused by gVisor itself."""


def network_of(flag: str) -> tuple[str, ...]:
    """The last of two would win."""
    return () if flag.startswith("--network") else ("--network=none",)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_wrapper_that_adds_a_flag_proves_nothing(
    register: Register, begin: Begin, tmp_path: Path, flag: str
) -> None:
    wrapper = script(tmp_path / "runsc", f'exec {RUNSC} {flag} {" ".join(network_of(flag))} "$@"')
    runtime = register("runsc-wrapped", wrapper, PLATFORM)
    try:
        sandbox = begin(runtime)
    except (AssertionError, EOFError):  # this gVisor does not know the flag, or cannot start with it
        assert flag not in ALWAYS_STARTS
        return
    found = look(sandbox)
    assert found.tier is Tier.NONE
    assert FLAGS[flag] in found.faults


def test_a_wrapper_that_adds_nothing_is_gvisor(register: Register, begin: Begin, tmp_path: Path) -> None:
    """A sandbox process is what is looked at, and not what started it."""
    wrapper = script(tmp_path / "anything", f'exec {RUNSC} "$@"')
    assert look(begin(register("anything", wrapper, PLATFORM, "--network=none"))).tier is Tier.KERNEL


# --- afterwards -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A gVisor of the test's own."""
    path = tmp_path / "runsc"
    shutil.copy(RUNSC, path)
    return path


class TestAfterTheLook:
    @pytest.fixture
    def sandbox(self, register: Register, begin: Begin, copy: Path) -> Sandbox:
        return begin(register("runsc-copy", copy, PLATFORM, "--network=none"))

    def test_a_binary_that_is_swapped_is_seen(self, sandbox: Sandbox, copy: Path) -> None:
        """The container that runs is still the old one; what the next would be is no longer what was looked at."""
        with Sight.open(sandbox.id, _pid(sandbox), limits("runsc"), frozenset()) as sight:
            assert sight.same()
            other = copy.with_name("other")
            other.write_bytes(copy.read_bytes() + b"\0")
            other.replace(copy)
            assert not sight.same()
            assert sight.alive
        assert look(sandbox).tier is Tier.NONE

    def test_a_binary_that_is_removed_is_seen(self, sandbox: Sandbox, copy: Path) -> None:
        with Sight.open(sandbox.id, _pid(sandbox), limits("runsc"), frozenset()) as sight:
            copy.unlink()
            assert not sight.same()
        found = look(sandbox)
        assert found.tier is Tier.NONE

    def test_the_next_container_is_not_what_the_first_was(
        self, sandbox: Sandbox, begin: Begin, copy: Path
    ) -> None:
        before = look(sandbox)
        script(copy.with_name("wrapper"), f'exec {RUNSC} --ignore-cgroups "$@"').replace(copy)
        after = look(begin("runsc-copy"))
        assert (before.tier, after.tier) == (Tier.KERNEL, Tier.NONE)
        assert "runsc_flag_ignore_cgroups" in after.faults
        assert before.observations != after.observations


# --- elsewhere ------------------------------------------------------------------------------------------------------------


class TestAnotherContainersProof:
    def test_a_decoy_proves_nothing_for_another_container(self, begin: Begin) -> None:
        """A daemon elsewhere names the process of a real gVisor of this machine for a container of its own."""
        decoy = begin("runsc")
        with pytest.raises(Unseen, match="cgroup_other"):
            Sight.open("0" * 64, _pid(decoy), limits("runsc"), frozenset())
        with pytest.raises(Unseen, match="cgroup_other"):
            Sight.open(begin("runc").id, _pid(decoy), limits("runsc"), frozenset())

    def test_a_part_of_an_id_is_no_id(self, begin: Begin) -> None:
        sandbox = begin("runsc")
        for part in (sandbox.id[:12], sandbox.id[12:], "", sandbox.id.upper(), f"docker/{sandbox.id}"):
            with pytest.raises(Unseen):
                Sight.open(part, _pid(sandbox), limits("runsc"), frozenset())

    def test_another_process_of_the_container_is_not_its_first(self, begin: Begin) -> None:
        """The file server beside it is in the same group, and its line says another role."""
        sandbox = begin("runsc")
        (own, group) = (_pid(sandbox), Path(f"/proc/{_pid(sandbox)}/cgroup").read_text())
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        others = [pid for pid in pids if pid != own and _group(pid) == group]
        assert others
        for pid in others:
            with (
                contextlib.suppress(Unseen),
                Sight.open(sandbox.id, pid, limits("runsc"), frozenset()) as sight,
            ):
                found = evidence.judge_container(sight.observations, runtime="runsc")
                assert (
                    found.tier is Tier.NONE or b"runsc-sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes()
                )


def _group(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""


# --- images ---------------------------------------------------------------------------------------------------------------

AGENT = "/usr/lib/plimsoll/providers/docker/agent"
LINES = {
    "image_volume": "VOLUME /data",
    "image_label": 'LABEL plimsoll.sandbox="docker"',
    "image_healthcheck": "HEALTHCHECK CMD true",
    "image_env": "ENV LD_PRELOAD=/usr/lib/x.so",
    "image_env_path": "ENV PATH=/workspace:/usr/bin",
    "image_onbuild": "ONBUILD RUN true",
}
AGENTS = {
    "changed": f"RUN echo >>{AGENT}/main.py",
    "beside": "RUN touch /usr/lib/plimsoll/json.py",
    "linked": f"RUN mv {AGENT}/wire.py /usr/lib/wire.py && ln -s /usr/lib/wire.py {AGENT}/wire.py",
    "writable": f"RUN chmod 666 {AGENT}/loop.py",
    "missing": f"RUN rm {AGENT}/snippet.js",
    "away": "RUN rm -r /usr/lib/plimsoll",
}


class Build(Protocol):
    """Makes an image with one more line; its content id."""

    def __call__(self, line: str) -> str: ...


@pytest.fixture
def build(docker: Daemon, image: str) -> Iterator[Build]:
    made: list[str] = []

    def one(line: str) -> str:
        done = subprocess.run(
            ["docker", "build", "-q", "--network=none", "-"],
            input=f"FROM {image}\n{line}\n",
            env=docker.environment | {"DOCKER_BUILDKIT": "0"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
            check=True,
        )
        made.append(done.stdout.split()[-1])
        return made[-1]

    yield one
    for each in made:
        docker.docker("rmi", "-f", each)


def refused(docker: Daemon, name: str) -> tuple[str, ...]:
    return images.faults_of(
        docker.call("GET", f"/images/{name}/json"), docker.call("GET", "/version")["Arch"]
    )


def agent_of(docker: Daemon, name: str) -> bytes:
    made = docker.call("POST", "/containers/create", {"Image": name, "HostConfig": {"NetworkMode": "none"}})[
        "Id"
    ]
    try:
        with contextlib.closing(Unix(docker.socket)) as connection:
            connection.request("GET", f"/v1.41/containers/{made}/archive?path=/usr/lib/plimsoll")
            return connection.getresponse().read()
    finally:
        docker.docker("rm", made)


@pytest.mark.component("docker")
class TestImages:
    def test_ours_is_taken(self, docker: Daemon, image: str) -> None:
        assert refused(docker, image) == ()

    @pytest.mark.parametrize("fault", LINES)
    def test_one_that_asks_for_more_is_refused(self, docker: Daemon, build: Build, fault: str) -> None:
        assert refused(docker, build(LINES[fault])) == (fault,)

    @pytest.mark.parametrize("lie", AGENTS)
    def test_one_with_another_agent_is_told(self, docker: Daemon, build: Build, lie: str) -> None:
        made = build(AGENTS[lie])
        assert refused(docker, made) == ()  # nothing in its description says so
        assert not images.agent_matches(agent_of(docker, made))

    def test_ours_holds_our_agent(self, docker: Daemon, image: str) -> None:
        assert images.agent_matches(agent_of(docker, image))
