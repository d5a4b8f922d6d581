"""What a profile's secret must be, and the public half of one that is a key. A secret itself is never in words."""

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from plimsoll.contract import jwk
from plimsoll.contract.profiles import (
    CREDENTIAL,
    HS256_BYTES,
    LONGEST,
    SHORTEST,
    CredentialTerms,
    CredentialType,
)


class SecretRefused(ValueError):
    """A secret that breaks a rule, which the message names as the end of a sentence."""


def public_key(terms: CredentialTerms, value: str) -> str:
    """What APIs verify this secret's tokens with, a JWK as JSON; empty for one that is no key, or a shared one.

    Raises SecretRefused.
    """
    if terms.type is not CredentialType.JWT:
        if not CREDENTIAL.fullmatch(value):
            raise SecretRefused(
                f"must hold {SHORTEST} to {LONGEST} characters of visible ASCII, without spaces"
            )
        return ""
    if terms.algorithm == "HS256":
        if len(value.encode()) < HS256_BYTES or not terms.key_id:
            raise SecretRefused(f"must hold at least {HS256_BYTES} bytes, and credential.key_id must name it")
        return ""
    required = _public(terms.algorithm, _private(value))
    return jwk.to_json(jwk.published(required, terms.algorithm)).decode()


def _public(algorithm: str, key: object) -> dict[str, str]:
    if algorithm == "EdDSA" and isinstance(key, ed25519.Ed25519PrivateKey):
        return jwk.ed25519(key.public_key().public_bytes_raw())
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey):
        curve, point = key.curve, key.public_key().public_numbers()
        if isinstance(curve, ec.SECP256R1):
            return jwk.p256(point.x, point.y)
    raise SecretRefused(f"must hold a key for {algorithm[:16]}")


def _private(value: str) -> object:
    try:
        return load_pem_private_key(value.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise SecretRefused("must hold a private key as PEM, without a password") from None
