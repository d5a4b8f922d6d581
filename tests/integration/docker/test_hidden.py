"""What a guest sees of the host: no resolver of it anywhere, and under runc nothing of what the kernel would tell."""

import json
import os
from pathlib import Path

import pytest

from providers.docker import hidden
from providers.docker.recipe import NO_RESOLVER
from tests.integration.docker.conftest import Start
from tests.integration.docker.test_two_uids import steps
from tests.support.docker import Daemon, Sandbox

LOOK = """
import json, os, sys
def said(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else open(path, "rb", buffering=0).read(1000).decode("latin-1")
    except OSError as error:
        return error.errno
print(json.dumps({path: said(path) for path in json.load(open("paths.json"))}))
"""
ORDINARY = """
const os = require('os');
console.log(os.cpus().length > 0, os.totalmem() > 0, os.freemem() > 0, os.uptime() > 0, os.loadavg().length);
console.log(os.release() !== '', os.version() !== '', process.memoryUsage().rss > 0);
"""
PYTHON = """
import multiprocessing, os, platform, resource, shutil, threading, uuid
print(os.cpu_count() > 0, len(os.sched_getaffinity(0)) > 0, os.sysconf("SC_PHYS_PAGES") > 0, platform.platform() != "")
print(shutil.disk_usage("/tmp").total > 0, uuid.uuid4() != uuid.uuid1(), multiprocessing.cpu_count() > 0)
"""


def look(sandbox: Sandbox, *paths: str) -> dict[str, object]:
    files = {"look.py": LOOK.encode(), "paths.json": json.dumps(paths).encode()}
    found: dict[str, object] = json.loads(steps(sandbox, "python3 look.py", files=files))
    return found


def test_nothing_of_the_hosts_resolver_is_there(start: Start) -> None:
    """Not its name servers, its search domains or its options."""
    assert Path("/etc/resolv.conf").read_text().split() != list(NO_RESOLVER)
    found = look(start(), "/etc/resolv.conf", "/etc/hosts", "/etc/hostname")
    assert str(found["/etc/resolv.conf"]).rstrip("\n").split("\n") == list(NO_RESOLVER)
    assert found["/etc/hostname"] == "sandbox\n"
    assert os.uname().nodename not in str(found["/etc/hosts"])


@pytest.mark.component("docker")
def test_what_the_kernel_would_tell_of_the_host_is_empty(docker: Daemon, image: str) -> None:
    present = [path for path in hidden.PATHS if Path(path).exists()]
    telling = {path for path in present if not Path(path).is_dir() or any(Path(path).iterdir())}
    assert len(telling) > 40
    sandbox = Sandbox.start(docker, image, "runc")
    try:
        found = look(sandbox, *present)
    finally:
        sandbox.destroy()
    assert {path: said for path, said in found.items() if said not in ("", [])} == {}


def test_programs_that_ask_for_processors_memory_and_time_get_answers(start: Start) -> None:
    files = {"a.js": ORDINARY.encode(), "a.py": PYTHON.encode()}
    said = steps(start(), "node a.js", "python3 a.py", files=files).decode()
    assert "false" not in said.lower(), said
