"""Written by build.py: what the guest is, and what it was built from."""

from typing import Final

WASM_SHA256: Final = "e66cd748849036a2fa844654464be5933a55ac61bf0dbf26da1e52a38aab224f"
INPUTS_SHA256: Final = "ec467475a98d09af952f1d223c72bc12d6b51306a098faf3d359d03b14ca4b32"
