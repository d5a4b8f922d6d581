"""When a provider that does not answer is given up."""

import asyncio
import socket
import subprocess
from contextlib import closing
from typing import cast

import pytest
from typing_extensions import override

from app.dispatch.link import WorkerLink
from app.dispatch.supervisor import ProviderProcess, ProviderSupervisor


class Process(ProviderProcess):
    """A process that is only noted to be killed."""

    killed = 0

    @override
    def kill_group(self) -> None:
        self.killed += 1


class Scripted(WorkerLink):
    """A link whose questions are answered by a script, and which ends behind it."""

    def __init__(self, *script: bool) -> None:
        super().__init__()
        self.script = list(script)

    @override
    async def answers(self) -> bool:
        if not self.script:
            raise asyncio.CancelledError
        return self.script.pop(0)


@pytest.mark.parametrize(
    ("script", "killed"),
    [((False,) * 3, 0), ((False,) * 4, 1), ((False, False, False, True) * 3, 0), ((False,) * 8, 2)],
)
async def test_four_questions_in_a_row_without_an_answer_end_a_provider(
    script: tuple[bool, ...], killed: int
) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        process = Process("wasm", {}, "none", cast("subprocess.Popen[bytes]", None), sock)
        supervisor = ProviderSupervisor(process, link=Scripted(*script), ping_s=0)
        with pytest.raises(asyncio.CancelledError):
            await supervisor._ping()
    assert process.killed == killed
