"""The API's side of the vault: it holds a public key, so it can seal and can open nothing, not even what it sealed."""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.vault import box
from app.vault.box import Binding, binding_of

__all__ = ["Binding", "binding_of", "seal"]


def seal(secret: bytes, binding: Binding, recipient: X25519PublicKey) -> bytes:
    """`secret` in a box that only the holder of the recipient's private key opens, and only beside `binding`."""
    if not 0 < len(secret) <= box.SECRET_BYTES:
        raise ValueError(f"a secret must have 1 to {box.SECRET_BYTES} bytes")
    fresh = X25519PrivateKey.generate()
    header = box.header(box.raw(recipient), box.raw(fresh.public_key()))
    key, nonce = box.key_and_nonce(fresh.exchange(recipient), box.raw(recipient), box.raw(fresh.public_key()))
    sealed = header + AESGCM(key).encrypt(nonce, box.content(binding, secret), header)
    if len(sealed) > box.BOX_BYTES:
        raise ValueError(f"a box must have at most {box.BOX_BYTES} bytes")
    return sealed
