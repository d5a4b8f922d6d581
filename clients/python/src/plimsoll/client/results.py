"""What a run gives back."""

from dataclasses import dataclass, field

from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run whose record held against our own copies of request and result.

    `isolation` is the wall it ran behind, `evidence_sha256` names the facts behind that word (`Client.evidence`).
    `stdout` and `stderr` are the exact bytes, cut at the service's cap when `…_truncated`. Exit 124 with `timed_out` is the
    deadline, 137 with `oom_killed` memory, 130 with `cancelled` a cancel; the same numbers without are the program's own.
    `duration_ms` and `start_ms` (making the sandbox) are milliseconds and, like `cancelled` and `oom_killed`, in no digest.

    On an error's `result` the same shape holds what came, unproven; without a record, `record.version` is 0.
    """

    id: str
    kind: Kind
    provider: str
    isolation: Tier
    exit_code: int
    timed_out: bool
    cancelled: bool
    oom_killed: bool
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    stdout_truncated: bool
    stderr_truncated: bool
    duration_ms: int
    start_ms: int
    environment: str
    software_identity: str
    instance: str
    evidence_sha256: str
    recorded: bool
    record: RunRecord = field(repr=False)
    request_id: str

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

    @property
    def record_sha256(self) -> str:
        """The record's own digest."""
        return self.record.record_sha256
