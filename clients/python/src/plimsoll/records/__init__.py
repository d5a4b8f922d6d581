"""Run records: what a service states about one run, as digests that anybody can recompute.

    request_digest    what was sent            result_digest     what came back
    record_digest     the record itself        seal_record       a record with its own digest filled in
    make_record       the sealed record of one finished run
    check_answer      which statements of an answer do not hold against our own copies

Everything here is pure: values in, hex out. `python -m plimsoll.records` recomputes a vector file or one answer's record.
"""

from plimsoll.records.checks import Stated, check_answer, software_allowed
from plimsoll.records.digests import (
    owner_digest,
    record_digest,
    request_digest,
    result_digest,
    session_fingerprint,
    software_rule_id,
)
from plimsoll.records.seal import make_record, seal_record

__all__ = [
    "Stated",
    "check_answer",
    "make_record",
    "owner_digest",
    "record_digest",
    "request_digest",
    "result_digest",
    "seal_record",
    "session_fingerprint",
    "software_allowed",
    "software_rule_id",
]
