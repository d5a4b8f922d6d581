"""What a sealed box is, for both sides: what it is bound to, how it is laid out, and how its key is agreed.

Layout: one byte of version, 8 bytes that name the recipient's key, 32 bytes of a fresh X25519 public key, then AES-256-GCM over
the binding and the secret. Key and nonce come by HKDF-SHA-256 from the agreement of the fresh key with the recipient's, so each
is used once. A new layout gets a new version; no field of the binding is ever dropped, a new one gets a default.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from plimsoll.contract.profiles import Profile

VERSION: Final = 1
KEY_ID_BYTES: Final = 8
PUBLIC_BYTES: Final = 32
HEADER_BYTES: Final = 1 + KEY_ID_BYTES + PUBLIC_BYTES
SECRET_BYTES: Final = 16 << 10
BOX_BYTES: Final = 1 << 20
_INFO: Final = b"plimsoll vault box 1"
_AES_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Binding:
    """All that decides what a secret is used for. A box opens only beside the binding it was sealed with.

    `terms` are the other settings of the credential (header, issuer, scope, algorithm and the like) by name.
    """

    profile: str
    origin: str
    credential_type: str
    audience: str
    allow: tuple[str, ...]
    allowed_callers: tuple[str, ...]
    terms: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        """The one text of this binding."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()


def binding_of(profile: Profile) -> Binding:
    """What the box beside `profile` is bound to: everything but the profile's sizes and its health check."""
    terms = {
        name: str(value)
        for name, value in asdict(profile.credential).items()
        if name not in {"type", "audience"}
    }
    return Binding(
        profile=profile.name,
        origin=profile.origin,
        credential_type=profile.credential.type.value,
        audience=profile.credential.audience,
        allow=profile.allow,
        allowed_callers=profile.allowed_callers,
        terms=tuple(sorted(terms.items())),
    )


def raw(public: X25519PublicKey) -> bytes:
    """A public key as its 32 bytes."""
    return public.public_bytes_raw()


def key_id(public: bytes) -> bytes:
    """Names a recipient's key."""
    return hashlib.sha256(b"plimsoll vault key 1" + public).digest()[:KEY_ID_BYTES]


def header(recipient: bytes, fresh: bytes) -> bytes:
    """The part of a box that is not encrypted; the rest is bound to it."""
    return bytes([VERSION]) + key_id(recipient) + fresh


def key_and_nonce(shared: bytes, recipient: bytes, fresh: bytes) -> tuple[bytes, bytes]:
    """What the rest is encrypted with, from the agreement."""
    derived = HKDF(SHA256(), _AES_KEY_BYTES + _NONCE_BYTES, salt=None, info=_INFO + fresh + recipient).derive(
        shared
    )
    return derived[:_AES_KEY_BYTES], derived[_AES_KEY_BYTES:]


def content(binding: Binding, secret: bytes) -> bytes:
    """What is encrypted: the binding's length, the binding, the secret."""
    bound = binding.encode()
    return len(bound).to_bytes(4, "big") + bound + secret


def split(plain: bytes) -> tuple[bytes, bytes]:
    """Binding and secret again."""
    end = 4 + int.from_bytes(plain[:4], "big")
    return plain[4:end], plain[end:]
