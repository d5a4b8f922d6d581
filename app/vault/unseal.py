"""The broker's side of the vault: it alone has the private key. Only the broker may import this.

Opening a box, step by step (the numbers are in the code):

1. The box has our layout and version.
2. It is for this key.
3. Its bytes are those that were sealed.
4. It is bound to exactly what the broker was handed beside it: profile, origin, credential type, audience, allow list,
   allowed callers, terms.
"""

import hmac
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.vault import box, keys
from app.vault.box import Binding, binding_of
from app.vault.keys import KeyUnusable

__all__ = ["Binding", "BoxFault", "KeyUnusable", "Secret", "Unsealer", "binding_of", "load"]


class BoxFault(StrEnum):
    """Why a box stays shut; append-only."""

    MALFORMED = "malformed"
    OTHER_KEY = "other_key"
    ALTERED = "altered"
    BOUND_ELSEWHERE = "bound_elsewhere"


@dataclass(frozen=True, slots=True)
class Secret:
    """An opened secret. Only `value` shows it."""

    value: bytes = field(repr=False)


class Unsealer:
    """The private key, and what can be done with it."""

    def __init__(self, private: X25519PrivateKey) -> None:
        """Keep the key."""
        self._private = private
        self._public = box.raw(private.public_key())

    def open(self, sealed: bytes, binding: Binding) -> Secret | BoxFault:
        """The secret in `sealed`, if it was sealed for this key beside this very binding."""
        # 1. Layout and version.
        if not box.HEADER_BYTES < len(sealed) <= box.BOX_BYTES or sealed[0] != box.VERSION:
            return BoxFault.MALFORMED
        header, rest = sealed[: box.HEADER_BYTES], sealed[box.HEADER_BYTES :]
        fresh = header[1 + box.KEY_ID_BYTES :]
        # 2. For this key.
        if header != box.header(self._public, fresh):
            return BoxFault.OTHER_KEY
        # 3. As it was sealed.
        plain = self._decrypt(fresh, header, rest)
        if plain is None:
            return BoxFault.ALTERED
        # 4. For this very use.
        bound, secret = box.split(plain)
        return Secret(secret) if hmac.compare_digest(bound, binding.encode()) else BoxFault.BOUND_ELSEWHERE

    def _decrypt(self, fresh: bytes, header: bytes, rest: bytes) -> bytes | None:
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(fresh))
            key, nonce = box.key_and_nonce(shared, self._public, fresh)
            return AESGCM(key).decrypt(nonce, rest, header)
        except (InvalidTag, ValueError):  # a fresh key of low order agrees on nothing
            return None


def load(path: Path) -> Unsealer:
    """The private key in a file of our own. Raises KeyUnusable."""
    return Unsealer(X25519PrivateKey.from_private_bytes(keys.read_private(path)))
