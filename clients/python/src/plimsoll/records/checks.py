"""Does a record say what we sent and what we got? The numbers are those of docs/python-client.md.

25 the version is the one this protocol requires     26 the request digest, recomputed from what was sent
27 the result digest, recomputed from what came      28 provider, tier, environment, software, instance as stated
29 the rule's id, and the software allowed by it     30 the record's own digest
31 no session fields on a single run
"""

from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll.contract.record import RECORD_VERSION, RunRecord
from plimsoll.contract.requests import RunRequest, SoftwareRule
from plimsoll.contract.results import RunResult
from plimsoll.records.digests import (
    record_digest,
    request_digest,
    result_digest,
    software_rule_id,
)


@dataclass(frozen=True, slots=True)
class Stated:
    """What an answer says beside its record. Each must be the record's own value."""

    provider: str
    isolation: str
    environment: str
    software_identity: str
    instance: str


def check_answer(
    request: RunRequest, result: RunResult, record: RunRecord, stated: Stated
) -> tuple[str, ...]:
    """Names of the record's fields that do not hold for this single run, in the order of the checks; empty: all hold.

    `request` is the caller's own copy of what was sent, `result` what was received. Nothing here looks at the clock or
    at the floor.
    """
    if record.version != RECORD_VERSION:  # 25
        return ("version",)
    return tuple(dict.fromkeys(_faults(request, result, record, stated)))


def _faults(request: RunRequest, result: RunResult, record: RunRecord, stated: Stated) -> Iterator[str]:
    if record.request_sha256 != request_digest(request):  # 26
        yield "request_sha256"
    if record.result_sha256 != result_digest(result):  # 27
        yield "result_sha256"
    for name in ("provider", "isolation", "environment", "software_identity", "instance"):  # 28
        if getattr(record, name) != getattr(stated, name):
            yield name
    yield from _rule(request.software_rule, record)  # 29
    if record.record_sha256 != record_digest(record):  # 30
        yield "record_sha256"
    yield from _single(record)  # 31


def _rule(rule: SoftwareRule | None, record: RunRecord) -> Iterator[str]:
    if record.software_rule_id != software_rule_id(rule):
        yield "software_rule_id"
    if not software_allowed(rule, record.software_identity):
        yield "software_identity"


def _single(record: RunRecord) -> Iterator[str]:
    if record.session:
        yield "session"
    if record.sequence != 0:
        yield "sequence"
    if record.previous_sha256:
        yield "previous_sha256"
    if record.unanswered:
        yield "unanswered"


def software_allowed(rule: SoftwareRule | None, identity: str) -> bool:
    """Whether software of this identity may run under `rule`; an unknown identity (empty) meets no rule."""
    return rule is None or (identity != "" and identity in rule.identities)
