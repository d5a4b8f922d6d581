"""The pair of key files: a public one for the API, a private one for the broker's user alone.

Each is one line, `plimsoll-vault-public-1 BASE64URL` or `plimsoll-vault-private-1 BASE64URL`. A private file that others can
reach is refused, never repaired: what they may have read already is for the operator to judge. Errors name files and
rules, never content.
"""

import base64
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

KEY_BYTES: Final = 32
SECRET_CHARACTERS: Final = 32
_PUBLIC: Final = "plimsoll-vault-public-1"
_PRIVATE: Final = "plimsoll-vault-private-1"
_LINE: Final = re.compile(rb"(plimsoll-vault-(?:public|private)-1) ([A-Za-z0-9_-]{43})\n")
_FILE_BYTES: Final = 128
_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022


class KeyUnusable(Exception):
    """A key file that is missing, not as it must be, or within others' reach. The message names file and rule."""


def make_pair(private: Path, public: Path) -> None:
    """Write a new pair, the private file 0600. Raises KeyUnusable; an existing file is never overwritten."""
    key = X25519PrivateKey.generate()
    _write(private, _PRIVATE, key.private_bytes_raw(), 0o600)
    try:
        _write(public, _PUBLIC, key.public_key().public_bytes_raw(), 0o644)
    except KeyUnusable:
        private.unlink()
        raise


def read_private(path: Path) -> bytes:
    """The private key's bytes, from a regular file of ours that nobody else can reach. Raises KeyUnusable."""
    return _read(path, _PRIVATE, _OTHERS)


def read_public(path: Path) -> X25519PublicKey:
    """The public key, from a file that only its owner can write, us or root. Raises KeyUnusable."""
    return X25519PublicKey.from_public_bytes(_read(path, _PUBLIC, _OTHERS_WRITE))


def read_secret(path: Path) -> str:
    """A secret of one line in a file of ours that nobody else can reach. Raises KeyUnusable."""
    line = _line_of(path, _OTHERS, private=True)
    secret = line.strip()
    if len(secret) < SECRET_CHARACTERS or not secret.isascii() or len(line) == _FILE_BYTES:
        raise KeyUnusable(f"{path} must hold one line of {SECRET_CHARACTERS} to {_FILE_BYTES - 2} characters")
    return secret.decode()


def _write(path: Path, kind: str, key: bytes, mode: int) -> None:
    line = f"{kind} {base64.urlsafe_b64encode(key).rstrip(b'=').decode()}\n".encode()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as error:
        raise KeyUnusable(f"{path}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise KeyUnusable(f"{path}: {error.strerror}") from None


def _read(path: Path, kind: str, forbidden: int) -> bytes:
    line = _line_of(path, forbidden, private=kind == _PRIVATE)
    found = _LINE.fullmatch(line)
    if found is None or found[1].decode() != kind:
        raise KeyUnusable(f"{path} must be one line: {kind} and a key")
    key = base64.urlsafe_b64decode(found[2] + b"=")
    if base64.urlsafe_b64encode(key).rstrip(b"=") != found[2]:
        raise KeyUnusable(f"{path} must hold its key as strict base64url")
    return key


def _line_of(path: Path, forbidden: int, *, private: bool) -> bytes:
    try:
        # Not blocking: a FIFO in the file's place is refused, not waited on.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise KeyUnusable(f"{path}: {error.strerror}") from None
    try:
        _check(path, os.fstat(descriptor), forbidden, private=private)
        return os.read(descriptor, _FILE_BYTES)
    except OSError as error:
        raise KeyUnusable(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _check(path: Path, found: os.stat_result, forbidden: int, *, private: bool) -> None:
    owners = {os.geteuid()} if private else {os.geteuid(), 0}
    if not stat.S_ISREG(found.st_mode):
        raise KeyUnusable(f"{path} must be a regular file")
    if found.st_uid not in owners:
        raise KeyUnusable(f"{path} belongs to uid {found.st_uid}, and this is uid {os.geteuid()}")
    if found.st_mode & forbidden:
        raise KeyUnusable(f"{path} can be {'reached' if private else 'changed'} by others")
    if private and found.st_nlink != 1:
        raise KeyUnusable(f"{path} must have one name: the others may be anywhere")
