"""Mints one run's credential, once, before the run starts.

A `static` one is what was sealed; a `jwt` is signed here, for this caller and this API alone, and dies soon after the run can.
Minters of the operator's own are in `hooks`. A failed mint is a value, and then nothing runs.
"""

import hmac
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from broker import jose
from broker.credential import Credential, CredentialFault, Place, attach
from broker.jose import Signer
from plimsoll.contract.jwk import encode

GRACE_S: Final = 30
JTI_BYTES: Final = 16
CLAIM_CHARACTERS: Final = 512


class MintFault(StrEnum):
    """Why there is no credential; append-only."""

    HOOK_UNAVAILABLE = "hook_unavailable"
    HOOK_TIMEOUT = "hook_timeout"
    HOOK_FAILED = "hook_failed"
    HOOK_OUTPUT = "hook_output"


@dataclass(frozen=True, slots=True)
class Order:
    """For whom a credential is minted. `caller` is the immutable id, `budget_s` the longest the run can take."""

    profile: str
    caller: str
    run_id: str
    budget_s: float


class Minter(Protocol):
    """A source of credentials for one profile."""

    async def mint(self, order: Order) -> Credential | MintFault:
        """A credential for this run, or why there is none; within a deadline of its own."""
        ...


class StaticMinter:
    """The same credential for every run."""

    def __init__(self, secret: bytes, place: Place) -> None:
        """Raises CredentialFault."""
        self._credential = attach(secret, place)

    async def mint(self, order: Order) -> Credential | MintFault:  # noqa: ARG002 - it is the same for all
        return self._credential


@dataclass(frozen=True, slots=True)
class Claims:
    """What the tokens of one profile say besides who calls and when. `scope` may be empty."""

    issuer: str
    audience: str
    scope: str = ""
    lifetime_s: int = 300

    def __post_init__(self) -> None:
        """Refuse what would make a token mean too much."""
        texts = (self.issuer, self.audience, self.scope)
        if not self.issuer or not self.audience or any(len(text) > CLAIM_CHARACTERS for text in texts):
            raise CredentialFault(
                f"issuer and audience must be set, and up to {CLAIM_CHARACTERS} characters, as the scope"
            )
        if self.lifetime_s < 1:
            raise CredentialFault("the lifetime must be at least a second")


class JwtMinter:
    """A signed token for each run: `sub` is the caller, `exp` the earlier of the lifetime's and the run's end with grace."""

    def __init__(
        self,
        key: Signer,
        claims: Claims,
        place: Place,
        clock: Callable[[], float],
        randomness: Callable[[int], bytes],
    ) -> None:
        """`clock` gives Unix seconds, `randomness` that many random bytes."""
        self._claims, self._place = claims, place
        self._key, self._clock, self._randomness = key, clock, randomness

    async def mint(self, order: Order) -> Credential | MintFault:
        return attach(jose.sign(self._filled(order), self._key).encode(), self._place)

    def _filled(self, order: Order) -> dict[str, Any]:
        if not order.caller:
            raise ValueError("a token needs a caller")
        issued, claims = int(self._clock()), self._claims
        lives = min(claims.lifetime_s, math.ceil(order.budget_s) + GRACE_S)
        filled = {
            "iss": claims.issuer,
            "aud": claims.audience,
            "sub": order.caller,
            "iat": issued,
            "exp": issued + lives,
            "jti": encode(self._randomness(JTI_BYTES)),
        }
        return filled | {"scope": claims.scope} if claims.scope else filled


class OneProfile:
    """Remembers, without the secrets, which profile uses which: one HS256 secret serves one profile.

    Whoever shares a secret with one API could otherwise make that API's callers callers of another.
    """

    def __init__(self, key: bytes, most: int = 10_000) -> None:
        """`key` is random and of this process; after `most` secrets no new one is taken."""
        self._key, self._most = key, most
        self._profiles: dict[bytes, str] = {}

    def claim(self, secret: bytes, profile: str) -> bool:
        """Whether `profile` may use `secret`: nobody else has."""
        tag = hmac.digest(self._key, secret, "sha256")
        if tag not in self._profiles and len(self._profiles) >= self._most:
            return False
        return self._profiles.setdefault(tag, profile) == profile
