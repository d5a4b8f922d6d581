"""Making records: the service's side."""

from dataclasses import replace

from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import RunRequest
from plimsoll.contract.results import RunResult
from plimsoll.records.checks import Stated
from plimsoll.records.digests import record_digest, request_digest, result_digest, software_rule_id


def seal_record(record: RunRecord) -> RunRecord:
    """The same record with `record_sha256` filled in. Raises UnknownRecordVersion."""
    return replace(record, record_sha256=record_digest(record))


def make_record(
    request: RunRequest,
    result: RunResult,
    stated: Stated,
    *,
    policy: str,
    started_unix_ms: int,
    ended_unix_ms: int,
    request_sha256: str | None = None,
) -> RunRecord:
    """The sealed record of one finished run outside a session.

    `stated` is what the answer says beside the record; `policy` the digest of the sandbox policy in force or empty;
    the two times are Unix milliseconds. `request_sha256` is the request's digest, where it was made before.
    """
    return seal_record(
        RunRecord(
            request_sha256=request_sha256 or request_digest(request),
            result_sha256=result_digest(result),
            provider=stated.provider,
            isolation=stated.isolation,
            environment=stated.environment,
            policy=policy,
            software_identity=stated.software_identity,
            software_rule_id=software_rule_id(request.software_rule),
            instance=stated.instance,
            started_unix_ms=started_unix_ms,
            ended_unix_ms=ended_unix_ms,
        )
    )
