"""deploy/install-gvisor.sh against a configuration of the test's own: what it writes, what it keeps, what it refuses."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.docker import ROOT, runsc_platform

SCRIPT = ROOT / "deploy" / "install-gvisor.sh"
RUNSC = shutil.which("runsc") or "runsc"
Done = subprocess.CompletedProcess[str]

pytestmark = pytest.mark.component("runsc")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "docker" / "daemon.json"


def install(config: Path, *words: str, binary: str | Path = RUNSC) -> Done:
    command = [SCRIPT, "--config", config, "--binary", binary, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def runtimes(config: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(config.read_text())["runtimes"]
    return found


def fake(folder: Path, version: str) -> Path:
    program = folder / "runsc"
    program.write_text(f"#!/bin/sh\necho 'runsc version {version}'\n")
    program.chmod(0o755)
    return program


def test_it_registers_the_runtime_and_prints_what_will_run(config: Path) -> None:
    done = install(config)
    assert done.returncode == 0, done.stderr
    path = Path(RUNSC).resolve()
    assert runtimes(config) == {
        "runsc": {"path": str(path), "runtimeArgs": [f"--platform={runsc_platform()}", "--network=none"]}
    }
    assert done.stdout.strip() == hashlib.sha256(path.read_bytes()).hexdigest()


def test_running_it_again_changes_nothing(config: Path) -> None:
    install(config)
    before = (config.read_bytes(), config.stat().st_mtime_ns)
    done = install(config)
    assert "(unchanged)" in done.stderr
    assert (config.read_bytes(), config.stat().st_mtime_ns) == before


def test_what_else_is_configured_stays(config: Path) -> None:
    config.parent.mkdir()
    mine = {"log-driver": "none", "runtimes": {"crun": {"path": "/usr/bin/crun"}}}
    config.write_text(json.dumps(mine))
    config.chmod(0o640)
    assert install(config).returncode == 0
    assert json.loads(config.read_text())["log-driver"] == "none"
    assert runtimes(config).keys() == {"crun", "runsc"}
    assert config.stat().st_mode & 0o777 == 0o640


def test_flags_that_weaken_the_wall_are_replaced_and_shown(config: Path) -> None:
    config.parent.mkdir()
    bad = {"runtimes": {"runsc": {"path": RUNSC, "runtimeArgs": ["--ignore-cgroups", "--network=host"]}}}
    config.write_text(json.dumps(bad))
    done = install(config)
    assert "--ignore-cgroups" in done.stderr
    assert not {"--ignore-cgroups", "--network=host"} & set(runtimes(config)["runsc"]["runtimeArgs"])


def test_a_link_is_registered_as_what_it_leads_to(config: Path, tmp_path: Path) -> None:
    link = tmp_path / "runsc-link"
    link.symlink_to(RUNSC)
    assert install(config, binary=link).returncode == 0
    assert runtimes(config)["runsc"]["path"] == str(Path(RUNSC).resolve())


def test_an_unknown_release_is_refused(config: Path, tmp_path: Path) -> None:
    done = install(config, binary=fake(tmp_path, "release-20990101.0"))
    assert done.returncode == 1
    assert "--force" in done.stderr
    assert not config.exists()


@pytest.mark.parametrize(
    ("version", "platform"),
    [("release-20990101.0", "systrap"), ("0.0~20210101.0", "ptrace"), ("unknown", "ptrace")],
)
def test_an_unknown_release_can_be_forced(config: Path, tmp_path: Path, version: str, platform: str) -> None:
    assert install(config, "--force", "--name", "mine", binary=fake(tmp_path, version)).returncode == 0
    assert runtimes(config)["mine"]["runtimeArgs"] == [f"--platform={platform}", "--network=none"]


@pytest.mark.parametrize("content", ["{", "[]", '{"runtimes": []}', '{"runtimes": null}'])
def test_a_configuration_that_is_none_is_left_alone(config: Path, content: str) -> None:
    config.parent.mkdir()
    config.write_text(content)
    assert install(config).returncode != 0
    assert config.read_text() == content


def test_an_absent_file_and_an_unknown_option_are_refused(config: Path) -> None:
    assert install(config, binary="/nonexistent/runsc").returncode != 0
    assert install(config, "--ignore-cgroups").returncode == 64
    assert not config.exists()
