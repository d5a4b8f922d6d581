"""Values as text: one line, one page, or one JSON object."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from plimsoll.client import Accepted, Output, ProjectRun, Run
from plimsoll.client.errors import MayHaveRun, PlimsollError, Refusal, RunPending, TransportError
from plimsoll.client.results import AnyRun
from plimsoll.client.streaming import StreamEvent
from plimsoll.contract.advice import Advice
from plimsoll.contract.content import file_text, stream_text
from plimsoll.contract.rest import AdviceBody, CallsBody, DescribeBody, GrantBody, RunView
from plimsoll.contract.results import Artifact, ProjectResult, ScriptResult, StepResult
from plimsoll.records.rest import result_from_body

_STREAMS = ("stdout", "stderr")


def to_json(value: object) -> str:
    """One line of JSON in ASCII, so that nothing in it can command a terminal."""
    return json.dumps(value) + "\n"


def run(found: AnyRun) -> dict[str, Any]:
    """A run as JSON: its fields, each stream and artifact with its encoding."""
    shown = asdict(found)
    if isinstance(found, ProjectRun):
        shown["outcome"] = found.outcome.name.lower()
        shown["steps"] = [asdict(step) | _streams(step) for step in found.steps]
        shown["artifacts"] = [_artifact(each) for each in found.artifacts]
        shown["exit_code"] = found.exit_code
    elif isinstance(found, Run):
        shown |= _streams(found)
    return shown | {"ran": True}


def _streams(of: Run | StepResult) -> dict[str, str]:
    shown: dict[str, str] = {}
    for name in _STREAMS:
        shown[name], shown[f"{name}_encoding"] = stream_text(getattr(of, name))
    return shown


def _artifact(artifact: Artifact) -> dict[str, str]:
    content, encoding = file_text(artifact.content)
    return {"path": artifact.path, "content": content, "content_encoding": encoding}


def summary(found: AnyRun) -> str:
    """One line: what wall, how it ended, how long it took, which record."""
    return (
        f"ran isolation={found.isolation.value} provider={found.provider} {_end(found)}"
        f" duration={found.duration_ms}ms record={found.record_sha256}"
    )


def _end(found: AnyRun) -> str:
    if isinstance(found, ProjectRun):
        not_all = " (not all)" if found.artifacts_truncated else ""
        counts = f"steps={len(found.steps)}/{found.steps_asked} artifacts={len(found.artifacts)}{not_all}"
        return f"outcome={found.outcome.name.lower()} {counts} {_exit(found, found.exit_code, found.steps)}"
    return _exit(found, found.exit_code, (found,)) if isinstance(found, Run) else ""


def _exit(found: AnyRun, exit_code: int, printed: Sequence[Run | StepResult]) -> str:
    timed_out = any(each.timed_out for each in printed)
    ends = {"deadline": timed_out, "memory": found.oom_killed, "cancelled": found.cancelled}
    cut = any(each.stdout_truncated or each.stderr_truncated for each in printed)
    return f"exit={exit_code}{_why(ends)}{' truncated' if cut else ''}"


def _why(ends: Mapping[str, bool | None]) -> str:
    return "".join(f" ({name})" for name, holds in ends.items() if holds)


def event(said: StreamEvent, *, project: bool = False) -> dict[str, Any]:
    """One event of a stream as JSON; of a project, output names its step."""
    if isinstance(said, Accepted):
        return {"event": "accepted", **asdict(said)}
    if not isinstance(said, Output):
        return {"event": "step", **asdict(said)}
    data, encoding = stream_text(said.data)
    return {"event": said.stream, "data": data, "encoding": encoding} | (
        {"step": said.step} if project else {}
    )


def view(found: RunView) -> dict[str, Any]:
    """A run that was started earlier, as JSON."""
    return found.model_dump(mode="json", exclude_none=True) | {"ran": True}


def view_output(found: RunView) -> tuple[bytes, bytes]:
    """What such a run printed; nothing where that is not kept."""
    if found.result is None:
        return b"", b""
    printed = _printed(result_from_body(found.result))
    return b"".join(each.stdout for each in printed), b"".join(each.stderr for each in printed)


def view_artifacts(found: RunView) -> tuple[Artifact, ...]:
    """What such a run gave back; nothing where that is not kept."""
    result = result_from_body(found.result) if found.result else None
    return result.artifacts if isinstance(result, ProjectResult) else ()


def _printed(result: ScriptResult | ProjectResult) -> tuple[ScriptResult | StepResult, ...]:
    return result.steps if isinstance(result, ProjectResult) else (result,)


def view_summary(found: RunView) -> str:
    """As `summary`."""
    ends = {"deadline": found.timed_out, "memory": found.oom_killed, "cancelled": found.cancelled}
    printed = _printed(result_from_body(found.result)) if found.result else ()
    cut = " truncated" if any(each.stdout_truncated or each.stderr_truncated for each in printed) else ""
    kept = "" if found.result else " (its output is not kept)"
    wall = found.isolation.value if found.isolation else "none"
    digest = found.record.record_sha256 if found.record else ""
    return (
        f"ran isolation={wall} provider={found.provider} exit={found.exit_code}{_why(ends)}{cut}"
        f"{_calls(found.calls)} duration={found.duration_ms}ms record={digest}{kept}"
    )


def advice(found: Sequence[Advice | AdviceBody]) -> list[str]:
    """A line for each finding on the run's calls. It is one line, whatever whoever answered wrote into it."""
    lines = (f"advice {each.code} {each.route}: {each.sentence}{_instead(each)}" for each in found)
    return [" ".join(line.split()) for line in lines]


