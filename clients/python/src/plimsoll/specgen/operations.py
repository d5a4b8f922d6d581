"""The operations of a document: which are asked for, and each as a function with its route, or a finding that says why not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from plimsoll.contract.grants import ANY_SEGMENT, METHODS, ROUTES, GrantFault, Route, parse_route
from plimsoll.specgen import bodies, parameters
from plimsoll.specgen.document import FINDINGS, OPERATIONS, Inexpressible, Node, SpecFault, shown
from plimsoll.specgen.model import Finding, Operation, Parameter, Place
from plimsoll.specgen.names import Names, differs, identifier, prose
from plimsoll.specgen.parameters import unknown_members
from plimsoll.specgen.paths import Variable, parse_template

CALLABLE: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""Methods that the `host` object has a function for, in the order of the outputs."""
_VERBS: Final = (*CALLABLE, "HEAD", "OPTIONS", "TRACE")
_PATH_ITEM: Final = frozenset(
    {"$ref", "summary", "description", "servers", "parameters", *map(str.lower, _VERBS)}
)
_BESIDE_A_REFERENCE: Final = frozenset({"$ref", "summary", "description"})
_OPERATION: Final = frozenset(
    "tags summary description externalDocs operationId parameters requestBody responses callbacks deprecated security"  # noqa: SIM905 - words read better than a list of quotes
    " servers".split()
)


@dataclass(frozen=True, slots=True)
class Listed:
    """One operation of the document, before anything but its place is read."""

    method: str
    path: str
    path_item: Node
    node: Node
    operation_id: str

    @property
    def title(self) -> str:
        return f"{self.method} {self.path}"


