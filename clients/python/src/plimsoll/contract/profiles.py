"""A grant profile, as everybody who decides by it reads it: who is let to which routes of which API, with what credential.

A profile never holds a secret. What is shown to callers and models (description, catalog, preamble) is not in it: nothing is
decided by that. Fields are only ever added, with a default, and never renamed: sealed boxes are bound to them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from plimsoll.contract import bounds
from plimsoll.contract.grants import (
    ANY_SEGMENT,
    BACK_BYTES,
    CALLS_CEILING,
    CALLS_DEFAULT,
    OUT_BYTES,
    ROUTES,
    GrantFault,
    parse_origin,
    parse_route,
)

CALLERS: Final = 256
TEXT: Final = 512
LIFETIME_CEILING_S: Final = 86_400
DESCRIPTION_BYTES: Final = 256 << 10
CATALOG_BYTES: Final = 1 << 20
PREAMBLE_BYTES: Final = 128 << 10
"""Of what callers and models see of one profile; a preamble is half of what a program may have."""
HEADER: Final = re.compile(r"[a-z0-9-]{1,64}")
SCHEME: Final = re.compile(r"[A-Za-z0-9-]{0,32}")
REQUEST_HEADERS: Final = frozenset({"accept", "content-type", "idempotency-key", "if-match", "if-none-match"})
"""What guests may send."""
TAKEN_HEADERS: Final = REQUEST_HEADERS | {
    *("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive"),
    *("expect", "accept-encoding", "user-agent", "proxy-authorization", "proxy-connection", "cookie"),
    "content-encoding",
}
"""Where no credential goes: these say something else."""
ALGORITHMS: Final = ("HS256", "EdDSA", "ES256")
HS256_BYTES: Final = 32
SHORTEST: Final = 8
"""Shorter credentials would be found in answers that have nothing to do with them."""
LONGEST: Final = 16 << 10
CREDENTIAL: Final = re.compile(rf"[!-~]{{{SHORTEST},{LONGEST}}}")
"""What can be one: whoever seals it and whoever attaches it judge alike."""


class CredentialType(StrEnum):
    """Where a run's credential comes from; append-only."""

    STATIC = "static"
    JWT = "jwt"
    EXEC = "exec"
    HTTP = "http"


@dataclass(frozen=True, slots=True)
class CredentialTerms:
    """How a credential is made and attached. `hook` names a minter of the broker's own settings, for `exec` and `http`."""

    type: CredentialType
    audience: str = ""
    header: str = "authorization"
    scheme: str = "Bearer"
    issuer: str = ""
    scope: str = ""
    algorithm: str = ""
    key_id: str = ""
    lifetime_s: int = 300
    hook: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile. `origin` and `allow` are texts of `plimsoll.contract.grants`, `allowed_callers` names of callers."""

    name: str
    origin: str
    allow: tuple[str, ...]
    allowed_callers: tuple[str, ...]
    credential: CredentialTerms
    max_calls: int = CALLS_DEFAULT
    out_bytes: int = OUT_BYTES
    back_bytes: int = BACK_BYTES
    health_check: str | None = None


def check(profile: Profile) -> None:
    """Raises GrantFault for the first rule that `profile` breaks."""
    if (broken := next(faults(profile), None)) is not None:
        raise GrantFault(broken)


def faults(profile: Profile) -> Iterator[str]:
    """Every rule that `profile` breaks, each beginning with the field's name."""
    yield from _broken(profile)
    for field, text, parse in (
        ("origin", profile.origin, parse_origin),
        *(("allow", text, parse_route) for text in profile.allow[:ROUTES]),
        *(
            [("health_check", profile.health_check, _check_health)]
            if profile.health_check is not None
            else []
        ),
    ):
        try:
            parse(text)
        except GrantFault as fault:
            yield f"{field}: {fault}"


def _broken(profile: Profile) -> Iterator[str]:
    if not bounds.NAME.fullmatch(profile.name):
        yield "name must be 1 to 64 of [a-z0-9-]"
    if not 1 <= len(profile.allow) <= ROUTES or len(set(profile.allow)) != len(profile.allow):
        yield f"allow must list 1 to {ROUTES} routes, each once"
    callers = profile.allowed_callers
    if (
        not 1 <= len(callers) <= CALLERS
        or len(set(callers)) != len(callers)
        or not all(map(bounds.NAME.fullmatch, callers))
    ):
        yield f"allowed_callers must list 1 to {CALLERS} names of callers, each once"
    if not 1 <= profile.max_calls <= CALLS_CEILING:
        yield f"max_calls must be 1 to {CALLS_CEILING}"
    if not 1 <= profile.out_bytes <= OUT_BYTES or not 1 <= profile.back_bytes <= BACK_BYTES:
        yield f"out_bytes must be 1 to {OUT_BYTES}, and back_bytes 1 to {BACK_BYTES}"
    yield from _broken_terms(profile.credential)


def _broken_terms(terms: CredentialTerms) -> Iterator[str]:
    if any(len(text) > TEXT for text in (terms.audience, terms.issuer, terms.scope, terms.key_id)):
        yield f"credential: texts must be up to {TEXT} characters"
    is_hook, is_jwt = (
        terms.type in {CredentialType.EXEC, CredentialType.HTTP},
        terms.type is CredentialType.JWT,
    )
    if is_hook != bool(terms.hook) or (is_hook and not bounds.NAME.fullmatch(terms.hook)):
        yield "credential.hook must name a hook for exec and http, and for nothing else"
    if is_jwt and (terms.algorithm not in ALGORITHMS or not terms.issuer or not terms.audience):
        yield f"credential: a jwt must have an algorithm of {', '.join(ALGORITHMS)}, an issuer and an audience"
    if not is_jwt and (terms.algorithm or terms.issuer or terms.scope or terms.key_id):
        yield "credential: algorithm, issuer, scope and key_id are for a jwt"
    if not HEADER.fullmatch(terms.header) or terms.header in TAKEN_HEADERS:
        yield "credential.header must be 1 to 64 of [a-z0-9-], and none that requests use for something else"
    if not SCHEME.fullmatch(terms.scheme):
        yield "credential.scheme must be up to 32 of [A-Za-z0-9-]"
    if not 1 <= terms.lifetime_s <= LIFETIME_CEILING_S:
        yield f"credential.lifetime_s must be 1 to {LIFETIME_CEILING_S}"


def _check_health(path: str) -> None:
    route = parse_route(f"GET {path}")
    if route.query or ANY_SEGMENT in route.segments:
        raise GrantFault("health_check must be one path, without a query")


def naming(host: str) -> re.Pattern[str]:
    """Finds where a text that callers see names an origin's host, whatever its case.

    A host of one label is a word like others (`api`, `localhost`): it is named where it looks like a part of a URL.
    """
    word = re.escape(host)
    if "." in host or ":" in host:
        return re.compile(word, re.IGNORECASE)
    return re.compile(rf"//{word}(?![a-z0-9.-])|(?<![a-z0-9.-]){word}:[0-9]+", re.IGNORECASE)
