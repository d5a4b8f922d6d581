"""Written by build.py: what the guest is, and what it was built from."""

from typing import Final

WASM_SHA256: Final = "a75f41be928b84ebb3b0614cd7d43d204edb6792750ab25cbbf60c1b3a0e32a3"
INPUTS_SHA256: Final = "d3c23dd031510bfc3fde7d4fde2d19c84c3b3737790aa7fba022b0e6034f87dd"
