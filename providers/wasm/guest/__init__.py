"""The guest: QuickJS-NG as WebAssembly, accepted only with the hash that this program was released with (S10).

`quickjs.wasm` is made from `shim.c`, `console.js`, the agent's `host.js` and hash-pinned inputs by `build.py`, which also
writes `pins.py`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from providers.wasm.guest.pins import WASM_SHA256

WASM: Final = Path(__file__).with_name("quickjs.wasm")


class GuestRefused(Exception):
    """The guest is not the one this program was released with, or not one that it can run."""


def load(path: Path = WASM) -> bytes:
    """The guest's bytes. Raises `GuestRefused` unless their SHA-256 is `WASM_SHA256`."""
    wasm = path.read_bytes()
    found = hashlib.sha256(wasm).hexdigest()
    if found != WASM_SHA256:
        raise GuestRefused(f"the guest has SHA-256 {found}, this program was released with {WASM_SHA256}")
    return wasm
