"""What an operation sends and what it answers: JSON values and texts; for everything else, a finding."""

import re
from collections.abc import Callable
from typing import Final

from plimsoll.specgen.document import Inexpressible, Node, shown
from plimsoll.specgen.model import Body, Finding, Form
from plimsoll.specgen.parameters import unknown_members
from plimsoll.specgen.shapes import shape

Note = Callable[[Finding], None]

MEDIA_TYPES: Final = 64
RESPONSES: Final = 128
_MEDIA: Final = re.compile(
    r"([a-z0-9][a-z0-9.+_-]{0,62}/[a-z0-9][a-z0-9.+_-]{0,62})(?: *; *charset=\"?utf-8\"?)?"
)
_KNOWN: Final = frozenset({"description", "content", "required"})
_NO_BODY: Final = frozenset({"GET", "HEAD"})


def read_body(operation: Node, method: str, note: Note) -> Body | None:
    """The argument `body`. Raises Inexpressible if a call needs one that cannot be sent."""
    found = operation.get("requestBody")
    if found is None:
        return None
    node = found.resolved()
    for unknown in unknown_members(node, _KNOWN):
        note(unknown)
    required = node.flag("required")
    try:
        return _body(node, method, required=required, note=note)
    except Inexpressible as reason:
        if required:
            raise
        note(Finding("partial", reason.pointer, reason.rule, f"{reason.detail}; calls have no body"))
        return None


def _body(node: Node, method: str, *, required: bool, note: Note) -> Body:
    if method in _NO_BODY:
        raise Inexpressible(node.pointer, "body", f"a call with {method} has no body")
    content = node.get("content")
    if content is None:
        node.fault("must have content")
    chosen = _chosen(content)
    if chosen is None:
        raise Inexpressible(content.pointer, "body", "the body is neither JSON nor text")
    written, content_type, form = chosen
    for other in content.members():
        if other != written:
            note(
                Finding(
                    "partial",
                    content.pointer,
                    "body",
                    f"the body is sent as {content_type}, not {shown(other)}",
                )
            )
    media = content.child(written)
    media.members()
    if "encoding" in media.value:
        note(Finding("note", media.pointer, "body", "encoding is for forms, and not expressed"))
    inside = "string" if form is Form.TEXT else shape(media.get("schema"))
    return Body(content_type, form, required, inside)


def _chosen(content: Node) -> tuple[str, str, Form] | None:
    """The media type as written, as sent, and what it holds: JSON before text, the plainest first, then by name."""
    if len(content.members()) > MEDIA_TYPES:
        content.fault(f"must have at most {MEDIA_TYPES} media types")
    usable = [(written, sent, form) for written in content.members() for sent, form in _usable(written)]
    return min(usable, key=_rank, default=None)


def _rank(candidate: tuple[str, str, Form]) -> tuple[bool, bool, str]:
    _, sent, form = candidate
    return form is not Form.JSON, sent not in {"application/json", "text/plain"}, sent


def _usable(written: str) -> list[tuple[str, Form]]:
    found = _MEDIA.fullmatch(written.lower() if written.isascii() else "")
    if found is None:
        return []
    sent = found[1]
    if sent == "application/json" or sent.endswith("+json"):
        return [(sent, Form.JSON)]
    return [(sent, Form.TEXT)] if sent.startswith("text/") else []


def read_answer(operation: Node, note: Note) -> str:
    """The shape of the answer that a success has; empty where none is described."""
    found = operation.get("responses")
    if found is None:
        return ""
    if len(found.members()) > RESPONSES:
        found.fault(f"must have at most {RESPONSES} responses")
    shapes = [
        _answer(found.child(status), status, note)
        for status in sorted(found.members())
        if not status.startswith("x-")
    ]
    return next(filter(None, shapes), "")


def _answer(response: Node, status: str, note: Note) -> str:
    try:
        node = response.resolved()
    except Inexpressible as reason:
        note(Finding("partial", reason.pointer, reason.rule, f"{reason.detail}; the answer is not described"))
        return ""
    succeeds = status.startswith("2") or status == "default"
    for word in ("headers", "links"):
        if succeeds and node.members().get(word):
            note(Finding("note", node.pointer, "answer", f"{word} of an answer are not described"))
    content = node.get("content")
    if content is None or not content.members():
        return ""
    chosen = _chosen(content)
    if chosen is None:
        note(
            Finding(
                "partial",
                content.pointer,
                "answer",
                "the answer is neither JSON nor text; it is not described",
            )
        )
        return ""
    written, _, form = chosen
    if not succeeds:
        return ""
    return "string" if form is Form.TEXT else shape(content.child(written).get("schema"))
