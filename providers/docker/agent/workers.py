"""Interpreters that wait for code, so that a run does not pay for their start. Each runs one snippet and ends."""

import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from providers.docker.agent import guests, limits

_HERE = Path(__file__).parent
COMMANDS = {
    # Isolated: neither the environment nor the workspace decides what the interpreter loads before the snippet's first line.
    "python": ("/usr/bin/python3", "-I", str(_HERE / "snippet.py")),
    # Without the flag Node 18 has no `import()` in a script that is compiled here.
    "javascript": ("/usr/bin/node", "--experimental-vm-modules", str(_HERE / "snippet.js")),
}


@dataclass(frozen=True, eq=False)
class Worker:
    """A guest process that reads its program from `channel`, a stream socket, after saying one byte, and says one more then.

    Until that one nothing of the program has run. What it says later is the guest's word, like its exit status: a guest that
    lies ends its own run.
    """

    language: str
    guest: guests.Guest
    channel: socket.socket
    heard: bytearray = field(default_factory=bytearray)

    def ready(self) -> bool:
        """Wait until it waits for code; false when it has ended instead."""
        return self.channel.recv(1) != b""

    def give(self, code: bytes) -> None:
        """Hand over the whole program. A worker that is gone shows in its exit status."""
        with suppress(OSError):
            self.channel.sendall(code)
            self.channel.shutdown(socket.SHUT_WR)

    def hear(self) -> bool:
        """After `give`: one more byte; false when there will be none, also because nobody listens any more."""
        try:
            said = self.channel.recv(1)
        except OSError:
            return False
        self.heard.extend(said)
        return said != b""

    @property
    def begun(self) -> bool:
        """Whether the interpreter had the whole program and began with it."""
        return len(self.heard) > 0

    @property
    def code(self) -> int | None:
        """The exit code of a program that is through, though its process may not be; None if it only ends."""
        return self.heard[1] if len(self.heard) > 1 else None


def started(language: str) -> Worker | None:
    """A worker for `language`, or None when there is no process to be had. Raises KeyError."""
    command = _command(language)
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            return Worker(language, guests.start(command, theirs.fileno()), ours)
        except OSError:
            ours.close()
            return None


def _command(language: str) -> tuple[str, ...]:
    program, *words = COMMANDS[language]
    if language == "javascript":
        # Else the engine gives up by itself at half of that, after a long fight, and nobody can tell that it was for memory.
        words.insert(0, f"--max-old-space-size={limits.memory_mb()}")
    return program, *words


def dismiss(worker: Worker) -> None:
    """End one that is not needed: the run that begins shares its memory limit with nobody."""
    worker.channel.close()
    os.close(worker.guest.stdout)
    os.close(worker.guest.stderr)
    os.kill(worker.guest.pid, signal.SIGKILL)
