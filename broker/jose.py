"""Signed tokens as other people's libraries read them: JWS in its compact form (RFC 7515).

Three algorithms: HS256, EdDSA (Ed25519) and ES256. Keys that cannot carry the algorithm's promise are refused. Base64url is
strict: no padding, no other alphabet, no stray bits.
"""

import base64
import hmac
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from plimsoll.contract import jwk
from plimsoll.contract.jwk import encode
from plimsoll.contract.profiles import HS256_BYTES

_P256_BYTES: Final = 32
_KEY_ID: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_URL_SAFE: Final = re.compile(r"[A-Za-z0-9_-]*")


class KeyRefused(ValueError):
    """A signing key that breaks a rule; the message names the rule and nothing of the key."""


def decode(text: str) -> bytes:
    """What `text` is as strict base64url. Raises ValueError."""
    if not _URL_SAFE.fullmatch(text) or len(text) % 4 == 1:
        raise ValueError("must be base64url without padding")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode(data) != text:
        raise ValueError("must be base64url without stray bits")
    return data


class Signer(Protocol):
    """A key of one algorithm."""

    @property
    def algorithm(self) -> str:
        """Its name in a token's header."""
        ...

    @property
    def key_id(self) -> str:
        """Which key it is."""
        ...

    def sign(self, data: bytes) -> bytes:
        """The signature, as a token carries it."""
        ...


class Hs256:
    """A secret shared with one API, and used by one profile."""

    algorithm = "HS256"

    def __init__(self, secret: bytes, key_id: str) -> None:
        """Raises KeyRefused for a secret that could be guessed."""
        if len(secret) < HS256_BYTES:
            raise KeyRefused(f"an HS256 secret must have at least {HS256_BYTES} bytes")
        self._secret = secret
        self.key_id = key_id

    def sign(self, data: bytes) -> bytes:
        return hmac.digest(self._secret, data, "sha256")


class Ed25519:
    """EdDSA: its key's thumbprint names it."""

    algorithm = "EdDSA"

    def __init__(self, private: ed25519.Ed25519PrivateKey) -> None:
        """Keep the key."""
        self._private = private
        self.key_id = jwk.thumbprint(jwk.ed25519(private.public_key().public_bytes_raw()))

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)


class Es256:
    """ECDSA on P-256: its key's thumbprint names it."""

    algorithm = "ES256"

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        """Raises KeyRefused for another curve."""
        if not isinstance(private.curve, ec.SECP256R1):
            raise KeyRefused("an ES256 key must be on the curve P-256")
        self._private = private
        point = private.public_key().public_numbers()
        self.key_id = jwk.thumbprint(jwk.p256(point.x, point.y))

    def sign(self, data: bytes) -> bytes:
        r, s = decode_dss_signature(self._private.sign(data, ec.ECDSA(SHA256())))
        return r.to_bytes(_P256_BYTES, "big") + s.to_bytes(_P256_BYTES, "big")


def signer(algorithm: str, key: bytes, key_id: str) -> Signer:
    """The key for `algorithm`: a secret's bytes for HS256, else a private key as PEM. `key_id` names a secret only.

    Raises KeyRefused.
    """
    if algorithm == Hs256.algorithm:
        if not _KEY_ID.fullmatch(key_id):
            raise KeyRefused("an HS256 secret must have a key id of 1 to 128 of [A-Za-z0-9._~-]")
        return Hs256(key, key_id)
    if algorithm not in {Ed25519.algorithm, Es256.algorithm}:
        raise KeyRefused("the algorithm must be HS256, EdDSA or ES256")
    private = _private_key(key)
    if algorithm == Ed25519.algorithm and isinstance(private, ed25519.Ed25519PrivateKey):
        return Ed25519(private)
    if algorithm == Es256.algorithm and isinstance(private, ec.EllipticCurvePrivateKey):
        return Es256(private)
    raise KeyRefused(f"the key must be one for {algorithm}")


def _private_key(pem: bytes) -> object:
    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyRefused("the key must be a private key as PEM, without a password") from None


def sign(claims: Mapping[str, Any], key: Signer) -> str:
    """A token of these claims."""
    header = {"alg": key.algorithm, "kid": key.key_id, "typ": "JWT"}
    return compact(jwk.to_json(header), jwk.to_json(claims), key)


def compact(header: bytes, payload: bytes, key: Signer) -> str:
    """Header and payload, byte for byte, and their signature."""
    signed = f"{encode(header)}.{encode(payload)}"
    return f"{signed}.{encode(key.sign(signed.encode()))}"
