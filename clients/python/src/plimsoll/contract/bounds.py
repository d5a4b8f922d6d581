"""Every size, count and pattern a request must keep, as constants and pure checks used by service and clients alike.

A check returns the broken rule as one phrase (without the value), or None. Source: the published limits,
which the compatible wire API and the REST API share.
"""

import re

KIB = 1024
MIB = 1024 * KIB

CODE_BYTES = 256 * KIB
FILES = 200
FILES_BYTES = 4 * MIB
STEPS = 20
STEP_BYTES = 16 * KIB
ARTIFACTS = 100
ARTIFACTS_BYTES = 8 * MIB
PATH_BYTES = 1024
MODULE_ROWS = 100_000
MODULE_WIDTH = 64
MODULE_STEPS = 1_000_000
SOFTWARE_IDENTITIES = 32
OUTPUT_CAP_BYTES = 64 * KIB
OUTPUT_FLOOD_FACTOR = 16
TIMEOUT_DEFAULT_MS = 30_000
TIMEOUT_CEILING_MS = 300_000
BODY_BYTES = 16 * MIB
NESTING = 32

TRACE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
SOFTWARE_IDENTITY = re.compile(r"[A-Za-z0-9._:/@+-]{1,256}")
REQUEST_ID = re.compile(r"[0-9a-f]{32}")
RUN_ID = re.compile(r"[0-9a-f]{32}")
SHA256 = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[a-z0-9-]{1,64}")
INSTANCE = re.compile(r"[a-z][a-z0-9-]{0,31}:[A-Za-z0-9._:-]{1,127}")
MODEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def text_rule(value: str, *, limit: int, empty_ok: bool = False) -> str | None:
    """Rule broken by a piece of source text: not empty, valid Unicode, no NUL, at most `limit` bytes of UTF-8."""
    if not value and not empty_ok:
        return "must not be empty"
    if "\x00" in value:
        return "must hold no NUL character"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must be valid Unicode without lone surrogates"
    return f"must be at most {limit} bytes of UTF-8" if size > limit else None


def code_rule(code: str) -> str | None:
    """Rule broken by a snippet's or cell's source."""
    return text_rule(code, limit=CODE_BYTES)


def step_rule(step: str) -> str | None:
    """Rule broken by one shell step."""
    return text_rule(step, limit=STEP_BYTES)


def path_rule(path: str) -> str | None:
    """Rule broken by a file or artifact path: relative, clean, at most 1,024 bytes."""
    if broken := text_rule(path, limit=PATH_BYTES):
        return broken
    if _CONTROL.search(path) or "\\" in path:
        return "must hold no backslash and no control character"
    if path.startswith("/") or any(part in {"", ".", ".."} for part in path.split("/")):
        return "must be relative, without empty, `.` or `..` segments"
    return None


def identity_rule(identity: str) -> str | None:
    """Rule broken by one software identity."""
    if SOFTWARE_IDENTITY.fullmatch(identity):
        return None
    return "must be 1 to 256 bytes of [A-Za-z0-9._:/@+-]"


def trace_id_rule(trace_id: str) -> str | None:
    """Rule broken by a trace id (the service drops such an id whole; our client refuses to send it)."""
    return None if TRACE_ID.fullmatch(trace_id) else "must match [A-Za-z0-9._:-]{1,64}"


def timeout_rule(timeout_ms: int) -> str | None:
    """Rule broken by a timeout that was sent."""
    if 1 <= timeout_ms <= TIMEOUT_CEILING_MS:
        return None
    return f"must be an integer from 1 to {TIMEOUT_CEILING_MS}"
