"""Written by build.py: what the guest is, and what it was built from."""

from typing import Final

WASM_SHA256: Final = "e062eaccb88c3616978a6a915ad0acc29e077ae6e941d91681002c86556d205c"
INPUTS_SHA256: Final = "683cd17583e9f79c32c1f3ec2acb9f66622bdeff531b1f056b9c0b0190dfd53a"
