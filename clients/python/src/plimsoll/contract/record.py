"""The run record: the service's statement of one run as digests. How it is hashed lives in `plimsoll.records`."""

from dataclasses import dataclass

RECORD_VERSION = 4


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Fields and order of records.md, "Record digest"; `record_sha256` is the digest over the others (not part of itself)."""

    version: int = RECORD_VERSION
    request_sha256: str = ""
    result_sha256: str = ""
    unanswered: str = ""
    provider: str = ""
    isolation: str = ""
    environment: str = ""
    policy: str = ""
    software_identity: str = ""
    software_rule_id: str = ""
    instance: str = ""
    started_unix_ms: int = 0
    ended_unix_ms: int = 0
    session: str = ""
    sequence: int = 0
    previous_sha256: str = ""
    record_sha256: str = ""
