"""A schema as a short text for a reader, in the notation of TypeScript: bounded in depth, width and length, `…` where cut.

Nothing is decided by it. Property names that are no plain words are quoted, and no text of the document can leave its line.
"""

import json
import re
from itertools import islice
from typing import Any, Final

from plimsoll.specgen.document import Inexpressible, Node
from plimsoll.specgen.names import prose

DEPTH: Final = 4
WIDTH: Final = 24
LENGTH: Final = 600
NODES: Final = 120
REQUIRED: Final = 1024
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CUT: Final = "…"


def shape(schema: Node | None) -> str:
    """The schema's values in one line; `any` where nothing is said of them."""
    if schema is None:
        return "any"
    text = _Shaper().text(schema, 0)
    return text if len(text) <= LENGTH else text[: LENGTH - 1] + _CUT


class _Shaper:
    """Counts what it has looked at, so that schemas that refer to each other cost a bounded time."""

    def __init__(self) -> None:
        self._left = NODES
        self._open: list[tuple[str, ...]] = []

    def text(self, schema: Node, depth: int) -> str:
        self._left -= 1
        if depth > DEPTH or self._left < 0:
            return _CUT
        try:
            node = schema.resolved()
        except Inexpressible:
            return "any"
        if not isinstance(node.value, dict):
            return "any"
        if node.tokens in self._open:
            return _CUT
        self._open.append(node.tokens)
        text = self._described(node, node.value, depth)
        self._open.pop()
        return text

    def _described(self, node: Node, value: dict[str, Any], depth: int) -> str:
        if "const" in value:
            text = _literal(value["const"])
        elif isinstance(value.get("enum"), list):
            text = _joined([_literal(each) for each in value["enum"][:WIDTH]], " | ", len(value["enum"]))
        else:
            text = self._combined(node, value, depth) or self._typed(node, value, depth)
        nullable = value.get("nullable") is True and "null" not in text.split(" | ")
        return f"{text} | null" if nullable else text

    def _combined(self, node: Node, value: dict[str, Any], depth: int) -> str:
        for word, sign in (("oneOf", " | "), ("anyOf", " | "), ("allOf", " & ")):
            parts = value.get(word)
            if isinstance(parts, list) and parts:
                inside = node.child(word)
                nodes = [
                    Node(part, (*inside.tokens, str(at)), node.root) for at, part in enumerate(parts[:WIDTH])
                ]
                texts = list(dict.fromkeys(self.text(each, depth + 1) for each in nodes))
                return sign.join([*texts, _CUT] if len(parts) > WIDTH else texts)
        return ""

    def _typed(self, node: Node, value: dict[str, Any], depth: int) -> str:
        named = value.get("type")
        types = list(filter(_is_text, named[:8])) if isinstance(named, list) else [named]
        return " | ".join(dict.fromkeys(self._type(each, node, value, depth) for each in types)) or "any"

    def _type(self, name: str | None, node: Node, value: dict[str, Any], depth: int) -> str:
        if name == "array" or (name is None and "items" in value):
            inner = self.text(node.child("items"), depth + 1) if "items" in value else "any"
            return f"({inner})[]" if " " in inner else f"{inner}[]"
        if name == "object" or (name is None and "properties" in value):
            return self._object(node, value, depth)
        return name if name in {"string", "integer", "number", "boolean", "null"} else "any"

    def _object(self, node: Node, value: dict[str, Any], depth: int) -> str:
        properties, wanted = value.get("properties"), value.get("required")
        if not isinstance(properties, dict) or not properties:
            extra = value.get("additionalProperties")
            inner = (
                self.text(node.child("additionalProperties"), depth + 1) if isinstance(extra, dict) else "any"
            )
            return f"{{[key: string]: {inner}}}"
        required = set(filter(_is_text, wanted[:REQUIRED])) if isinstance(wanted, list) else set()
        inside = node.child("properties")
        parts = [
            f"{_key(name)}{'' if name in required else '?'}: {self.text(inside.child(name), depth + 1)}"
            for name in islice(properties, WIDTH)
        ]
        return "{" + _joined(parts, ", ", len(properties)) + "}"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _joined(parts: list[str], sign: str, total: int) -> str:
    return sign.join([*parts, _CUT] if total > len(parts) else parts)


def _key(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(prose(name, 64), ensure_ascii=False)


def _literal(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(prose(value, 64), ensure_ascii=False)
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    return "any"
