"""The outputs say the same, because they are made from one value; and a document's texts are nothing but texts in them."""

import ast
import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings

from plimsoll.contract.grants import GrantFault, parse_route
from plimsoll.specgen import Outputs, SpecFault, read, write
from plimsoll.specgen.names import Names, identifier, prose
from tests.support.openapi_documents import HOSTILE, document, documents, hostile_text, one, parameter

_ROW = re.compile(r"^    define\((.*)\);?\n", re.MULTILINE)


def made_of(whole: dict[str, Any]) -> Outputs:
    return write(read(whole).api, "hr-read")


def rows(preamble: str) -> list[Any]:
    return [json.loads(f"[{row}]") for row in _ROW.findall(preamble)]


def template(preamble: str) -> str:
    return _ROW.sub("", preamble)


TEXTS = {
    "description": {"file": "description.md"},
    "catalog": {"file": "catalog.json"},
    "preamble": {"javascript": {"file": "preamble.js"}, "python": {"file": "preamble.py"}},
}
"""What `grant.toml` names of the other files."""
EMPTY = made_of(one("/a"))


@given(whole=documents())
@settings(max_examples=100, deadline=None)
def test_the_outputs_agree(whole: dict[str, Any]) -> None:
    try:
        made = made_of(whole)
    except SpecFault:
        return
    (profile,) = tomllib.loads(made.grant).values()
    catalog = json.loads(made.catalog)["operations"]
    javascript, python = rows(made.javascript), rows(made.python)
    assert javascript == python
    assert [row[0] for row in python] == [each["name"] for each in catalog]
    assert profile["allow"] == list(dict.fromkeys(each["route"] for each in catalog))
    assert set(profile) <= {"origin", "allow", *TEXTS}
    assert {name: profile.pop(name) for name in TEXTS} == TEXTS
    assert tomllib.loads(made.fragment) == {"hr-read": profile}
    entries = [line for line in made.description.splitlines() if line.startswith("- ")]
    assert [line.partition("(")[0] for line in entries] == [f"- `{row[0]}" for row in python]
    for (name, method, segments, slash, parameters, body), entry in zip(python, catalog, strict=True):
        route = parse_route(entry["route"])
        assert (method, bool(slash), name) == (route.method, route.closing_slash, entry["name"])
        assert tuple("*" if isinstance(each, int) else each for each in segments) == route.segments
        assert tuple(sorted(each[1] for each in parameters if each[2] == "query")) == route.query
        assert [each[0] for each in parameters] == [each["name"] for each in entry["arguments"]]
        assert bool(body) == (entry["body"] is not None)


@given(whole=documents())
@settings(max_examples=100, deadline=None)
def test_nothing_of_a_document_is_in_the_code_but_words_of_closed_alphabets(whole: dict[str, Any]) -> None:
    try:
        made = made_of(whole)
    except SpecFault:
        return
    for preamble, plain in ((made.javascript, EMPTY.javascript), (made.python, EMPTY.python)):
        assert preamble.isascii()
        assert template(preamble) == template(plain)
        for row in rows(preamble):
            assert all(re.fullmatch(r"[A-Za-z0-9._~$\[\]/+-]*", text) for text in strings(row))


def strings(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return [value] if isinstance(value, str) else []


def test_a_profile_is_named_as_profiles_are() -> None:
    api = read(one("/a")).api
    for name in ("", "HR", "a.b", 'a"]\nx', "x" * 65):
        with pytest.raises(GrantFault):
            write(api, name)


def test_an_open_origin_is_left_to_the_operator() -> None:
    made = made_of(one("/a") | {"servers": [{"url": "/"}]})
    assert tomllib.loads(made.grant) == {"hr-read": {"allow": ["GET /a"], **TEXTS}}


def test_the_python_preamble_defines_one_name_and_needs_host_alone() -> None:
    tree = ast.parse(EMPTY.python)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"json", "math", "re", "types", "host"}


def test_a_description_is_this() -> None:
    schema = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
            "boss": {"$ref": "#/components/schemas/person"},
            "odd name": {"type": ["integer", "null"]},
        },
    }
    body = {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/person"}}},
    }
    whole = one(
        "/v1/people/{id}",
        "put",
        operationId="replacePerson",
        summary="Replaces\n one <b>person</b>",
        deprecated=True,
        parameters=[parameter("id", "path", description="Whose `id`"), parameter("dryRun", kind="boolean")],
        requestBody=body,
        responses={"200": {"content": {"application/json": {"schema": {"type": "array", "items": {}}}}}},
    ) | {"components": {"schemas": {"person": schema}}}
    told = made_of(whole).description
    assert told[told.index("\n- ") + 1 :] == (
        '- `replace_person(id: string, dry_run?: boolean, body: {name: string, tags?: ("a" | "b")[], boss?: …,'
        ' "odd name"?: integer | null}) -> any[]` (`PUT /v1/people/*`)\n'
        "  - Summary: Replaces one \\<b>person\\</b>\n"
        "  - Deprecated.\n"
        "  - `id`: Whose 'id'\n"
    )


def test_functions_of_one_name_are_numbered_in_order() -> None:
    paths = {
        f"/{n}": {"get": {"operationId": name}} for n, name in enumerate(["a", "A", "a_2", "a-", "__proto__"])
    }
    assert [each.name for each in read(document(paths)).api.operations] == [
        "a",
        "a_2",
        "a_2_2",
        "a_3",
        "proto",
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("listEmployees", "list_employees"),
        ("HTTPServer2Go", "http_server2_go"),
        ("filter[name]", "filter_name"),
        ("2fa", "op_2fa"),
        ("", "op"),
        ("class", "class_"),
        ("constructor", "constructor_"),
        ("then", "then_"),
        ("g\u0435t", "g_t"),
        ("\u212aey", "ey"),
        ("\u0130d", "d"),
        ("x" * 100, "x" * 64),
    ],
)
def test_a_name_is_plain(text: str, name: str) -> None:
    assert identifier(text, "op") == name


@given(text=hostile_text)
def test_every_name_is_of_the_alphabet_and_every_prose_is_one_line(text: str) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,64}", identifier(text, "op"))
    line = prose(text)
    assert "`" not in line
    assert len(line.splitlines()) <= 1
    assert not any(char < " " or char in "\x7f\u202e\u2028" for char in line)


def test_names_are_given_once_whatever_is_asked_for() -> None:
    names = Names()
    given_ones = [names.give(each) for each in ["a", "a_2", "a", "a", "a_2", "a_2_2", "a"]]
    assert len(set(given_ones)) == len(given_ones)


def test_the_same_document_makes_the_same_bytes() -> None:
    paths = {f"/h{at}": {"get": {"operationId": text, "summary": text}} for at, text in enumerate(HOSTILE)}
    assert made_of(document(paths)) == made_of(document(dict(reversed(paths.items()))))
