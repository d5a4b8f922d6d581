"""Written by build.py: what the guest is, and what it was built from."""

from typing import Final

WASM_SHA256: Final = "bf4fa2f517fe703b277d73c22d5d21e19e86c860f2b8d231bb9898d5e73fcfe9"
INPUTS_SHA256: Final = "dbdbca8ae0e356f4c9b075b2f556c8e5795c23df531a7146a740e11df41a4884"
