"""What running produced, as bytes and numbers. Guest output is never decoded, repaired or marked here."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

from plimsoll.contract.requests import Kind

EXIT_DEADLINE = 124
EXIT_CANCELLED = 130
EXIT_MEMORY = 137
EXIT_FLOOD = 153
"""Exit codes of ours; a guest's own 124 or 137 comes without `timed_out` / `oom_killed`."""


class Outcome(IntEnum):
    """How a project or module went, by its number in the digest."""

    UNSPECIFIED = 0
    COMPLETED = 1
    SETUP_FAILED = 2
    TIMED_OUT = 3
    PROTOCOL_ERROR = 4
    RUNNER_FAILED = 5


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """Result of a snippet; `kind` is `javascript` or `python`."""

    kind: Kind
    exit_code: int = 0
    timed_out: bool = False
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)
    stdout_truncated: bool = False
    stderr_truncated: bool = False


@dataclass(frozen=True, slots=True)
class CellResult:
    """Result of one cell, and what happened to the interpreter around it."""

    exit_code: int = 0
    timed_out: bool = False
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    interpreter_started: bool = False
    interpreter_ended: bool = False
    kind: Kind = Kind.CELL


@dataclass(frozen=True, slots=True)
class StepResult:
    """One shell step of a project. `duration_ms` is in no digest."""

    command: str = field(repr=False)
    exit_code: int = 0
    timed_out: bool = False
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file brought back."""

    path: str
    content: bytes = field(repr=False)
    __pydantic_config__: ClassVar[dict[str, Any]] = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}


@dataclass(frozen=True, slots=True)
class ProjectResult:
    """Result of a project."""

    outcome: Outcome = Outcome.UNSPECIFIED
    outcome_detail: str = ""
    artifacts_truncated: bool = False
    steps: tuple[StepResult, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    kind: Kind = Kind.PROJECT


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """One row's status and outputs."""

    status: int = 0
    outputs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleResult:
    """Result of a module table."""

    outcome: Outcome = Outcome.UNSPECIFIED
    outcome_detail: str = ""
    width: int = 0
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)
    runs: tuple[ModuleRow, ...] = ()
    kind: Kind = Kind.MODULE


RunResult = ScriptResult | CellResult | ProjectResult | ModuleResult
