"""What a runner still uses after its run, as the kernel tells it; cheap, and nothing that the runner says.

A run that is over has given its memory back and computes no more. A runner of which that is not true is not the one that was
confined: somebody else's code is at work in it.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Final

CPU_NS: Final = 20_000_000
"""Processor time of one rest: the ticker's last ticks need less than 5 ms."""
MEMORY_BYTES: Final = 64 << 20
"""Private memory beyond what the runner began with: what is kept for the next VM and the heap need less than 10 MiB."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PROCESS_CLOCK: Final = 2


def cpu_ns(pid: int) -> int:
    """Processor time that all threads of a process used; 0 when it is gone."""
    with contextlib.suppress(OSError):
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    return 0


def private_bytes(pid: int) -> int:
    """Memory in use that no file stands behind, pages shared with the fork server included; 0 when the process is gone."""
    with contextlib.suppress(OSError):
        _, resident, of_files, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        return (int(resident) - int(of_files)) * _PAGE
    return 0
