"""From an OpenAPI document to everything a grant for that API needs, offline and deterministic.

`read` makes one value of the document and a finding for each thing it cannot express; `write` makes the allow list, the
catalog, the two preambles and the description from that value alone. The document is a stranger's: whatever it says, the
generated code is of closed alphabets, and what it costs to read is bounded.
"""

from plimsoll.specgen.document import DOCUMENT_BYTES, NESTING, SpecFault
from plimsoll.specgen.model import Api, Finding, Reading
from plimsoll.specgen.outputs import Outputs, write
from plimsoll.specgen.reading import read
from plimsoll.specgen.servers import Server, parse_server

__all__ = [
    "DOCUMENT_BYTES",
    "NESTING",
    "Api",
    "Finding",
    "Outputs",
    "Reading",
    "Server",
    "SpecFault",
    "parse_server",
    "read",
    "write",
]
