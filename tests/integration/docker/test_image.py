"""The sandbox image: what is in it, what is not, and that `make images` says so."""

import hashlib
import json
from typing import Any

import pytest

from tests.integration.docker.conftest import Start
from tests.support.docker import MANIFEST, ROOT, Daemon

AGENT = ROOT / "providers" / "docker" / "agent"


@pytest.fixture
def inspected(docker: Daemon, image: str) -> dict[str, Any]:
    found: dict[str, Any] = docker.call("GET", f"/images/{image}/json")
    return found


def _inside(docker: Daemon, image: str, *words: str) -> str:
    return docker.docker(
        "run", "--rm", "--network", "none", "--read-only", "--entrypoint", words[0], image, *words[1:]
    )


def test_the_agent_comes_up_and_says_which_interpreters_wait(start: Start) -> None:
    sandbox = start("python", "javascript")
    assert sandbox.receive() == ({"t": "ready", "warm": ["python", "javascript"]}, b"")


@pytest.mark.component("docker")
def test_it_asks_for_nothing_that_we_refuse(inspected: dict[str, Any]) -> None:
    config = inspected["Config"]
    assert not config.get("Volumes")
    assert not config.get("Labels")
    assert not config.get("Healthcheck")
    assert not config.get("ExposedPorts")
    assert [entry.partition("=")[0] for entry in config["Env"]] == ["PATH"]
    assert config["WorkingDir"] == "/workspace"


@pytest.mark.component("docker")
def test_it_holds_the_agent_as_it_is_here(docker: Daemon, image: str) -> None:
    folder = "/usr/lib/plimsoll/providers/docker/agent"
    names = sorted(_inside(docker, image, "ls", folder).split())
    assert names == sorted(path.name for path in AGENT.iterdir() if path.is_file())
    sums = _inside(docker, image, "sha256sum", *(f"{folder}/{name}" for name in names)).splitlines()
    here = [hashlib.sha256((AGENT / name).read_bytes()).hexdigest() for name in names]
    assert [line.split()[0] for line in sums] == here


@pytest.mark.component("docker")
def test_no_program_in_it_gains_rights_by_being_started(docker: Daemon, image: str) -> None:
    assert not _inside(docker, image, "find", "/", "-xdev", "-type", "f", "-perm", "/6000")
    capable = (
        "import os\n"
        "for folder, _, names in os.walk('/usr'):\n"
        "    for path in (os.path.join(folder, name) for name in names):\n"
        "        if 'security.capability' in os.listxattr(path, follow_symlinks=False): print(path)"
    )
    assert not _inside(docker, image, "python3", "-Ic", capable)


@pytest.mark.component("docker")
def test_a_guest_could_write_only_where_sized_places_are_mounted(docker: Daemon, image: str) -> None:
    """Even if the root were not read-only."""
    tests = ("!", "-type", "l", "(", "-perm", "-o+w", "-o", "!", "-user", "0", ")")
    assert _inside(docker, image, "find", "/", "-xdev", *tests).split() == ["/tmp"]


@pytest.mark.component("docker")
def test_its_manifest_names_every_package_with_its_version(docker: Daemon, image: str) -> None:
    manifest = json.loads((docker.place / "data" / MANIFEST.name).read_text())
    assert manifest["image"] == image
    assert manifest["base_id"] == docker.call("GET", f"/images/{manifest['base']}/json")["Id"]
    listed = _inside(docker, image, "dpkg-query", "-W", "-f", "${binary:Package} ${Version}\n")
    assert manifest["packages"] == dict(line.split() for line in listed.splitlines())
    assert manifest["languages"]["python"] in _inside(docker, image, "python3", "--version")
    assert manifest["languages"]["javascript"] == _inside(docker, image, "node", "--version").strip()
