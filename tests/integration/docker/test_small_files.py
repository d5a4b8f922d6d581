"""Empty files are bounded too: each takes memory of the kernel's that no size of a file system counts."""

import json

import pytest

from providers.docker.recipe import INODES
from tests.integration.docker.test_two_uids import steps
from tests.support.docker import Daemon, Sandbox

MILLION = """
import errno, json, os, sys
found = {}
for place in ("/workspace", "/tmp", "/dev/shm"):
    made, why = 0, ""
    try:
        while made < 1_000_000:
            os.close(os.open(f"{place}/{made}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            made += 1
    except OSError as error:
        why = errno.errorcode[error.errno]
    found[place] = [made, why]
print(json.dumps(found))
"""


@pytest.mark.component("docker")
def test_a_million_empty_files_end_with_no_space_left(docker: Daemon, image: str) -> None:
    sandbox = Sandbox.start(docker, image, "runc")
    try:
        found = json.loads(steps(sandbox, "python3 million.py", files={"million.py": MILLION.encode()}))
    finally:
        sandbox.destroy()
    assert {place: why for place, (_, why) in found.items()} == dict.fromkeys(found, "ENOSPC")
    assert all(INODES - 10 < made < INODES for made, _ in found.values()), found
