"""The software identity of an image: the digest of its OCI manifest, computed from what the daemon exports.

An image that never was in a registry has no manifest, and one that was may have several (a layer compressed twice is two
blobs). So the manifest is made here, always the same way: the image's configuration as it is, its layers as plain tar files,
JSON with sorted keys and no spaces. Whoever has the image computes the same bytes (docs/run-records.md).

The daemon is believed nothing: a configuration counts if its SHA-256 is the image's content id, a layer if its SHA-256 is in
that configuration. When anything is missing there is no identity.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_BLOCK: Final = 512
_AT_ONCE: Final = 4 << 20
"""Bytes that are hashed in one go, in a thread."""
_MOST_BYTES: Final = 64 << 30
_MOST_FILES: Final = 4096
_MOST_CONFIG: Final = 1 << 20
_REGULAR: Final = (b"0", b"\0")
_IDENTITY: Final = re.compile(r"oci-manifest:[a-z0-9]{1,16}/[a-z0-9]{1,16}@sha256:[0-9a-f]{64}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_REMEMBERED: Final = 32


async def manifest_of(export: AsyncIterator[bytes], image: Mapping[str, Any]) -> str:
    """`oci-manifest:<os>/<arch>@sha256:<digest>` of this image (its inspect answer); empty when it does not add up.

    `export` is what `GET /images/{id}/get` streams; whoever gives it bounds how long that takes.
    """
    waiting = bytearray()
    try:
        contents = Contents(str(image.get("Id")))
        async for part in export:
            waiting += part
            if len(waiting) >= _AT_ONCE:
                await asyncio.to_thread(contents.feed, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(contents.feed, bytes(waiting))
        return _identity(contents, image)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _identity(contents: "Contents", image: Mapping[str, Any]) -> str:
    """Raises ValueError, KeyError, TypeError when it does not add up."""
    config = json.loads(contents.config)
    layers = config["rootfs"]["diff_ids"]
    platform = (config["os"], config["architecture"])
    if layers != image["RootFS"]["Layers"] or platform != (image["Os"], image["Architecture"]):
        raise ValueError("the daemon describes another image")
    manifest = canonical(
        contents.digest, len(contents.config), [(name, contents.sizes[name]) for name in layers]
    )
    identity = f"oci-manifest:{'/'.join(platform)}@sha256:{hashlib.sha256(manifest).hexdigest()}"
    return identity if _IDENTITY.fullmatch(identity) else ""


def canonical(config: str, config_size: int, layers: list[tuple[str, int]]) -> bytes:
    """An OCI image manifest over these digests and sizes, as the bytes whose digest is the identity."""
    kind = "application/vnd.oci.image."
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}manifest.v1+json",
        "config": {"mediaType": f"{kind}config.v1+json", "digest": config, "size": config_size},
        "layers": [
            {"mediaType": f"{kind}layer.v1.tar", "digest": digest, "size": size} for digest, size in layers
        ],
    }
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()


@dataclass(slots=True)
class _File:
    """The regular file that is passing by."""

    left: int
    size: int
    hash: "hashlib._Hash"
    start: bytearray


class Contents:
    """Hashes every regular file of a tar that comes in pieces, and keeps the one that is the image's configuration.

    Names are not looked at: what counts is what a file's bytes are, and old and new daemons name them differently.
    """

    def __init__(self, image_id: str) -> None:
        """For the image with this content id. Raises ValueError when it is none."""
        if not _DIGEST.fullmatch(image_id):
            raise ValueError("no content id")
        self.digest = image_id
        self.config = b""
        self.sizes: dict[str, int] = {}
        """Size by digest, of every regular file."""
        self._rest = bytearray()
        self._file: _File | None = None
        self._skip = 0
        self._bytes = 0

    def feed(self, data: bytes) -> None:
        """The next piece. Raises ValueError when it is no tar, or too much."""
        self._bytes += len(data)
        if self._bytes > _MOST_BYTES or len(self.sizes) > _MOST_FILES:
            raise ValueError("too much")
        self._rest += data
        view, at = bytes(self._rest), 0
        while at < len(view):
            taken = self._take(memoryview(view)[at:])
            if not taken:
                break
            at += taken
        self._rest = bytearray(view[at:])

    def _take(self, view: memoryview) -> int:
        """How many bytes it could use."""
        if self._file is not None:
            return self._take_content(self._file, view)
        if self._skip:
            taken = min(self._skip, len(view))
            self._skip -= taken
            return taken
        if len(view) < _BLOCK:
            return 0
        self._take_header(bytes(view[:_BLOCK]))
        return _BLOCK

    def _take_header(self, header: bytes) -> None:
        if not any(header):
            return  # the end, or a gap before it
        if int(header[148:156].split(b"\0")[0], 8) != sum(header[:148]) + 8 * 0x20 + sum(header[156:]):
            raise ValueError("no tar")
        field = header[124:136]
        # Sizes beyond eight digits of base 8 are written in base 256, marked by the first bit.
        size = int.from_bytes(field[1:], "big") if field[0] & 0x80 else int(field.strip(b" \0") or b"0", 8)
        if size < 0:
            raise ValueError("no tar")
        padded = -(-size // _BLOCK) * _BLOCK
        if header[156:157] in _REGULAR:
            self._skip = padded - size
            self._file = _File(size, size, hashlib.sha256(), bytearray())
            self._take_content(self._file, memoryview(b""))
        else:
            self._skip = padded

    def _take_content(self, file: _File, view: memoryview) -> int:
        taken = view[: file.left]
        file.hash.update(taken)
        file.left -= len(taken)
        if file.size <= _MOST_CONFIG:
            file.start += taken
        if not file.left:
            self._end(file)
        return len(taken)

    def _end(self, file: _File) -> None:
        digest = f"sha256:{file.hash.hexdigest()}"
        self.sizes[digest] = file.size
        if digest == self.digest:
            self.config = bytes(file.start)
        self._file = None


# --- what was computed before ---------------------------------------------------------------------------------------------


def recall(state_dir: Path, image_id: str) -> str | None:
    """The identity that was computed before for this content id; None when there is none to be trusted."""
    with contextlib.suppress(OSError, UnicodeError):
        descriptor = os.open(
            _path(state_dir, image_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        )
        with open(descriptor, "rb") as file:  # noqa: PTH123  # a descriptor has no path
            found = os.fstat(descriptor)
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
            text = file.read(256).decode("ascii").rstrip("\n") if ours else ""
        return text if _IDENTITY.fullmatch(text) else None
    return None


def remember(state_dir: Path, image_id: str, identity: str) -> None:
    """Keep it for `recall`; the last few images only. Not being able to is no fault: it is computed again."""
    path = _path(state_dir, image_id)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with contextlib.suppress(OSError):
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123  # a descriptor has no path
            file.write(identity.encode() + b"\n")
        part.replace(path)
        kept = sorted(state_dir.glob("software-*"), key=lambda each: each.lstat().st_mtime_ns, reverse=True)
        for old in kept[_MOST_REMEMBERED:]:
            old.unlink(missing_ok=True)


def _path(state_dir: Path, image_id: str) -> Path:
    digest = image_id.removeprefix("sha256:")
    return state_dir / f"software-{digest if re.fullmatch('[0-9a-f]{64}', digest) else 'none'}"
