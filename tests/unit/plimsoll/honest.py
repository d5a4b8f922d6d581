"""A service that tells the truth, as a function: the answer to a request, for tests that then change one thing."""

import base64
import json
from typing import Any

from plimsoll.contract.evidence import evidence_digest
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import PROTOCOL, JavaScript, Kind, RunRequest
from plimsoll.contract.rest import RecordBody, RunBody
from plimsoll.contract.results import Artifact, ProjectResult, ScriptResult, StepResult
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Fact
from plimsoll.records import Stated, make_record, seal_record
from plimsoll.records.rest import request_from_body

NOW = 1_800_000_000_000
FACTS = (Fact("seccomp", "filter", "runner", "status file", 1_790_000_000_000, Tier.PROCESS),)
EVIDENCE = evidence_digest("wasm", Tier.PROCESS, FACTS)
REQUEST = RunRequest(JavaScript("console.log(6 * 7)"))


def request_of(body: bytes) -> RunRequest:
    """The request in a body of `POST /v1/runs`."""
    return request_from_body(RunBody.model_validate_json(body))


def run_answer(
    request: RunRequest = REQUEST,
    *,
    now: int = NOW,
    stdout: bytes = b"42\n",
    tier: str = "process",
    instance: str = "wasm-vm:" + "1" * 32,
    exit_code: int = 0,
) -> dict[str, Any]:
    """The answer to `request`, run at `now` (Unix ms) for 3 ms."""
    kind = Kind(request.payload.kind)
    result = ScriptResult(kind, exit_code, stdout=stdout, stderr=b"")
    said = {"kind": kind.value, "exit_code": exit_code, "timed_out": False, **streams(stdout)}
    return _answer(request, result, said, now=now, tier=tier, instance=instance)


def project_answer(request: RunRequest, result: ProjectResult, **how: Any) -> dict[str, Any]:
    """The answer to a project; `how` as of `run_answer`."""
    facts: dict[str, Any] = {"now": NOW, "tier": "process", "instance": "docker-container:" + "1" * 64} | how
    said = {
        "kind": "project",
        "outcome": result.outcome.name.lower(),
        "outcome_detail": result.outcome_detail,
        "artifacts_truncated": result.artifacts_truncated,
        "steps": [_step(step) for step in result.steps],
        "artifacts": [_artifact(each) for each in result.artifacts],
    }
    return _answer(request, result, said, **facts)


def _step(step: StepResult) -> dict[str, Any]:
    own = {name: getattr(step, name) for name in ("command", "exit_code", "timed_out", "duration_ms")}
    cut = {"stdout_truncated": step.stdout_truncated, "stderr_truncated": step.stderr_truncated}
    return own | streams(step.stdout, step.stderr) | cut


def _artifact(artifact: Artifact) -> dict[str, Any]:
    text, encoding = content(artifact.content)
    return {"path": artifact.path, "content": text, "content_encoding": encoding}


def _answer(
    request: RunRequest,
    result: ScriptResult | ProjectResult,
    said: dict[str, Any],
    *,
    now: int,
    tier: str,
    instance: str,
) -> dict[str, Any]:
    software = request.software_rule.identities[0] if request.software_rule else "soft:1"
    stated = Stated("wasm", tier, "sha256:" + "e" * 64, software, instance)
    record = make_record(request, result, stated, policy="", started_unix_ms=now, ended_unix_ms=now + 3)
    return {
        "id": "a" * 32,
        "provider": "wasm",
        "isolation": tier,
        "evidence_sha256": EVIDENCE,
        "environment": stated.environment,
        "software_identity": software,
        "instance": instance,
        "duration_ms": 3,
        "start_ms": 1,
        "cancelled": False,
        "oom_killed": False,
        "recorded": True,
        "result": said,
        "record": {name: getattr(record, name) for name in RecordBody.model_fields},
    }


