"""Written by build.py: what the guest is, and what it was built from."""

from typing import Final

WASM_SHA256: Final = "4e07b3337c63967f14947d974bcba1791f4eb8ee736bfa403d43d90ff660850b"
INPUTS_SHA256: Final = "963126bd93546c7e68eaefc7d959ff95484e386d974cc3bf871e4c2bdb584f74"
