"""Written by build.py: what the guest is, and what it was built from."""

from typing import Final

WASM_SHA256: Final = "0c31d61636c2177cf52d8dbba0673b63e7df184f3a40dfea4b9f39cc321e6483"
INPUTS_SHA256: Final = "7698ccb8ff2bb05b25ca43896880bb3be3f84d7f8274017fb29df2893658c60b"