def content(data: bytes) -> tuple[str, str]:
    """Bytes as text and encoding."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def streams(stdout: bytes, stderr: bytes = b"") -> dict[str, Any]:
    """The stream fields of a result with these streams."""
    (out, out_encoding), (err, err_encoding) = content(stdout), content(stderr)
    return {
        "stdout": out,
        "stdout_encoding": out_encoding,
        "stdout_truncated": False,
        "stderr": err,
        "stderr_encoding": err_encoding,
        "stderr_truncated": False,
    }


def resealed(answer: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The same answer whose record says something else, with a digest that fits it."""
    record = seal_record(RunRecord(**answer["record"] | changes))
    return answer | {"record": {name: getattr(record, name) for name in RecordBody.model_fields}}


def description(protocol: int = PROTOCOL) -> dict[str, Any]:
    """What the service says of itself."""
    return {
        "service": "plimsoll",
        "version": "0.1.0",
        "protocol": protocol,
        "execution": True,
        "provider": "wasm",
        "isolation": "process",
        "kinds": ["javascript"],
        "floors": ["process"],
        "limits": {
            "code_bytes": 1,
            "body_bytes": 1,
            "output_bytes": 1,
            "timeout_default_ms": 1,
            "timeout_ceiling_ms": 1,
        },
        "providers": [],
    }


def evidence() -> dict[str, Any]:
    """The evidence that EVIDENCE names."""
    facts = [
        {
            "name": fact.name,
            "value": fact.value,
            "source": fact.source,
            "observed": fact.observed,
            "unix_ms": fact.unix_ms,
            "supports": fact.supports.value,
        }
        for fact in FACTS
    ]
    return {"sha256": EVIDENCE, "provider": "wasm", "tier": "process", "facts": facts}


def view(answer: dict[str, Any]) -> dict[str, Any]:
    """The same run as kept."""
    kept = {name: value for name, value in answer.items() if name not in {"recorded", "result"}}
    times = {"created_unix_ms": NOW, "ended_unix_ms": NOW + 3, "settled": True, "trace_id": ""}
    return kept | times | {"state": "finished", "kind": "javascript", "exit_code": 0, "timed_out": False}


def event(name: str, value: object) -> bytes:
    """One event of a stream."""
    return f"event: {name}\ndata: {json.dumps(value)}\n\n".encode()


def accepted(answer: dict[str, Any]) -> bytes:
    """The first event of this run's stream."""
    return event(
        "accepted", {name: answer[name] for name in ("id", "provider", "isolation", "evidence_sha256")}
    )


def chunk(data: bytes, stream: str = "stdout", **more: Any) -> bytes:
    """One event of output."""
    text, encoding = content(data)
    return event(stream, {"data": text, "encoding": encoding} | more)


def step_end(number: int, step: StepResult) -> bytes:
    """The event that ends a project's step."""
    names = ("exit_code", "timed_out", "stdout_truncated", "stderr_truncated", "duration_ms")
    return event("step", {"step": number} | {name: getattr(step, name) for name in names})


def stream_events(answer: dict[str, Any], *chunks: bytes) -> list[bytes]:
    """The events of this run's stream, its stdout in these pieces."""
    return [accepted(answer), *map(chunk, chunks), event("result", answer)]


def pending(answer: dict[str, Any]) -> dict[str, Any]:
    """The same run while it goes on."""
    known = ("id", "provider", "isolation", "evidence_sha256", "environment", "software_identity")
    times = {"created_unix_ms": NOW, "settled": False, "trace_id": ""}
    return {name: answer[name] for name in known} | times | {"state": "starting", "kind": "javascript"}


def problem(code: str, status: int, reason: str | None, **more: Any) -> dict[str, Any]:
    """A problem answer's body."""
    body = {"type": "about:blank", "title": code, "status": status, "detail": "No.", "code": code, **more}
    return body | ({"not_dispatched": {"reason": reason}} if reason else {})


def dumped(value: object) -> bytes:
    """JSON bytes."""
    return json.dumps(value).encode()
