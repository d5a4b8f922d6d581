"""What the service writes about itself: one JSON object a line on stderr, sizes and ids, never what a caller sent.

Three kinds of lines are ours: `event` (anything that happens), `refused` (one line a refusal, summarised after ten a second
of one kind) and `audit_run` (one line a run). Lines of other libraries keep their logger, level and the type and place of
their exception; their text only where it is a constant of theirs. Every string is cut, and leaves here as ASCII with control
characters escaped, so that nothing a caller chose can end a line or colour a terminal.
"""

import atexit
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import IO

from typing_extensions import override

Value = str | int | float | bool | None
Clock = Callable[[], float]

TEXT_LIMIT = 256
PER_SECOND = 10
KINDS_LIMIT = 64
WITHHELD = "[withheld]"
_SECRET_NAMES = frozenset(
    {"authorization", "body", "code", "content", "output", "session_id", "stderr", "stdout", "token"}
)
_FIELDS = "plimsoll_fields"

_encode = json.JSONEncoder(separators=(",", ":")).encode

logger = logging.getLogger("plimsoll")


def configure_logging(stream: IO[str] | None = None, level: int = logging.INFO) -> None:
    """Send everything, uvicorn's loggers included, to `stream` (stderr) as JSON lines; the access log stays off."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        other = logging.getLogger(name)
        other.handlers.clear()
        other.propagate = name != "uvicorn.access"
        # Their start and end are said by our `serving`, `ready` and `draining`.
        other.setLevel(max(level, logging.WARNING))
    # It says each request we send, which is no news.
    logging.getLogger("httpx2").setLevel(max(level, logging.WARNING))
    logging.captureWarnings(capture=True)


def event(source: logging.Logger, name: str, /, *, level: int = logging.INFO, **fields: Value) -> None:
    """One line named `name`. A field whose name says it holds code, output or a secret is written as `[withheld]`."""
    if source.isEnabledFor(level):
        # As `source.log` does, without the search through the stack for a place that is never written.
        record = logging.LogRecord(source.name, level, "", 0, name, (), None)
        setattr(record, _FIELDS, fields)
        source.handle(record)


def failure(source: logging.Logger, name: str, error: BaseException, /, **fields: Value) -> None:
    """One line about an exception of ours: its type and place, never its message."""
    event(source, name, level=logging.ERROR, **fields, **describe(error))


def describe(error: BaseException) -> dict[str, Value]:
    """Type and innermost place (`file.py:line`) of an exception. Messages stay out: they may repeat what a caller sent."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    place = f"{PurePath(frames[0].filename).name}:{frames[0].lineno}" if frames else "?"
    return {"error": type(error).__name__, "place": place}


def audit_run(
    *,
    caller_id: str,
    caller_name: str,
    request_id: str,
    run_id: str,
    trace_id: str,
    kind: str,
    outcome: str,
    provider: str = "",
    tier: str = "",
    code_bytes: int = 0,
    output_bytes: int = 0,
    exit_code: int | None = None,
    duration_ms: int | None = None,
    start_ms: int | None = None,
    calls: Mapping[str, Value] | None = None,
) -> None:
    """One line about one run: who, what kind and size, behind which wall, how it ended. Never the code or the output.

    `calls` are the sums of a run with a grant.
    """
    event(
        logger,
        "run",
        level=logging.INFO,
        caller_id=caller_id,
        caller_name=caller_name,
        request_id=request_id,
        run_id=run_id,
        trace_id=trace_id,
        kind=kind,
        outcome=outcome,
        provider=provider,
        tier=tier,
        code_bytes=code_bytes,
        output_bytes=output_bytes,
        exit_code=exit_code,
        duration_ms=duration_ms,
        start_ms=start_ms,
        **(calls or {}),
    )


def refused(
    code: str, *, status: int, reason: str | None, request_id: str, peer: str = "", area: str = ""
) -> None:
    """One line about a refusal; after ten a second of one code they are only counted."""
    fields: dict[str, Value] = {"status": status, "reason": reason, "request_id": request_id}
    _refusals.note(code, fields | {"peer": peer, "area": area})


class Summariser:
    """Lets `per_second` lines of a kind through each second and counts the others. Bounded, and safe across threads.

    The count of a past second is written with the next line of any kind, or by `flush`.
    """

    def __init__(
        self,
        write: Callable[[str, dict[str, Value]], None],
        *,
        clock: Clock = time.monotonic,
        per_second: int = PER_SECOND,
        kinds: int = KINDS_LIMIT,
    ) -> None:
        self._write, self._clock, self._per_second, self._kinds = write, clock, per_second, kinds
        self._second = int(clock())
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()

    def note(self, kind: str, fields: dict[str, Value]) -> None:
        """Write one line about `kind`, or count it."""
        with self._lock:
            self._turn_over()
            if kind not in self._seen and len(self._seen) >= self._kinds:
                kind = "other"
            self._seen[kind] = seen = self._seen.get(kind, 0) + 1
            if seen <= self._per_second:
                self._write(kind, fields)

    def flush(self) -> None:
        """Write what is only counted so far."""
        with self._lock:
            self._summarise()

    def _turn_over(self) -> None:
        now = int(self._clock())
        if now != self._second:
            self._summarise()
            self._second = now

    def _summarise(self) -> None:
        for kind, seen in self._seen.items():
            if seen > self._per_second:
                self._write(kind, {"more": seen - self._per_second})
        self._seen.clear()


class JsonLines(logging.Formatter):
    """One record, one line of ASCII JSON."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Value] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
        }
        fields: dict[str, Value] | None = getattr(record, _FIELDS, None)
        if fields is None:
            line |= _foreign(record)
        else:
            line["event"] = _short(str(record.msg))
            line |= {name: _safe(name, value) for name, value in fields.items()}
        return _encode(line).replace("\x7f", "\\u007f")


def _safe(name: str, value: Value) -> Value:
    if name in _SECRET_NAMES:
        return WITHHELD
    return _short(value) if isinstance(value, str) else value


def _short(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"


def _foreign(record: logging.LogRecord) -> dict[str, Value]:
    """A line of another library. Its arguments, and text it composed itself, may hold anything, so they stay out."""
    line: dict[str, Value] = {"event": "foreign", "logger": _short(record.name)}
    if record.name.startswith("uvicorn") and isinstance(record.msg, str):
        line["template"] = _short(record.msg.strip().partition("\n")[0])
    if record.exc_info and record.exc_info[1] is not None:
        line |= describe(record.exc_info[1])
    return line


def _write_refusal(kind: str, fields: dict[str, Value]) -> None:
    logger.info("refused", extra={_FIELDS: {"refusal": kind, **fields}})


_refusals = Summariser(_write_refusal)
atexit.register(_refusals.flush)