def _instead(found: Advice | AdviceBody) -> str:
    return f" ({found.suggested_route})" if found.suggested_route else ""


def _calls(calls: CallsBody | None) -> str:
    """What it called by its grant, if it had one."""
    if calls is None:
        return ""
    failed = "".join(f" {code}={count}" for code, count in sorted(calls.failed.items()))
    return f" calls={calls.delivered}/{calls.sent}{failed}"


def unanswered(error: PlimsollError) -> bool:
    """Whether a question about a run got no answer: the error is about the question, and says nothing about the run."""
    about_the_run = isinstance(error, MayHaveRun | RunPending)
    return error.not_dispatched is None and isinstance(error, Refusal | TransportError) and not about_the_run


def failure(error: PlimsollError, *, running: bool, question: bool = False) -> dict[str, Any]:
    """An error as JSON; `ran` is false where that is proven or nothing was to run, else "unknown".

    `question`: it came in place of an answer about a run that was started before; then `answered` says whether it is one.
    """
    shown: dict[str, Any] = {
        "error": type(error).__name__,
        "detail": str(error),
        "not_dispatched": error.not_dispatched,
        "ran": "unknown" if running and error.not_dispatched is None else False,
        "request_id": error.request_id,
    }
    if question:
        shown["answered"] = not unanswered(error)
    if isinstance(error, Refusal):
        shown |= {"code": error.code, "retry_after": error.retry_after, "run_id": error.run_id}
    if error.result is not None:
        shown["result"] = run(error.result)
    return shown


def failure_text(shown: dict[str, Any]) -> str:
    """The same for people: first whether anything ran, or that this is not known."""
    ran = "nothing ran" if shown["ran"] is False else "may have run"
    ran = ran if shown.get("answered", True) else "no answer about this run"
    reason = f" ({shown['not_dispatched']})" if shown.get("not_dispatched") else ""
    more = f"; try again in {shown['retry_after']} s" if shown.get("retry_after") else ""
    more += f"; run {shown['run_id']}" if shown.get("run_id") else ""
    return f"{ran}{reason}: {shown['detail']}{more}"


def description(found: DescribeBody) -> str:
    """A page: the service, then a line per provider."""
    lines = [
        f"plimsoll {found.version}, protocol {found.protocol}, execution {'on' if found.execution else 'off'}",
        f"kinds: {', '.join(found.kinds) or 'none'}; floors met now: {', '.join(found.floors) or 'none'}",
    ]
    for provider in found.providers:
        why = _codes("faults", provider.faults) + _codes("shortfalls", provider.shortfalls)
        lines.append(
            f"{provider.provider}: isolation={provider.isolation.value} {provider.health}"
            f" free={provider.free}/{provider.slots} evidence={provider.evidence_sha256 or '-'}{why}"
        )
    return "\n".join(lines) + "\n"


def grants(found: Sequence[GrantBody]) -> str:
    """A table of profiles: the name, the most calls of one run, what it is for, and its routes one a line."""
    if not found:
        return "no grant profile is for this caller\n"
    named = max(len(each.name) for each in found)
    lines: list[str] = []
    for each in found:
        lines.append(
            f"{each.name:<{named}}  {each.max_calls:>6} calls  {_first_line(each.description)}".rstrip()
        )
        lines += [f"{'':<{named}}  {route}" for route in each.routes]
    return "\n".join(lines) + "\n"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _codes(name: str, codes: Sequence[str]) -> str:
    return f" {name}={','.join(codes)}" if codes else ""
