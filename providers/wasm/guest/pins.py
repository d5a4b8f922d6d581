"""Written by build.py: what the guest is, and what it was built from."""

from typing import Final

WASM_SHA256: Final = "e84a1de263149981b7657dad7a51947a19fcfec8da8c70c3d750ec150e73ad6d"
INPUTS_SHA256: Final = "2e7f87fcfd277b1639b2e02e02f1f13fe613b7189074669254063315c54dc0ab"
