"""A reader who types what a page shows: a shell that remembers what was assigned, and eyes that overlook ids and times."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.architecture.repository import ROOT

DEADLINE_S = 60

_VOLATILE = (
    (re.compile(r"plim_[A-Za-z0-9_-]{43}_[A-Za-z0-9_-]{6}"), "<token>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\b1[0-9]{12}\b"), "<unix ms>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?"), "<time>"),
    (re.compile(r"((?:duration_ms|start_ms|durationMs)\"?: ?\"?)\d+"), r"\1<n>"),
    (re.compile(r"\b\d+(?:\.\d+)? ?ms\b"), "<n> ms"),
)


class Shell:
    """A terminal in the repository's folder. What one block assigns, the next ones see."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = dict(environment)
        self._state = folder / "assigned"
        self._state.touch()
        self._last = 0

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a block; it ends at the first command that fails."""
        return self._bash(f"set -euo pipefail\n{script}")

    def type(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run one command, which may ask for `$?` of the one before."""
        return self._bash(f"(exit {self._last})\n{command}")

    def python(self, program: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program, warnings as errors."""
        return self._start(["python", "-W", "error", "-c", program])

    def _bash(self, script: str) -> subprocess.CompletedProcess[str]:
        keep = f"trap 'code=$?; export -p > \"{self._state}\"; exit $code' EXIT"
        done = self._start(["bash", "-c", f'set -a\n. "{self._state}"\n{keep}\n{script}'])
        self._last = done.returncode
        return done

    def _start(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )


def exchanges(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block (`$ `, continued with `> `), each with the output shown under it."""
    command: list[str] = []
    output: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield "\n".join(command), "\n".join(output)
            command, output = [line[2:]], []
        elif line.startswith("> ") and not output:
            command.append(line[2:])
        else:
            output.append(line)
    if command:
        yield "\n".join(command), "\n".join(output)


def looks_like(shown: str, came: str) -> bool:
    """Whether `came` is what was shown, apart from ids, digests and times; `…` stands for anything, alone for any lines."""
    pattern = "".join(_pattern(line) for line in steady(shown).splitlines())
    return re.fullmatch(pattern, steady(came) + "\n" if came.strip() else "", re.DOTALL) is not None


def _pattern(line: str) -> str:
    if line == "…":
        return r"(?:[^\n]*\n)*?"
    return ".*?".join(map(re.escape, line.split("…"))) + r"\n"


def steady(text: str) -> str:
    """The text with a word in place of everything that differs from run to run."""
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
