"""What a run gives back."""

from dataclasses import dataclass, field
from typing import TypeVar

from plimsoll.contract.advice import Advice
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import Kind
from plimsoll.contract.results import Artifact, Outcome, StepResult
from plimsoll.contract.tiers import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyRun:
    """What every finished run says, whose record held against our own copies of request and result.

    `isolation` is the wall it ran behind, `evidence_sha256` names the facts behind that word (`Client.evidence`).
    `duration_ms` and `start_ms` (making the sandbox) are milliseconds and, like `cancelled` and `oom_killed`, in no digest. Nor
    is `advice`: the service's findings on the run's calls, where its grant says that callers are told.

    On an error's `result` the same shape holds what came, unproven; without a record, `record.version` is 0.
    """

    id: str
    kind: Kind
    provider: str
    isolation: Tier
    cancelled: bool
    oom_killed: bool
    duration_ms: int
    start_ms: int
    environment: str
    software_identity: str
    instance: str
    evidence_sha256: str
    recorded: bool
    record: RunRecord = field(repr=False)
    request_id: str
    advice: tuple[Advice, ...] = ()

    @property
    def record_sha256(self) -> str:
        """The record's own digest."""
        return self.record.record_sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(AnyRun):
    """One finished snippet.

    `stdout` and `stderr` are the exact bytes, cut at the service's cap when `…_truncated`. Exit 124 with `timed_out` is the
    deadline, 137 with `oom_killed` memory, 130 with `cancelled` a cancel; the same numbers without are the program's own.
    """

    exit_code: int
    timed_out: bool
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    stdout_truncated: bool
    stderr_truncated: bool

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself with exit status 0."""
        return self.exit_code == 0 and not (self.timed_out or self.cancelled or self.oom_killed)

    @property
    def text(self) -> str:
        """`stdout` for people: what is not UTF-8 becomes U+FFFD. Programs should take the bytes."""
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self) -> str:
        """`stderr` for people, as `text`."""
        return self.stderr.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRun(AnyRun):
    """One finished project.

    `steps` are those that were begun, up to the first that failed; each has `command`, `exit_code`, `timed_out`, `stdout`,
    `stderr` and whether these were cut, as of a `Run`, and its `duration_ms`. `artifacts` are the files asked for that were
    there, each a `path` and its exact `content`; `artifacts_truncated` says that not all of them could be brought back.
    """

    outcome: Outcome
    outcome_detail: str
    steps: tuple[StepResult, ...]
    artifacts: tuple[Artifact, ...]
    artifacts_truncated: bool
    steps_asked: int

    @property
    def ok(self) -> bool:
        """Whether every step that was asked for ended by itself with exit status 0."""
        ended_well = self.outcome is Outcome.COMPLETED and not (self.cancelled or self.oom_killed)
        return ended_well and len(self.steps) == self.steps_asked and not any(map(_failed, self.steps))

    @property
    def exit_code(self) -> int:
        """That of the last step begun; where no step tells of a failure, 1 unless all is well."""
        code = self.steps[-1].exit_code if self.steps else 0
        return code if code or self.ok else 1

    @property
    def text(self) -> str:
        """What all steps printed on stdout, for people: what is not UTF-8 becomes U+FFFD."""
        return b"".join(step.stdout for step in self.steps).decode(errors="replace")

    @property
    def error_text(self) -> str:
        """As `text`, of stderr."""
        return b"".join(step.stderr for step in self.steps).decode(errors="replace")

    def artifact(self, path: str) -> bytes:
        """The content of the artifact asked for at `path`. Raises KeyError when it was not there, or not asked for."""
        for each in self.artifacts:
            if each.path == path:
                return each.content
        raise KeyError(path)


def _failed(step: StepResult) -> bool:
    return step.exit_code != 0 or step.timed_out


R = TypeVar("R", bound=AnyRun)
"""A snippet's run or a project's, by what was asked for."""
