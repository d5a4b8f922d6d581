"""Values of ours as the answer messages of the compatible wire API in proto3 JSON; pure.

Names are lowerCamelCase, bytes base64, integers of 64 bits strings. A scalar at its zero value could be left out; it is
written all the same, so that nobody has to know which; a message or a number that we do not have is left out.
"""

import base64
from dataclasses import fields
from typing import Any

from pydantic.alias_generators import to_camel

from app.dispatch.admission import Candidate
from app.dispatch.outcome import Finished
from plimsoll.contract.advice import Advice, AdviceCode
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import PROTOCOL, Kind
from plimsoll.contract.results import ProjectResult, ScriptResult, StepResult
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Environment, Resources

Json = dict[str, Any]

_INT64 = frozenset({"started_unix_ms", "ended_unix_ms", "sequence"})
_REPEATED = AdviceCode.REPEATED_READ.value


def run_response(run: Finished) -> Json:
    """RunResponse of a finished run."""
    return {
        "sandbox": run.provider,
        "isolation": run.tier.value,
        "durationMs": str(run.ended.duration_ms),
        "softwareIdentity": run.record.software_identity,
        "environment": run.record.environment,
        "instance": run.accepted.instance,
        run.result.kind.value: _result(run.result) | {"advice": [_advice(each) for each in run.advice or ()]},
        "record": _record(run.record),
    }


def _result(result: ScriptResult | ProjectResult) -> Json:
    return _project(result) if isinstance(result, ProjectResult) else _outputs(result)


def _advice(found: Advice) -> Json:
    """A finding. Methods stand beside their routes; the words of `pattern`, `severity` and `remedy` are ours."""
    repeated = found.code == _REPEATED
    method, _, route = found.route.partition(" ")
    suggested_method, _, suggested = found.suggested_route.partition(" ")
    return {
        "pattern": found.code,
        "severity": "info",
        "remedy": "keep_answer" if repeated else "list_route" if suggested else "batch_route",
        "method": method,
        "route": route,
        "detail": found.sentence,
        "suggestedMethod": suggested_method,
        "suggestedRoute": suggested,
        # Of calls on single items, one would have been needed in any case.
        "extraCalls": found.count if repeated else found.count - 1,
        "addedLatencyMs": str(found.ms),
        "bytesMoved": str(found.bytes_back),
    }


def _outputs(result: ScriptResult | StepResult) -> Json:
    return {
        "stdout": _bytes(result.stdout),
        "stderr": _bytes(result.stderr),
        "exitCode": result.exit_code,
        "timedOut": result.timed_out,
        "stdoutTruncated": result.stdout_truncated,
        "stderrTruncated": result.stderr_truncated,
    }


def _project(result: ProjectResult) -> Json:
    return {
        "outcome": f"PROJECT_OUTCOME_{result.outcome.name}",
        "outcomeDetail": result.outcome_detail,
        "steps": [
            {"command": step.command, "durationMs": str(step.duration_ms)} | _outputs(step)
            for step in result.steps
        ],
        "artifacts": [{"path": each.path, "content": _bytes(each.content)} for each in result.artifacts],
        "artifactsTruncated": result.artifacts_truncated,
    }


def _bytes(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _record(record: RunRecord) -> Json:
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return {to_camel(name): str(value) if name in _INT64 else value for name, value in values.items()}


def describe_response(first: Candidate | None, *, broker: bool = False) -> Json:
    """DescribeResponse: `first` of the configured providers as it stands now, None when execution is off.

    `broker`: there is one that serves, for kinds whose guests can call it.
    """
    info = first.info if first else None
    environments = info.environments if info else {}
    described: Json = {
        "sandbox": first.provider if first else "",
        "isolation": (first.tier if first else Tier.NONE).value,
        "protocol": PROTOCOL,
        "supportsProject": Kind.PROJECT in environments,
        "supportsModule": Kind.MODULE in environments,
        "supportsJavascriptGrants": broker and _calls(environments.get(Kind.JAVASCRIPT)),
        "supportsProjectGrants": broker and _calls(environments.get(Kind.PROJECT)),
        "supportsSessions": False,
        "policy": info.policy if info else "",
    }
    for kind in (Kind.JAVASCRIPT, Kind.PROJECT, Kind.MODULE):
        if environment := environments.get(kind):
            described[f"{kind.value}Environment"] = _environment(environment)
    if info:
        described["resources"] = _resources(info.resources)
    return described


def _calls(environment: Environment | None) -> bool:
    return environment is not None and environment.grants


def _environment(environment: Environment) -> Json:
    return {
        "identity": environment.identity,
        "softwareIdentity": environment.software_identity,
        "maxTimeoutMs": environment.max_timeout_ms,
        "languages": list(environment.languages),
    }


def _resources(resources: Resources) -> Json:
    limits = {
        "memoryMb": resources.memory_mb,
        "cpus": resources.cpus,
        "pids": resources.pids,
        "diskMb": resources.disk_mb,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}
