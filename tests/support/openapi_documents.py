"""OpenAPI documents for tests: small ones by hand, and hypothesis strategies for odd and hostile ones."""

from typing import Any

from hypothesis import strategies as st

VERBS = ("get", "post", "put", "patch", "delete")
PATH_WORDS = ("v1", "employees", "a-b", "~me", "x.y", "__proto__", "constructor", "0", "7")
HOSTILE = (
    "*/ globalThis.pwned = 1; /*",
    "// x\nglobalThis.pwned = 1\n//",
    "\u2028globalThis.pwned = 1\u2028",
    '"); globalThis.pwned = 1; ("',
    "`${globalThis.pwned = 1}`",
    "</script><script>globalThis.pwned = 1</script>",
    '"""\nimport builtins; builtins.pwned = 1\n"""',
    "'''\nimport builtins; builtins.pwned = 1\n'''",
    "# x\nimport builtins; builtins.pwned = 1",
    "{builtins.__dict__.update(pwned=1)}",
    "%s %d @OPERATIONS@",
    "\\",
    '\\"; globalThis.pwned = 1; //',
    '"]\n[other]\nallow = ["GET /secret"]\nx = ["',
    "- `stolen()` (`DELETE /everything`)",
    "\n- `stolen()` (`DELETE /everything`)\n",
    "\x00\x1b[2J\x7f",
    "\u202egnp.exe",
    "g\u0435t",  # a Cyrillic letter
    "\u212aey",  # the Kelvin sign, which becomes a k in lower case
    "\U0001f600",
    "__proto__",
    "constructor",
    "prototype",
    "then",
    "class",
    "import",
    "await",
    "self",
    "api",
    "body",
    "host",
    "toString",
    "",
)
"""Texts that would do something if they were ever code, another line, or a member of an object's prototype."""

hostile_text = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20))
query_names = st.one_of(
    st.sampled_from(
        ("page", "Page", "page_", "filter[a]", "__proto__", "constructor", "$top", "class", "body", "1")
    ),
    hostile_text,
)


def document(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A document around `paths`."""
    whole = {
        "openapi": "3.1.0",
        "info": {"title": "HR", "version": "1"},
        "servers": [{"url": "https://hr.example.com"}],
        "paths": paths,
    }
    return whole | more


def one(path: str = "/v1/employees", verb: str = "get", **operation: Any) -> dict[str, Any]:
    """A document with one operation."""
    return document({path: {verb: operation}})


def parameter(name: str, place: str = "query", kind: str = "string", **more: Any) -> dict[str, Any]:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, "schema": {"type": kind}, **required, **more}


kinds = st.sampled_from(("string", "integer", "number", "boolean"))
schemas: st.SearchStrategy[dict[str, Any]] = st.one_of(
    kinds.map(lambda kind: {"type": kind}),
    kinds.map(lambda kind: {"type": "array", "items": {"type": kind}}),
    st.just({}),
    hostile_text.map(lambda text: {"type": "string", "enum": [text], "description": text}),
)


@st.composite
def _parameters(draw: st.DrawFn, in_path: list[str]) -> list[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": {"type": draw(kinds)}} for name in in_path
    ]
    for name in draw(st.lists(query_names, max_size=4, unique=True)):
        more = {"required": draw(st.booleans()), "schema": draw(schemas), "description": draw(hostile_text)}
        found.append({"name": name, "in": "query", **more})
    headers = st.lists(st.sampled_from(("If-Match", "Idempotency-Key", "X-Other")), max_size=2, unique=True)
    found.extend({"name": name, "in": "header", "schema": {"type": "string"}} for name in draw(headers))
    return draw(st.permutations(found))


@st.composite
def _operations(draw: st.DrawFn, in_path: list[str], verb: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": draw(hostile_text),
        "description": draw(hostile_text),
        "parameters": draw(_parameters(in_path)),
    }
    if draw(st.booleans()):
        operation["operationId"] = draw(hostile_text)
    if verb != "get" and draw(st.booleans()):
        media = draw(
            st.sampled_from(("application/json", "application/merge-patch+json", "text/plain", "image/png"))
        )
        schema = {"type": "object", "properties": {draw(hostile_text): draw(schemas)}}
        operation["requestBody"] = {"required": draw(st.booleans()), "content": {media: {"schema": schema}}}
    return operation


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Documents that are well-formed, with anything where OpenAPI takes any text."""
    paths: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 3))):
        names = draw(
            st.lists(
                st.sampled_from(("id", "class", "Id", "__proto__", "body", "a b")), max_size=2, unique=True
            )
        )
        words = draw(st.lists(st.sampled_from(PATH_WORDS), max_size=2))
        segments = draw(st.permutations([*words, *(f"{{{name}}}" for name in names)]))
        path = "/" + "/".join(segments) + draw(st.sampled_from(("", "/") if segments else ("",)))
        verbs = draw(st.lists(st.sampled_from(VERBS), min_size=1, max_size=2, unique=True))
        paths[path] = {verb: draw(_operations(names, verb)) for verb in verbs}
    info = {"title": draw(hostile_text), "version": draw(hostile_text)}
    return document(
        paths, info=info, servers=[{"url": draw(st.sampled_from(("/", "/api", "https://hr.example.com/x")))}]
    )
