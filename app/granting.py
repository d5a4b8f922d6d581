"""`plimsoll-admin vault …` and `grants …`: the pair of keys, and the profiles with their secrets sealed.

A file of profiles is taken whole or not at all, and every fault is named by profile, field and rule. A secret is read once,
from the environment variable that the file names, and leaves here only inside a box that this side cannot open; of a key that
signs, the public half is kept beside it. Texts that callers see may stand in files beside the file of profiles.
"""

import ipaddress
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from app import beside, grantsecrets
from app.store.values import StoredGrant
from app.vault.seal import binding_of, seal
from plimsoll.contract import profiles
from plimsoll.contract.advice import AdviceTo
from plimsoll.contract.grants import GrantFault, parse_origin
from plimsoll.contract.profiles import (
    CATALOG_BYTES,
    DESCRIPTION_BYTES,
    PREAMBLE_BYTES,
    CredentialTerms,
    CredentialType,
    Profile,
    naming,
)

FILE_CHARACTERS: Final = 16 << 20
"""Of a file of profiles."""
LANGUAGES: Final = ("javascript", "python")
_HOOK_SECRET: Final = b"minted elsewhere"
"""A box is never empty; of this one only what it is bound to counts."""
_LISTS: Final = {"allow", "allowed_callers"}
_NUMBERS: Final = {"max_calls", "out_bytes", "back_bytes", "lifetime_s"}
_REQUIRED: Final = ("origin", "allow", "allowed_callers", "credential")
_SHOWN: Final = {
    "description": DESCRIPTION_BYTES,
    "catalog": CATALOG_BYTES,
    **{f"preamble.{language}": PREAMBLE_BYTES for language in LANGUAGES},
}
_TEXT_OR_FILE: Final = 'must be a text, or a table { file = "…" }'
_OF_PROFILE: Final = {each.name for each in fields(Profile)} - {"name", "credential"}
_OF_CREDENTIAL: Final = {each.name for each in fields(CredentialTerms)} | {"env"}
_SECRETS: Final = {CredentialType.STATIC, CredentialType.JWT}


@dataclass(frozen=True, slots=True)
class Sealable:
    """A secret that keeps its rules, and what tokens of it are verified with."""

    value: bytes = field(repr=False)
    public_key: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """A secret's place, and the rule that it breaks; the secret itself is never in words."""

    rule: str


@dataclass(slots=True)
class Reading:
    """What was read of a file of profiles; nothing of it is to be used if there is a fault.

    `folder` is where the file is; None for stdin.
    """

    environ: Mapping[str, str] = field(repr=False)
    public: X25519PublicKey
    folder: Path | None = None
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
        profile, shown = _built(name, table, terms), dict(_shown(table))
        secret = self._secret(profile, terms)
        faults = [
            *profiles.faults(profile),
            *_origin_faults(profile.origin),
            *self._read_files(shown),
            *_shown_faults(table, shown, profile.origin),
        ]
        if isinstance(secret, Broken):
            faults.append(secret.rule)
        yield from faults
        if not faults and isinstance(secret, Sealable):
            self.found.append(self._stored(profile, secret, shown, table.get("advice", "off")))

    def _read_files(self, shown: dict[str, Any]) -> Iterator[str]:
        """Put the files' texts in the place of their names. The faults of those that cannot be."""
        for name, value in shown.items():
            if isinstance(value, str):
                continue
            try:
                shown[name] = beside.read(self.folder, value["file"], _SHOWN[name])
            except beside.Unreadable as unreadable:
                shown[name] = ""
                yield f"{name}.file {unreadable}"

    def _secret(self, profile: Profile, terms: Mapping[str, Any]) -> Sealable | Broken:
        """What is sealed, or the rule that it breaks."""
        kind, name = profile.credential.type, terms.get("env", "")
        if kind not in _SECRETS:
            return Broken("credential.env is for static and jwt") if name else Sealable(_HOOK_SECRET)
        if not name:
            return Broken("credential.env must name the environment variable that holds the secret")
        if not (value := self.environ.get(name, "")):
            return Broken(f"credential.env: {name[:64]} is not set")
        try:
            return Sealable(value.encode(), grantsecrets.public_key(profile.credential, value))
        except grantsecrets.SecretRefused as refused:
            return Broken(f"credential.env: {name[:64]} {refused}")

    def _stored(
        self, profile: Profile, secret: Sealable, shown: Mapping[str, str], advice: str
    ) -> StoredGrant:
        preamble = {name: shown[f"preamble.{name}"] for name in LANGUAGES if f"preamble.{name}" in shown}
        return StoredGrant(
            profile=profile,
            sealed=seal(secret.value, binding_of(profile), self.public),
            description=shown.get("description", ""),
            catalog=shown.get("catalog", ""),
            preamble=json.dumps(preamble, sort_keys=True),
            advice=advice,
            public_key=secret.public_key,
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
                continue
            yield from (f"preamble.{each} {_TEXT_OR_FILE}" for each in value if not _is_shown(value[each]))
        elif name in _SHOWN and not prefix:
            if not _is_shown(value):
                yield f"{name} {_TEXT_OR_FILE}"
        elif not isinstance(value, str):
            yield f"{prefix}{name} must be a text"


def _is_shown(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, dict) and set(value) == {"file"} and isinstance(value["file"], str)
    )


def _shown(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What callers and models are to see, by field: texts, and tables that name files."""
    yield from ((name, table[name]) for name in ("description", "catalog") if name in table)
    yield from ((f"preamble.{language}", text) for language, text in table.get("preamble", {}).items())


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


def _origin_faults(origin: str) -> Iterator[str]:
    """What an address says without anybody being asked. Names are the broker's to judge, for each lease."""
    try:
        found = parse_origin(origin)
        address = ipaddress.ip_address(found.host)
    except (GrantFault, ValueError):
        return  # is said elsewhere, or a name
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        yield "origin must be no link-local, multicast or unspecified address"
    elif found.scheme == "http" and not address.is_loopback:
        yield "origin must be https; http is for loopback alone"


def _shown_faults(table: Mapping[str, Any], shown: Mapping[str, str], origin: str) -> Iterator[str]:
    """Of what callers and models see: it is bounded, and does not say where the API is."""
    if table.get("advice", "off") not in set(AdviceTo):
        yield f"advice must be one of {', '.join(AdviceTo)}"
    for name, text in shown.items():
        if len(text.encode()) > _SHOWN[name]:
            yield f"{name} must be at most {_SHOWN[name]} bytes"
        if "\0" in text:
            yield f"{name} must hold no NUL"
    try:
        names_it = naming(parse_origin(origin).host)
    except GrantFault:
        return  # is said elsewhere
    if any(map(names_it.search, shown.values())):
        yield "description, catalog and preamble must not name the origin's host: callers see them"


def listed(grant: StoredGrant) -> str:
    """One profile as one line for an operator's eyes; there is no secret to show."""
    profile = grant.profile
    callers, routes = ",".join(profile.allowed_callers), len(profile.allow)
    kind = profile.credential.type.value
    return (
        f"{profile.name}  {profile.origin}  {kind}  routes={routes}  max_calls={profile.max_calls}  {callers}"
    )
