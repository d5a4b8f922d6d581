"""Public keys as a JWK set (RFC 7517) shows them, alike for whoever signs with one and for whoever publishes it.

Nothing here takes a private key or a shared secret, and `document` lets out no member that a public key does not have.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

MEMBERS: Final = frozenset({"alg", "crv", "kid", "kty", "use", "x", "y"})
KINDS: Final = frozenset({("OKP", "Ed25519", "EdDSA"), ("EC", "P-256", "ES256")})
"""Type, curve and algorithm of the keys there are."""
_P256_BYTES: Final = 32


def encode(data: bytes) -> str:
    """`data` as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def ed25519(raw: bytes) -> dict[str, str]:
    """The members that an Ed25519 key requires, from its 32 bytes."""
    return {"crv": "Ed25519", "kty": "OKP", "x": encode(raw)}


def p256(x: int, y: int) -> dict[str, str]:
    """The members that a key on P-256 requires, from its point."""
    return {
        "crv": "P-256",
        "kty": "EC",
        "x": encode(x.to_bytes(_P256_BYTES, "big")),
        "y": encode(y.to_bytes(_P256_BYTES, "big")),
    }


def thumbprint(required: Mapping[str, str]) -> str:
    """RFC 7638, over the members that are required for the key's type: the name of each key."""
    return encode(hashlib.sha256(to_json(required)).digest())


def published(required: Mapping[str, str], algorithm: str) -> dict[str, str]:
    """The key as APIs read it."""
    return {**required, "alg": algorithm, "kid": thumbprint(required), "use": "sig"}


def document(texts: Iterable[str]) -> bytes:
    """The JWK set of these keys, each a text of JSON, each key once; what is no public key of a known kind is not in it."""
    keys = {key["kid"]: key for text in texts if (key := _read(text)) is not None}
    return to_json({"keys": [keys[name] for name in sorted(keys)]})


def to_json(value: Mapping[str, Any]) -> bytes:
    """One text for one value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _read(text: str) -> dict[str, str] | None:
    try:
        key = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(key, dict) or not all(isinstance(each, str) for each in key.values()):
        return None
    kind = (key.get("kty"), key.get("crv"), key.get("alg"))
    return key if key.keys() <= MEMBERS and "kid" in key and kind in KINDS else None
