"""Written by build.py: what the guest is, and what it was built from."""

from typing import Final

WASM_SHA256: Final = "c5d53c3db7afff0fa341438d72c6245c8bea0364d2e83c9f169e23902fee66b0"
INPUTS_SHA256: Final = "1448b516216e466ed52ef0ad04fc98b797a60544d06d30e2148fb6abd626ee01"
