"""Values as text: one line, one page, or one JSON object."""

import base64
import json
from dataclasses import asdict
from typing import Any

from plimsoll.client import Accepted, Output, Run
from plimsoll.client.errors import MayHaveRun, PlimsollError, Refusal, RunPending, TransportError
from plimsoll.contract.rest import DescribeBody, RunView
from plimsoll.records.rest import result_from_body


def to_json(value: object) -> str:
    """One line of JSON in ASCII, so that nothing in it can command a terminal."""
    return json.dumps(value) + "\n"


def _stream(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def run(found: Run) -> dict[str, Any]:
    """A run as JSON: the fields of `Run`, each stream with its encoding."""
    shown = asdict(found)
    for name in ("stdout", "stderr"):
        shown[name], shown[f"{name}_encoding"] = _stream(getattr(found, name))
    return shown | {"ran": True}


def summary(found: Run) -> str:
    """One line: what wall, how it ended, how long it took, which record."""
    ends = {"deadline": found.timed_out, "memory": found.oom_killed, "cancelled": found.cancelled}
    why = "".join(f" ({name})" for name, holds in ends.items() if holds)
    cut = " truncated" if found.stdout_truncated or found.stderr_truncated else ""
    return (
        f"ran isolation={found.isolation.value} provider={found.provider} exit={found.exit_code}{why}{cut}"
        f" duration={found.duration_ms}ms record={found.record_sha256}"
    )


def event(said: Accepted | Output) -> dict[str, Any]:
    """One event of a stream as JSON."""
    if isinstance(said, Accepted):
        return {"event": "accepted", **asdict(said)}
    data, encoding = _stream(said.data)
    return {"event": said.stream, "data": data, "encoding": encoding}


def view(found: RunView) -> dict[str, Any]:
    """A run that was started earlier, as JSON."""
    return found.model_dump(mode="json", exclude_none=True) | {"ran": True}


def view_output(found: RunView) -> tuple[bytes, bytes]:
    """What such a run printed; nothing where that is not kept."""
    if found.result is None:
        return b"", b""
    result = result_from_body(found.result)
    return result.stdout, result.stderr


def view_summary(found: RunView) -> str:
    """As `summary`."""
    ends = {"deadline": found.timed_out, "memory": found.oom_killed, "cancelled": found.cancelled}
    why = "".join(f" ({name})" for name, holds in ends.items() if holds)
    result = found.result
    cut = " truncated" if result and (result.stdout_truncated or result.stderr_truncated) else ""
    kept = "" if result else " (its output is not kept)"
    wall = found.isolation.value if found.isolation else "none"
    digest = found.record.record_sha256 if found.record else ""
    return (
        f"ran isolation={wall} provider={found.provider} exit={found.exit_code}{why}{cut}"
        f" duration={found.duration_ms}ms record={digest}{kept}"
    )


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
        faults = f" faults={','.join(provider.faults)}" if provider.faults else ""
        lines.append(
            f"{provider.provider}: isolation={provider.isolation.value} {provider.health}"
            f" free={provider.free}/{provider.slots} evidence={provider.evidence_sha256 or '-'}{faults}"
        )
    return "\n".join(lines) + "\n"
