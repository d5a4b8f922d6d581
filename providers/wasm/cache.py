"""The guest's machine code, kept where only this user can write (S9).

`compiled` answers with code that this program made from the pinned guest. A cached file is read once, and believed
only if everything holds: no symbolic link, a regular file, ours, mode 0600, the digest of exactly this key and these
bytes. Anything else is compiled again and replaced in one step. A directory that is not private to this user is refused.

`python -m providers.wasm.cache DIR [--memory-mb N]` fills the cache, so that a service starts without compiling.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import platform
import secrets
import stat
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from providers.wasm import capi, guest
from providers.wasm.guest.pins import WASM_SHA256
from providers.wasm.vm import MIB, EngineConfig, compile_module

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIGEST_BYTES: Final = 32
_MOST_BYTES: Final = 64 * MIB
_FILE_MODE: Final = 0o600
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CPUINFO: Final = Path("/proc/cpuinfo")


class CacheRefused(Exception):
    """The cache directory is not a directory that only this user can write."""


def compiled(directory: Path, config: EngineConfig) -> bytes:
    """Serialised machine code of the guest for `config`, from the cache or compiled now.

    Makes `directory` (0700) when it is missing. Raises `CacheRefused`, or `guest.GuestRefused` for a guest with another hash.
    A cache that cannot be written (a full disk, a read-only one) costs time, not the start.
    """
    code, _ = _obtain(directory, config)
    return code


def fill(directory: Path, config: EngineConfig) -> None:
    """Make sure that the cache has what `compiled` will look for. Raises `OSError` if it could not be written."""
    _, failure = _obtain(directory, config)
    if failure is not None:
        raise failure


def cache_key(config: EngineConfig) -> str:
    """What the machine code depends on, as one digest: guest, wasmtime, engine settings, processor."""
    settings = " ".join(f"{name}={value}" for name, value in sorted(asdict(config).items()))
    parts = (WASM_SHA256, capi.WASMTIME_VERSION, settings, _processor())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _obtain(directory: Path, config: EngineConfig) -> tuple[bytes, OSError | None]:
    key = cache_key(config)
    with _private(directory) as folder:
        code = _read(folder, key)
        if code is not None:
            return code, None
        code = compile_module(guest.load(), config)
        try:
            _replace(folder, key, code)
        except OSError as failure:
            return code, failure
        return code, None


def _processor() -> str:
    """The processor's kind and features; code for one may not run on another."""
    features = platform.processor()
    with contextlib.suppress(OSError):
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), features)
    return f"{sys.platform} {platform.machine()} {features}"


@contextlib.contextmanager
def _private(directory: Path) -> Iterator[int]:
    """A descriptor of the directory, once it is known to be ours alone."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(directory, _READ_FLAGS | os.O_DIRECTORY)
    except OSError as problem:
        raise CacheRefused(f"the cache directory cannot be opened: {problem.strerror}") from problem
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise CacheRefused("the cache directory must belong to this user and have mode 0700")
        yield folder
    finally:
        os.close(folder)


def _name(key: str) -> str:
    return f"guest-{key}.cwasm"


def _digest(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code).digest()


def _read(folder: int, key: str) -> bytes | None:
    """The code cached under `key`, or None when it is missing or anything about it is wrong."""
    try:
        file = os.open(_name(key), _READ_FLAGS, dir_fd=folder)
    except OSError:
        return None
    with open(file, "rb") as stream:  # noqa: PTH123  a descriptor, not a path: what was checked is what is read
        found = os.fstat(file)
        private = found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == _FILE_MODE
        if not (stat.S_ISREG(found.st_mode) and private and found.st_size <= _MOST_BYTES):
            return None
        data = stream.read(_MOST_BYTES)
    code = data[_DIGEST_BYTES:]
    return code if data[:_DIGEST_BYTES] == _digest(key, code) else None


def _replace(folder: int, key: str, code: bytes) -> None:
    """Put the code in place in one step: a reader sees the old file or the new one."""
    name = f".{secrets.token_hex(8)}.tmp"
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE, dir_fd=folder)
    try:
        with open(file, "wb") as stream:  # noqa: PTH123  as in _read
            os.fchmod(file, _FILE_MODE)
            stream.write(_digest(key, code) + code)
        os.rename(name, _name(key), src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def main(arguments: list[str] | None = None) -> int:
    """Fill a cache directory."""
    parser = argparse.ArgumentParser(description="Compile the wasm guest into a cache directory.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--memory-mb", type=int, default=EngineConfig().memory_bytes // MIB)
    options = parser.parse_args(arguments)
    try:
        fill(options.directory, EngineConfig(memory_bytes=options.memory_mb * MIB))
    except (CacheRefused, guest.GuestRefused, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
