"""From a parsed document to the intermediate value and the findings. Pure: the same document makes the same reading."""

import re
from collections.abc import Sequence
from typing import Any, Final

from plimsoll.specgen import hosts, operations, servers
from plimsoll.specgen.document import Inexpressible, Node, SpecFault, shown
from plimsoll.specgen.model import Api, Finding, Reading
from plimsoll.specgen.names import prose
from plimsoll.specgen.operations import Findings
from plimsoll.specgen.parameters import unknown_members
from plimsoll.specgen.servers import Server

_VERSION: Final = re.compile(r"3\.[01]\.[0-9]{1,3}(?:-[0-9a-z.-]{1,32})?")
_KNOWN: Final = frozenset(
    "openapi info jsonSchemaDialect servers paths webhooks components security tags externalDocs".split()  # noqa: SIM905 - words read better than a list of quotes
)
_TITLE: Final = 120
SCHEMES: Final = 256


def read(document: Any, *, server: Server | None = None, only: Sequence[str] = ()) -> Reading:
    """What `document` says of its API. `server` takes the place of its servers, `only` chooses operations. Raises SpecFault."""
    root = Node(document, (), document)
    _check_version(root)
    findings = Findings()
    for unknown in unknown_members(root, _KNOWN):
        findings.note(unknown)
    title, version = _title(root)
    found = server or servers.read(root, findings)
    everything = operations.listed(root, findings)
    read_ones = operations.read(operations.chosen(everything, only), found.base, findings)
    made = hosts.callable_ones(read_ones, found.origin, findings.note)
    operations.wider(everything, made, found.base, findings)
    _note_webhooks(root, findings)
    _note_security(root, findings)
    if not made:
        raise SpecFault("#/paths", _nothing(findings))
    api = hosts.cut(Api(title, version, found.origin, made), findings.note)
    return Reading(api, tuple(findings))


def _title(root: Node) -> tuple[str, str]:
    info = root.get("info") or root.fault("must have info")
    return prose(info.text("title"), _TITLE), prose(info.text("version", ""), _TITLE)


def _nothing(findings: Findings) -> str:
    first = next((f"; {each.pointer}: {each.detail}" for each in findings if each.effect == "left out"), "")
    return f"no operation can be expressed{first}"


def _check_version(root: Node) -> None:
    members = root.members()
    if "swagger" in members:
        root.fault("must be OpenAPI 3.0 or 3.1, not Swagger 2.0: convert it first")
    version = root.text("openapi")
    if not _VERSION.fullmatch(version):
        root.child("openapi").fault(f"must be 3.0 or 3.1, not {shown(version)}")


def _note_webhooks(root: Node, findings: Findings) -> None:
    hooks = root.get("webhooks")
    if hooks is None:
        return
    for name in hooks.members():
        findings.note(
            Finding("left out", hooks.child(name).pointer, "webhook", "a guest is called by nobody")
        )


def _note_security(root: Node, findings: Findings) -> None:
    """What an operator has to do for each scheme: the broker attaches one credential, in one header."""
    components = root.get("components")
    schemes = components.get("securitySchemes") if components else None
    if schemes is None:
        return
    if len(schemes.members()) > SCHEMES:
        schemes.fault(f"must have at most {SCHEMES} members")
    for name in schemes.members():
        try:
            findings.note(_scheme(schemes.child(name).resolved()))
        except Inexpressible as reason:
            findings.note(Finding("partial", reason.pointer, reason.rule, reason.detail))


def _scheme(node: Node) -> Finding:
    kind = node.text("type")
    if kind == "apiKey" and node.text("in") == "header":
        return Finding(
            "note", node.pointer, "security", f"set credential.header to {shown(node.text('name'))}"
        )
    if kind == "http":
        scheme = node.text("scheme")
        if scheme.lower() == "bearer":
            return Finding(
                "note", node.pointer, "security", "set the profile's credential: it is sent as a Bearer token"
            )
        return Finding("partial", node.pointer, "security", f"scheme {shown(scheme)} is not made by a grant")
    if kind in {"oauth2", "openIdConnect"}:
        return Finding(
            "partial",
            node.pointer,
            "security",
            f"{kind} is not spoken: choose a credential that the API takes",
        )
    return Finding("partial", node.pointer, "security", f"{shown(kind)} credentials are not sent in a header")
