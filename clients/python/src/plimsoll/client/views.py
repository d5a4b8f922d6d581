"""Reading what a service keeps: runs, records, evidence, its description. Each digest is recomputed before it is handed on."""

from contextlib import suppress
from typing import Any

from plimsoll.client import errors
from plimsoll.client.answers import shaped
from plimsoll.contract.evidence import evidence_digest
from plimsoll.contract.record import RunRecord
from plimsoll.contract.refusals import Reason
from plimsoll.contract.requests import PROTOCOL
from plimsoll.contract.rest import (
    DescribeBody,
    EvidenceBody,
    GrantBody,
    GrantsBody,
    ProjectResultBody,
    RecordBody,
    RunPage,
    RunView,
    ScriptResultBody,
)
from plimsoll.contract.worker import Fact
from plimsoll.records import record_digest, result_digest
from plimsoll.records.digests import RECORD_FIELDS
from plimsoll.records.rest import record_from_body, result_from_body

_STATED = ("provider", "isolation", "environment", "software_identity", "instance")


def description(answer: dict[str, Any]) -> DescribeBody:
    """What the service says it serves. Raises ProtocolMismatch (check 23), marked: nothing was to run."""
    protocol = answer.get("protocol")
    if not isinstance(protocol, int) or protocol == PROTOCOL:
        return shaped(DescribeBody, answer)
    mismatch = errors.ProtocolMismatch(
        f"the service speaks protocol {protocol}, this library {PROTOCOL}", not_dispatched=Reason.PROTOCOL
    )
    with suppress(errors.MalformedResponse):  # another protocol may describe itself in another shape
        mismatch.description = shaped(DescribeBody, answer)
    raise mismatch


def grants(answer: dict[str, Any]) -> list[GrantBody]:
    """The profiles that may be named in a request."""
    return shaped(GrantsBody, answer).grants


def record(answer: dict[str, Any]) -> RunRecord:
    """A record whose own digest holds. Raises RecordVersion, RecordMismatch."""
    return _sealed(shaped(RecordBody, answer))


def _sealed(body: RecordBody) -> RunRecord:
    found = record_from_body(body)
    if found.version not in RECORD_FIELDS:
        message = f"record version {found.version} is unknown"
        raise errors.RecordVersion(message, version=found.version)
    if record_digest(found) != found.record_sha256:
        raise _mismatch("record_sha256")
    return found


def _mismatch(*fields: str) -> errors.RecordMismatch:
    return errors.RecordMismatch(f"the record does not hold: {', '.join(fields)}", fields=fields)


def view(run_id: str, answer: dict[str, Any]) -> RunView:
    """The kept run asked for, which says the same as its record. Raises AnswerNotBound, RecordVersion, RecordMismatch."""
    found = shaped(RunView, answer)
    if found.id != run_id:
        raise errors.AnswerNotBound("the answer is about another run")
    _check_view(found)
    return found


def page(answer: dict[str, Any]) -> RunPage:
    """A page of kept runs, each checked like one. Raises RecordVersion, RecordMismatch."""
    found = shaped(RunPage, answer)
    for run in found.runs:
        _check_view(run)
    return found


def _check_view(found: RunView) -> None:
    if found.record is None:
        return
    record = _sealed(found.record)
    differing = [name for name in _STATED if getattr(found, name) != getattr(record, name)]
    if found.result is not None and _result_sha256(found.result) != record.result_sha256:
        differing.append("result_sha256")
    if differing:
        raise _mismatch(*differing)


def _result_sha256(body: ScriptResultBody | ProjectResultBody) -> str:
    try:
        return result_digest(result_from_body(body))
    except ValueError as error:
        raise errors.MalformedResponse(f"the answer's output {error}") from None


def evidence(sha256: str, answer: dict[str, Any]) -> EvidenceBody:
    """The facts that `sha256` names. Raises EvidenceMismatch when they are others."""
    found = shaped(EvidenceBody, answer)
    facts = [
        Fact(fact.name, fact.value, fact.source, fact.observed, fact.unix_ms, fact.supports)
        for fact in found.facts
    ]
    if not found.sha256 == sha256 == evidence_digest(found.provider, found.tier, facts):
        raise errors.EvidenceMismatch("the evidence is not what its digest names")
    return found
