"""One audit line a run, whoever asked for it and however it ended: ids, sizes, tier, outcome, sums; never code or output."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from app.dispatch.leases import Held
from app.dispatch.outcome import Finished, payload_bytes, printed
from app.identity import Caller
from app.log import Value, audit_run
from plimsoll.contract.refusals import Refusal
from plimsoll.contract.requests import RunRequest

Say = Callable[[Finished | Refusal, Held | None], None]


def audited(caller: Caller, request: RunRequest, request_id: str) -> Say:
    """A function that writes the line of this run once its end is known."""
    common: dict[str, Any] = {
        "caller_id": caller.id,
        "caller_name": caller.name,
        "request_id": request_id,
        "trace_id": request.trace_id,
        "kind": request.payload.kind.value,
        "code_bytes": payload_bytes(request),
    }

    def say(end: Finished | Refusal, lease: Held | None) -> None:
        calls = None if lease is None else _calls(lease)
        if isinstance(end, Refusal):
            audit_run(**common, run_id=end.run_id or "", outcome=end.code.value, calls=calls)
            return
        audit_run(
            **common,
            run_id=end.run_id,
            outcome="finished",
            provider=end.provider,
            tier=end.tier.value,
            output_bytes=sum(len(each.stdout) + len(each.stderr) for each in printed(end.result)),
            exit_code=end.ended.exit_code,
            duration_ms=end.ended.duration_ms,
            start_ms=end.accepted.start_ms,
            calls=calls,
        )

    return say


def _calls(lease: Held) -> dict[str, Value]:
    """The sums of a run's calls, and the findings on them by code. Which routes they were is on the run's row."""
    trace = lease.calls()
    if trace is None:
        return {"grant_profile": lease.profile, "calls_known": False}
    failed = {f"calls_{code}": count for code, count in sorted(trace.failed.items())}
    advice: Counter[str] = Counter()
    for each in trace.advice_for(operator=True) or ():
        advice[f"advice_{each.code}"] += each.count
    return {
        "grant_profile": lease.profile,
        "calls_known": True,
        "calls_sent": trace.sent,
        "calls_delivered": trace.delivered,
        "calls_bytes_out": trace.bytes_out,
        "calls_bytes_back": trace.bytes_back,
        **failed,
        **advice,
    }
