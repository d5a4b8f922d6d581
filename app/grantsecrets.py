"""What a profile's secret must be, and the public half of a key that signs. A secret itself is never in words."""

import re
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from plimsoll.contract import jwk
from plimsoll.contract.profiles import CredentialTerms, CredentialType

_STATIC: Final = re.compile(r"[!-~]{8,16384}")
_HS256_BYTES: Final = 32


def rule_of(terms: CredentialTerms, value: str) -> str:
    """The rule that a secret breaks, as the end of a sentence; empty if it keeps them."""
    if terms.type is not CredentialType.JWT:
        return (
            ""
            if _STATIC.fullmatch(value)
            else "must hold 8 to 16384 characters of visible ASCII, without spaces"
        )
    if terms.algorithm == "HS256":
        long = len(value.encode()) >= _HS256_BYTES and bool(terms.key_id)
        return "" if long else f"must hold at least {_HS256_BYTES} bytes, and credential.key_id must name it"
    if _private(value) is None:
        return "must hold a private key as PEM, without a password"
    return "" if public_key(terms, value) else f"must hold a key for {terms.algorithm[:16]}"


def public_key(terms: CredentialTerms, value: str) -> str:
    """What APIs verify with, a JWK as JSON; empty for what signs nothing or is shared, and for a key of another algorithm."""
    if terms.type is not CredentialType.JWT or terms.algorithm == "HS256":
        return ""
    key = _private(value)
    if terms.algorithm == "EdDSA" and isinstance(key, ed25519.Ed25519PrivateKey):
        required = jwk.ed25519(key.public_key().public_bytes_raw())
    elif (
        terms.algorithm == "ES256"
        and isinstance(key, ec.EllipticCurvePrivateKey)
        and isinstance(key.curve, ec.SECP256R1)
    ):
        point = key.public_key().public_numbers()
        required = jwk.p256(point.x, point.y)
    else:
        return ""
    return jwk.to_json(jwk.published(required, terms.algorithm)).decode()


def _private(value: str) -> object | None:
    try:
        return load_pem_private_key(value.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
