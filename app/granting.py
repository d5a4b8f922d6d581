"""`plimsoll-admin vault …` and `grants …`: the pair of keys, and the profiles with their secrets sealed.

A file of profiles is taken whole or not at all, and every fault is named by profile, field and rule. A secret is read once,
from the environment variable that the file names, and leaves here only inside a box that this side cannot open.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from app.store.values import StoredGrant
from app.vault.seal import binding_of, seal
from plimsoll.contract import profiles
from plimsoll.contract.advice import AdviceTo
from plimsoll.contract.grants import GrantFault, parse_origin
from plimsoll.contract.profiles import CredentialTerms, CredentialType, Profile

DESCRIPTION: Final = 4 << 10
CATALOG: Final = 64 << 10
PREAMBLE: Final = 128 << 10
LANGUAGES: Final = ("javascript", "python")
_STATIC: Final = re.compile(r"[!-~]{8,16384}")
_HS256_BYTES: Final = 32
_HOOK_SECRET: Final = b"minted elsewhere"
"""A box is never empty; of this one only what it is bound to counts."""
_LISTS: Final = {"allow", "allowed_callers"}
_NUMBERS: Final = {"max_calls", "out_bytes", "back_bytes", "lifetime_s"}
_REQUIRED: Final = ("origin", "allow", "allowed_callers", "credential")
_SHOWN: Final = {"description": DESCRIPTION, "catalog": CATALOG}
_OF_PROFILE: Final = {each.name for each in fields(Profile)} - {"name", "credential"}
_OF_CREDENTIAL: Final = {each.name for each in fields(CredentialTerms)} | {"env"}
_SECRETS: Final = {CredentialType.STATIC, CredentialType.JWT}


@dataclass(slots=True)
class Reading:
    """What was read of a file of profiles; nothing of it is to be used if there is a fault."""

    environ: Mapping[str, str] = field(repr=False)
    public: X25519PublicKey
    faults: list[str] = field(default_factory=list)
    found: list[StoredGrant] = field(default_factory=list)

    def read(self, text: str) -> None:
        """Every profile in `text`."""
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            self.faults.append(f"the file must be TOML: {str(error)[:100]}")
            return
        if not tables:
            self.faults.append("the file holds no profile")
        for name, table in tables.items():
            if not isinstance(table, dict):
                self.faults.append(f"{name[:64]}: must be a table, as in [hr-read]")
                continue
            faults = [f"{name[:64]}: {fault}" for fault in self._profile(name, table)]
            self.faults += faults

    def _profile(self, name: str, table: dict[str, Any]) -> Iterator[str]:
        """The faults of one profile; without any it is among the found ones."""
        terms = table.get("credential", {})
        faults = [*_shape(table, terms)]
        if faults:
            yield from faults
            return
        profile = _built(name, table, terms)
        secret = self._secret(profile, terms)
        faults = [*profiles.faults(profile), *_shown_faults(table, profile.origin)]
        if isinstance(secret, str):
            faults.append(secret)
        yield from faults
        if not faults and isinstance(secret, bytes):
            self.found.append(self._stored(profile, secret, table))

    def _secret(self, profile: Profile, terms: Mapping[str, Any]) -> bytes | str:
        """What is sealed, or the rule that it breaks; the secret itself is never in words."""
        kind, name = profile.credential.type, terms.get("env", "")
        if kind not in _SECRETS:
            return "credential.env is for static and jwt" if name else _HOOK_SECRET
        if not name:
            return "credential.env must name the environment variable that holds the secret"
        if not (value := self.environ.get(name, "")):
            return f"credential.env: {name[:64]} is not set"
        rule = _key_rule(profile.credential, value) if kind is CredentialType.JWT else _static_rule(value)
        return f"credential.env: {name[:64]} {rule}" if rule else value.encode()

    def _stored(self, profile: Profile, secret: bytes, table: Mapping[str, Any]) -> StoredGrant:
        return StoredGrant(
            profile=profile,
            sealed=seal(secret, binding_of(profile), self.public),
            description=table.get("description", ""),
            catalog=table.get("catalog", ""),
            preamble=json.dumps(table.get("preamble", {}), sort_keys=True),
            advice=table.get("advice", "off"),
        )


def _shape(table: dict[str, Any], terms: Any) -> Iterator[str]:
    """What is missing, unknown or of another type."""
    known = _OF_PROFILE | {"credential", "description", "catalog", "preamble", "advice"}
    yield from (f"{name[:64]} is no field of a profile" for name in sorted(set(table) - known))
    yield from (f"{name} is required" for name in _REQUIRED if name not in table)
    if not isinstance(terms, dict):
        yield "credential must be a table"
        return
    yield from (
        f"credential.{name[:64]} is no field of a credential" for name in sorted(set(terms) - _OF_CREDENTIAL)
    )
    yield from _types("", {name: value for name, value in table.items() if name in known - {"credential"}})
    yield from _types("credential.", {name: terms[name] for name in terms if name in _OF_CREDENTIAL})
    if "credential" in table and terms.get("type") not in set(CredentialType):
        yield f"credential.type must be one of {', '.join(CredentialType)}"


def _types(prefix: str, values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if name in _LISTS:
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                yield f"{prefix}{name} must be a list of texts"
        elif name in _NUMBERS:
            if type(value) is not int:
                yield f"{prefix}{name} must be a whole number"
        elif name == "preamble":
            if not isinstance(value, dict) or not set(value) <= set(LANGUAGES):
                yield f"preamble must be a table of {', '.join(LANGUAGES)}"
            elif not all(isinstance(each, str) and len(each.encode()) <= PREAMBLE for each in value.values()):
                yield f"preamble must hold texts of at most {PREAMBLE} bytes"
        elif not isinstance(value, str):
            yield f"{prefix}{name} must be a text"


def _built(name: str, table: Mapping[str, Any], terms: Mapping[str, Any]) -> Profile:
    plain = {key: table[key] for key in table if key in _OF_PROFILE - _LISTS}
    given = {key: terms[key] for key in terms if key not in {"type", "env"}}
    return Profile(
        name=name,
        allow=tuple(table["allow"]),
        allowed_callers=tuple(table["allowed_callers"]),
        credential=CredentialTerms(CredentialType(terms["type"]), **given),
        **plain,
    )


def _shown_faults(table: Mapping[str, Any], origin: str) -> Iterator[str]:
    """Of what callers and models see: it is short, and does not say where the API is."""
    if table.get("advice", "off") not in set(AdviceTo):
        yield f"advice must be one of {', '.join(AdviceTo)}"
    for name, most in _SHOWN.items():
        if len(table.get(name, "").encode()) > most:
            yield f"{name} must be at most {most} bytes"
    shown = [table.get("description", ""), table.get("catalog", ""), *table.get("preamble", {}).values()]
    try:
        host = parse_origin(origin).host
    except GrantFault:
        return  # is said elsewhere
    if any(host in text.lower() for text in shown):
        yield "description, catalog and preamble must not name the origin's host: callers see them"


def _static_rule(value: str) -> str:
    return (
        "" if _STATIC.fullmatch(value) else "must hold 8 to 16384 characters of visible ASCII, without spaces"
    )


def _key_rule(terms: CredentialTerms, value: str) -> str:
    if terms.algorithm == "HS256":
        long = len(value.encode()) >= _HS256_BYTES and bool(terms.key_id)
        return "" if long else f"must hold at least {_HS256_BYTES} bytes, and credential.key_id must name it"
    try:
        key = load_pem_private_key(value.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "must hold a private key as PEM, without a password"
    fits = (
        isinstance(key, ed25519.Ed25519PrivateKey)
        if terms.algorithm == "EdDSA"
        else isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1)
    )
    return "" if fits else f"must hold a key for {terms.algorithm[:16]}"


def listed(grant: StoredGrant) -> str:
    """One profile as one line for an operator's eyes; there is no secret to show."""
    profile = grant.profile
    callers, routes = ",".join(profile.allowed_callers), len(profile.allow)
    kind = profile.credential.type.value
    return (
        f"{profile.name}  {profile.origin}  {kind}  routes={routes}  max_calls={profile.max_calls}  {callers}"
    )
