"""The memory that the agent believes to have is the least that the kernel admits."""

from pathlib import Path

import pytest

from providers.docker.agent.limits import memory_mb

HOST = "MemTotal:       24684084 kB\nMemFree: 1 kB\n"
MAX = "sys/fs/cgroup/memory.max"
LIMIT = "sys/fs/cgroup/memory/memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/meminfo": HOST, LIMIT: "536870912\n"}, 512),
        ({"proc/meminfo": HOST, MAX: "134217728\n"}, 128),
        ({"proc/meminfo": "MemTotal: 524288 kB\n", LIMIT: "9223372036854775807\n"}, 512),
        ({"proc/meminfo": "MemTotal: 262144 kB\n", MAX: "max\n"}, 256),
        ({}, 512),
    ],
)
def test_it_is_the_least_of_what_is_said(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert memory_mb(tmp_path) == expected