class Findings(list[Finding]):
    """Findings up to a bound, each once: what many operations share is told of once."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[Finding] = set()

    def note(self, finding: Finding) -> None:
        """Add one. Raises SpecFault where there are too many for anybody to read."""
        if finding in self._known:
            return
        self._known.add(finding)
        if len(self) >= FINDINGS:
            raise SpecFault(
                finding.pointer, f"there are over {FINDINGS} findings: choose operations with --only"
            )
        self.append(finding)


def listed(document: Node, findings: Findings) -> list[Listed]:
    """Every operation of the document, in order of paths and methods."""
    paths = document.get("paths")
    if paths is None:
        return []
    found: list[Listed] = []
    for path in sorted(paths.members()):
        if path.startswith("x-"):
            continue
        found.extend(_of_path(path, paths.child(path), findings))
        if len(found) > OPERATIONS:
            paths.fault(f"must have at most {OPERATIONS} operations")
    return found


def _of_path(path: str, node: Node, findings: Findings) -> Iterator[Listed]:
    try:
        item = node.resolved()
    except Inexpressible as reason:
        findings.note(Finding("left out", reason.pointer, reason.rule, reason.detail))
        return
    if item is not node:
        for beside in sorted(node.members().keys() - _BESIDE_A_REFERENCE):
            if not beside.startswith("x-"):
                findings.note(
                    Finding("left out", node.child(beside).pointer, "ref", "it stands beside a $ref")
                )
    for unknown in unknown_members(item, _PATH_ITEM):
        findings.note(replace(unknown, effect="left out"))
    for verb in _VERBS:
        if (operation := item.get(verb.lower())) is not None:
            yield Listed(verb, path, item, operation, operation.text("operationId", ""))


def chosen(all_of_them: Sequence[Listed], only: Sequence[str]) -> list[Listed]:
    """Those that `only` names by method, by method and path, or by operationId. Raises SpecFault for a name of none."""
    if not only:
        return list(all_of_them)
    for name in only:
        if not any(_is_named(each, name) for each in all_of_them):
            raise SpecFault("#/paths", f"--only {shown(name)} names no operation")
    return [each for each in all_of_them if any(_is_named(each, name) for name in only)]


def _is_named(each: Listed, name: str) -> bool:
    return name in {each.method, each.title} or name == each.operation_id != ""


def read(chosen_ones: Sequence[Listed], base: tuple[str, ...], findings: Findings) -> tuple[Operation, ...]:
    """The functions that can be made. Raises SpecFault where a grant cannot have as many routes."""
    names = Names()
    found = []
    for each in chosen_ones:
        try:
            operation = _operation(each, base, findings)
        except Inexpressible as reason:
            findings.note(
                Finding("left out", reason.pointer, reason.rule, f"{shown(each.title)}: {reason.detail}")
            )
            continue
        found.append(_named(operation, each, names, findings))
    if len({each.route for each in found}) > ROUTES or len(found) > ROUTES:
        raise SpecFault(
            "#/paths", f"a grant has at most {ROUTES} routes, not {len(found)}: choose with --only"
        )
    return tuple(found)


def _operation(each: Listed, base: tuple[str, ...], findings: Findings) -> Operation:
    if each.method not in CALLABLE:
        raise Inexpressible(each.node.pointer, "method", f"calls are made with {', '.join(CALLABLE)}")
    for owner in (each.path_item, each.node):
        if owner.members().get("servers"):
            raise Inexpressible(
                owner.pointer, "server", "it has servers of its own, and a grant has one origin"
            )
    segments, closing = _segments(each, base)
    arguments = parameters.read(each.path_item, each.node, segments, findings.note)
    body = bodies.read_body(each.node, each.method, findings.note)
    _note_the_rest(each.node, findings)
    return Operation(
        name="",
        route=_route(each, segments, arguments, closing=closing),
        segments=_numbered(segments, arguments),
        parameters=arguments,
        body=body,
        answer=bodies.read_answer(each.node, findings.note),
        summary=prose(each.node.text("summary", "") or each.node.text("description", "")),
        deprecated=each.node.flag("deprecated"),
    )


def _note_the_rest(node: Node, findings: Findings) -> None:
    for unknown in unknown_members(node, _OPERATION):
        findings.note(unknown)
    if node.members().get("callbacks"):
        callbacks = node.child("callbacks")
        findings.note(Finding("left out", callbacks.pointer, "callback", "a guest is called by nobody"))
    if node.value.get("security") == []:
        findings.note(
            Finding(
                "note", node.pointer, "security", "it needs no credential, and gets the grant's as all do"
            )
        )


def _route(
    each: Listed, segments: tuple[str, ...], arguments: tuple[Parameter, ...], *, closing: bool
) -> Route:
    """Through the parser of profiles, so that no route is made which a profile may not have."""
    query = tuple(sorted(one.wire for one in arguments if one.place is Place.QUERY))
    try:
        return parse_route(str(Route(each.method, _plain(segments), query, closing)))
    except GrantFault as fault:
        raise Inexpressible(each.node.pointer, "route", str(fault)) from None


def _segments(each: Listed, base: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    segments, closing = parse_template(each.path, each.node.pointer)
    # Below a server's path, `/` is that path with a slash behind it.
    return (*base, *segments), closing or bool(base and not segments)


def _plain(segments: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(ANY_SEGMENT if isinstance(segment, Variable) else segment for segment in segments)


def _numbered(segments: tuple[str, ...], arguments: tuple[Parameter, ...]) -> tuple[str | int, ...]:
    place = {each.wire: at for at, each in enumerate(arguments) if each.place is Place.PATH}
    return tuple(place[str(each)] if isinstance(each, Variable) else each for each in segments)


def _named(operation: Operation, each: Listed, names: Names, findings: Findings) -> Operation:
    told = each.operation_id or f"{each.method} {each.path}"
    name = names.give(identifier(told, "op"))
    if each.operation_id and differs(name, told):
        findings.note(
            Finding("note", each.node.pointer, "name", f"operation {shown(told)} is the function {name}")
        )
    return replace(operation, name=name)


def wider(
    all_of_them: Sequence[Listed], made: Sequence[Operation], base: tuple[str, ...], findings: Findings
) -> None:
    """A finding for each operation without a function that a route of another approves all the same: `*` is any segment."""
    exact = {(each.route.method, each.route.segments, each.route.closing_slash) for each in made}
    for each in all_of_them:
        try:
            segments, closing = _segments(each, base)
        except Inexpressible:
            continue
        plain = _plain(segments)
        if each.method not in METHODS or (each.method, plain, closing) in exact:
            continue
        route = next(
            (one.route for one in made if _approves(one.route, each.method, plain, closing=closing)), None
        )
        if route is not None:
            text = f"{route.method} {_path(route)} also approves {shown(each.title)}, which was not asked for"
            findings.note(Finding("wider", each.node.pointer, "wildcard", text))


def _approves(route: Route, method: str, segments: tuple[str, ...], *, closing: bool) -> bool:
    """Whether some call of that operation is one of the route's."""
    if route.method != method or route.closing_slash != closing or len(route.segments) != len(segments):
        return False
    return all(own in {ANY_SEGMENT, other} for own, other in zip(route.segments, segments, strict=True))


def _path(route: Route) -> str:
    return str(replace(route, query=())).partition(" ")[2]
