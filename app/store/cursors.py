"""Where a page of runs goes on, as one opaque word: the creation time and id of the last run shown.

The word is bound to whose list it came from, so that another caller's cursor is as unknown as garbage. That is tidiness and
no protection: every page is filtered by its caller, and a position tells nothing.
"""

import base64
import binascii
import hashlib
import re

_POSITION = re.compile(r"([0-9a-f]{16})\.([0-9]{1,18})\.([0-9a-f]{32})", re.ASCII)
_LONGEST = 128


def make(created_unix_ms: int, run_id: str, caller_id: str | None) -> str:
    """The cursor after this run in the list of `caller_id` (None: everybody's)."""
    position = f"{_list_of(caller_id)}.{created_unix_ms}.{run_id}"
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def read(cursor: str, caller_id: str | None) -> tuple[int, str] | None:
    """The position it stands for in the list of `caller_id`, or None when it is none of that list's."""
    if len(cursor) > _LONGEST or not cursor.isascii():
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    match = _POSITION.fullmatch(text)
    if match is None or match[1] != _list_of(caller_id):
        return None
    position = int(match[2]), match[3]
    # One position has one spelling.
    return position if make(*position, caller_id) == cursor else None


def _list_of(caller_id: str | None) -> str:
    return hashlib.sha256(f"plimsoll cursor\n{caller_id or ''}".encode()).hexdigest()[:16]
