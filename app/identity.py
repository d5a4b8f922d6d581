"""Who is calling, and what a token looks like. Pure; the database holds only a token's SHA-256.

A token is `plim_` + 43 characters of base64url (256 random bits) + `_` + 6 characters of checksum, so that
garbage is refused without a query. The checksum is no secret and no proof: it only saves work.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

_TOKEN = re.compile(r"plim_([A-Za-z0-9_-]{43})_([A-Za-z0-9_-]{6})")


class Scope(StrEnum):
    """What a caller may do. The words are stored and never renamed."""

    RUN = "code:run"
    READ_RECORDS = "records:read"
    SIGN_RECORDS = "records:sign"
    ADMIN = "admin"


DEFAULT_SCOPES = frozenset({Scope.RUN, Scope.READ_RECORDS})


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `id` is immutable, 32 hex digits; `name` is never reused."""

    id: str
    name: str
    scopes: frozenset[Scope] = field(default=DEFAULT_SCOPES)

    def may(self, scope: Scope) -> bool:
        """Whether the caller holds `scope` (`admin` implies reading records, not running code)."""
        return scope in self.scopes or (scope is Scope.READ_RECORDS and Scope.ADMIN in self.scopes)


ANONYMOUS = Caller(id="0" * 32, name="anonymous")
"""The caller in insecure mode."""


def mint_token(random_bytes: Callable[[int], bytes]) -> str:
    """A new token from 32 bytes of `random_bytes`."""
    body = base64.urlsafe_b64encode(random_bytes(32)).decode().rstrip("=")
    return f"plim_{body}_{_checksum(body)}"


def token_sha256(token: str) -> str | None:
    """Hex SHA-256 under which a well-formed token is stored, or None when form or checksum is wrong."""
    match = _TOKEN.fullmatch(token)
    if match is None or _checksum(match[1]) != match[2]:
        return None
    return hashlib.sha256(token.encode()).hexdigest()


def _checksum(body: str) -> str:
    crc = zlib.crc32(b"plimsoll token v1\n" + body.encode()).to_bytes(4, "big")
    return base64.urlsafe_b64encode(crc).decode().rstrip("=")
