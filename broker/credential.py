"""A credential as it is attached to requests, and nothing that could show it by accident."""

import base64
from dataclasses import dataclass, field

from plimsoll.contract.profiles import CREDENTIAL, HEADER, LONGEST, SCHEME, SHORTEST, TAKEN_HEADERS


class CredentialFault(ValueError):
    """A credential, or a place for one, that breaks a rule; the message names the rule and never the credential."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a credential goes: a header, and the scheme in front of it (`""`: none; `Basic` encodes `user:password`)."""

    header: str = "authorization"
    scheme: str = "Bearer"

    def __post_init__(self) -> None:
        """Refuse a header that says something else, or that guests may send."""
        if not HEADER.fullmatch(self.header) or self.header in TAKEN_HEADERS:
            raise CredentialFault(
                "the header must be 1 to 64 of [a-z0-9-], and none that requests use for something else"
            )
        if not SCHEME.fullmatch(self.scheme):
            raise CredentialFault("the scheme must be up to 32 of [A-Za-z0-9-]")


@dataclass(frozen=True, slots=True)
class Credential:
    """One run's credential. `secrets` are what answers are searched for."""

    header: str
    value: str = field(repr=False)
    secrets: tuple[bytes, ...] = field(repr=False)


def attach(token: bytes, place: Place) -> Credential:
    """`token` as it goes into `place`. Raises CredentialFault."""
    try:
        text = token.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not CREDENTIAL.fullmatch(text):
        raise CredentialFault(f"a credential must be {SHORTEST} to {LONGEST} characters of visible ASCII")
    if place.scheme.lower() != "basic":
        return Credential(place.header, f"{place.scheme} {text}".strip(), (token,))
    encoded = base64.b64encode(token)
    return Credential(place.header, f"{place.scheme} {encoded.decode()}", (token, encoded))
