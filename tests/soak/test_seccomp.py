"""Every call that the seccomp profile refuses, let through by a profile of its own: each is noticed by the start-up probe.

`make soak` asks for it by SOAK_RUNS; tests/integration/docker/test_seccomp.py does the same with twelve of them.
"""

import ctypes
import os

import pytest

from providers.docker import syscalls
from providers.docker.recipe import seccomp_profile
from tests.support.docker import Daemon
from tests.support.seccomp import UNCONFINED, found_inside, is_noticed, letting_through

pytestmark = [
    pytest.mark.slow,
    pytest.mark.component("docker"),
    pytest.mark.skipif(
        int(os.environ.get("SOAK_RUNS", "0")) == 0,
        reason="long: `make soak` asks for it; a sample is in tests/integration/docker/test_seccomp.py",
    ),
    pytest.mark.timeout(3600),
]


def test_each_refused_call_that_is_let_through_is_noticed(docker: Daemon, image: str) -> None:
    """But for those that this kernel, or the library that makes the filter, does not know."""
    library = ctypes.CDLL("libseccomp.so.2")
    bare = found_inside(docker, image, UNCONFINED)
    lacking = {label for label, said in bare["refused"].items() if said == "ENOSYS"}
    numbers = syscalls.NUMBERS[bare["machine"]]
    names = {each.name for label, each in syscalls.refused(seccomp_profile()).items() if label not in lacking}
    names = {
        name for name in names if name in numbers and library.seccomp_syscall_resolve_name(name.encode()) >= 0
    }
    assert len(names) > 150
    missed = [
        name for name in sorted(names) if not is_noticed(found_inside(docker, image, letting_through(name)))
    ]
    assert missed == []
