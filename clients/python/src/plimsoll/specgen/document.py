"""A place in a parsed document with the JSON pointer that leads there, read with its type; `$ref` followed within bounds.

What breaks the rules of OpenAPI or a bound of ours is a `SpecFault`, which ends the reading. What is well-formed but cannot
be expressed is `Inexpressible`, which whoever reads the surrounding thing turns into a finding.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from typing_extensions import override

NESTING: Final = 100
DOCUMENT_BYTES: Final = 16 << 20
OPERATIONS: Final = 4096
PARAMETERS: Final = 64
FINDINGS: Final = 10_000
HOPS: Final = 16
_SHOWN: Final = 120
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,6}")


class SpecFault(ValueError):
    """The document breaks a rule. `pointer` says where, `rule` which, in one phrase of ours."""

    def __init__(self, pointer: str, rule: str) -> None:
        super().__init__(pointer, rule)
        self.pointer = pointer
        self.rule = rule

    @override
    def __str__(self) -> str:
        return f"{self.pointer}: {self.rule}"


class Inexpressible(Exception):
    """A grant cannot express what stands at `pointer`."""

    def __init__(self, pointer: str, rule: str, detail: str) -> None:
        super().__init__(pointer, rule, detail)
        self.pointer = pointer
        self.rule = rule
        self.detail = detail


def shown(text: str) -> str:
    """A text of the document within a line of ours: quoted, in ASCII, cut."""
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands. `root` is the whole document."""

    value: Any
    tokens: tuple[str, ...]
    root: Any

    @property
    def pointer(self) -> str:
        """The JSON pointer as a URI fragment, in ASCII."""
        parts = (token.replace("~", "~0").replace("/", "~1") for token in self.tokens)
        text = "#" + "".join(f"/{part if len(part) <= _SHOWN else part[:_SHOWN] + '...'}" for part in parts)
        return "".join(char if " " <= char <= "~" else ascii(char)[1:-1] for char in text)

    def fault(self, rule: str) -> NoReturn:
        """Raise SpecFault for this place."""
        raise SpecFault(self.pointer, rule)

    def members(self) -> dict[str, Any]:
        """The value, which must be an object."""
        if not isinstance(self.value, dict):
            self.fault("must be an object")
        return self.value

    def child(self, token: str) -> "Node":
        """A member that is there."""
        return Node(self.value[token], (*self.tokens, token), self.root)

    def get(self, token: str) -> "Node | None":
        """A member of the object, or None."""
        return self.child(token) if token in self.members() else None

    def items(self, limit: int) -> Iterator["Node"]:
        """The elements of the array, of which there may be `limit`."""
        if not isinstance(self.value, list):
            self.fault("must be an array")
        if len(self.value) > limit:
            self.fault(f"must have at most {limit} elements")
        for number, each in enumerate(self.value):
            yield Node(each, (*self.tokens, str(number)), self.root)

    def text(self, token: str, default: str | None = None) -> str:
        """A member that is a string."""
        found = self.members().get(token, default)
        if found is None:
            self.fault(f"must have {token}")
        if not isinstance(found, str):
            self.child(token).fault("must be a string")
        return found

    def flag(self, token: str, *, default: bool = False) -> bool:
        """A member that is true or false."""
        found = self.members().get(token, default)
        if not isinstance(found, bool):
            self.child(token).fault("must be true or false")
        return found

    def resolved(self) -> "Node":
        """Where `$ref` leads, through further ones. Raises Inexpressible for what is outside of the document."""
        node = self
        for _ in range(HOPS):
            if not isinstance(node.value, dict) or "$ref" not in node.value:
                break
            node = node.target()
        else:
            self.fault(f"must not lead through more than {HOPS} $ref, or in a circle")
        return node

    def target(self) -> "Node":
        """Where this one `$ref` leads."""
        reference = self.text("$ref")
        if not reference.startswith("#"):
            raise Inexpressible(
                self.pointer,
                "ref",
                f"$ref {shown(reference)} leads out of the document, and nothing is fetched",
            )
        path = unquote(reference[1:], errors="replace")
        if path and not path.startswith("/"):
            raise Inexpressible(self.pointer, "ref", f"$ref {shown(reference)} is no JSON pointer")
        tokens = tuple(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])
        return Node(self._walk(tokens, reference), tokens, self.root)

    def _walk(self, tokens: tuple[str, ...], reference: str) -> Any:
        value = self.root
        for token in tokens:
            if isinstance(value, dict) and token in value:
                value = value[token]
            elif isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
                value = value[int(token)]
            else:
                self.fault(f"$ref {shown(reference)} leads to nothing")
        return value
