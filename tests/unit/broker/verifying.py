"""How an API verifies a token, with `cryptography` alone. What it trusts it pins: algorithm, issuer, audience and keys.

Nothing of the token chooses how it is verified: its `alg` must be the expected one, its `kid` only picks among our keys.
"""

import hmac
import json
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from broker.jose import decode

LEEWAY_S = 5


class NotVerified(Exception):
    """The token is not for us, not now, or not from whom it says."""


def verify(
    token: str,
    keys: Mapping[str, Mapping[str, str] | bytes],
    *,
    algorithm: str,
    issuer: str,
    audience: str,
    now: float,
) -> dict[str, Any]:
    """The claims of a token that is for us, now. `keys` are JWKs (or, for HS256, secrets) by key id. Raises NotVerified."""
    try:
        header_text, payload_text, signature_text = token.split(".")
        header, payload, signature = (decode(part) for part in (header_text, payload_text, signature_text))
        told, claims = json.loads(header), json.loads(payload)
        if told["alg"] != algorithm or told["typ"] != "JWT":
            raise NotVerified("another algorithm")
        _check(keys[told["kid"]], algorithm, f"{header_text}.{payload_text}".encode(), signature)
        ours = (
            claims["iss"] == issuer
            and claims["aud"] == audience
            and isinstance(claims["sub"], str)
            and claims["sub"]
        )
        if not ours or not claims["iat"] - LEEWAY_S <= now < claims["exp"] + LEEWAY_S:
            raise NotVerified("for somebody else, or not for now")
    except (ValueError, KeyError, TypeError, InvalidSignature):
        raise NotVerified("not a token of ours") from None
    return dict(claims)


def _check(key: Mapping[str, str] | bytes, algorithm: str, signed: bytes, signature: bytes) -> None:
    if isinstance(key, bytes):
        if algorithm != "HS256" or not hmac.compare_digest(hmac.digest(key, signed, "sha256"), signature):
            raise NotVerified("another signature")
    elif (algorithm, key["crv"]) == ("EdDSA", "Ed25519"):
        ed25519.Ed25519PublicKey.from_public_bytes(decode(key["x"])).verify(signature, signed)
    elif (algorithm, key["crv"]) == ("ES256", "P-256"):
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        x, y = (int.from_bytes(decode(key[name]), "big") for name in ("x", "y"))
        public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        public.verify(encode_dss_signature(r, s), signed, ec.ECDSA(SHA256()))
    else:
        raise NotVerified("another kind of key")
