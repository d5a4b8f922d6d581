"""Whatever a document says of its API's host, what callers are shown of it does not name it, and `grants apply` takes it."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.contract.profiles import naming
from plimsoll.specgen import Outputs, Reading, SpecFault, read, write
from tests.support.openapi_documents import document, documents, one, parameter

HOST = "hr.example.com"
URL = f"https://{HOST}/docs"


def shown(made: Outputs) -> dict[str, str]:
    return {name: text for name, text in made.files().items() if name != "grant.toml"}


def named(reading: Reading, host: str) -> list[str]:
    return [name for name, text in shown(write(reading.api, "hr-read")).items() if naming(host).search(text)]


def rules(reading: Reading) -> list[tuple[str, str]]:
    return [(each.effect, each.rule) for each in reading.findings if each.rule == "host"]


def test_texts_that_name_it_are_cut_and_that_is_said() -> None:
    body = {"content": {"application/json": {"schema": {"properties": {URL: {"const": f"see {URL}"}}}}}}
    asked = {
        "summary": f"See {URL}, or HR.EXAMPLE.COM",
        "parameters": [parameter(HOST, "path", description=URL), parameter("page", description=HOST)],
        "requestBody": body,
        "responses": {"200": body},
    }
    whole = one(f"/a/{{{HOST}}}", "put", **asked)
    whole["info"] = {"title": f"The API of {HOST}", "version": HOST}
    reading = read(whole)
    assert len(reading.api.operations) == 1
    assert named(reading, HOST) == []
    assert rules(reading) == [("note", "host")]
    assert reading.complete
    assert "https://…/docs, or …" in write(reading.api, "hr-read").description


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (f"/{HOST}/b", {}),
        ("/b", {"parameters": [parameter(f"x.{HOST}")]}),
        ("/b", {"requestBody": {"content": {f"application/{HOST}+json": {}}}}),
    ],
)
def test_an_operation_whose_calls_need_it_is_left_out(path: str, asked: dict[str, Any]) -> None:
    whole = document({"/a": {"get": {}}, path: {"post": asked}})
    reading = read(whole)
    assert [str(each.route) for each in reading.api.operations] == ["GET /a"]
    assert rules(reading) == [("left out", "host")]
    assert named(reading, HOST) == []
    with pytest.raises(SpecFault, match="no operation can be expressed"):
        read(document({path: {"post": asked}}))


def test_what_another_route_approves_of_it_all_the_same_is_wider() -> None:
    reading = read(document({"/{any}": {"get": {}}, f"/{HOST}": {"get": {}}}))
    assert [each.rule for each in reading.findings if each.effect == "wider"] == ["wildcard"]


@pytest.mark.parametrize("host", ["api", "host", "localhost", "a", "hr"])
def test_a_host_of_one_label_is_a_word_until_it_is_a_url(host: str) -> None:
    whole = one("/api/host", summary=f"the {host} of https://{host}/x and {host}:8443{host}:1")
    reading = read(whole | {"servers": [{"url": f"https://{host}"}]})
    assert named(reading, host) == []
    assert f"the {host} of https:…/x and …" in write(reading.api, "hr-read").description


def test_a_host_that_is_a_word_of_ours_is_refused_with_its_reason() -> None:
    with pytest.raises(SpecFault, match="would name the API's host"):
        write(read(one() | {"servers": [{"url": "https://api.name"}]}).api, "hr-read")


HOSTS = st.sampled_from([HOST, "a.a", "1.1.1.1", "[::1]", "hr", "a", "2026.com", "xn--a.b"])
PIECES = st.sampled_from(
    ["https://", "//", ":80", ":", ".", "a", "hr", HOST, HOST.upper(), "\u212a", "", " ", "1.1.1.1", "::1"]
)


@given(host=HOSTS, texts=st.lists(st.lists(PIECES, max_size=8).map("".join), min_size=3, max_size=3))
@settings(max_examples=150, deadline=None)
def test_no_text_gets_it_through(host: str, texts: list[str]) -> None:
    summary, title, described = texts
    whole = one("/a", summary=summary, parameters=[parameter("page", description=described)])
    whole |= {"info": {"title": title, "version": title}, "servers": [{"url": f"https://{host}"}]}
    try:
        reading = read(whole)
        made = write(reading.api, "hr-read")
    except SpecFault:
        return
    pattern = naming(host.strip("[]"))
    assert not [text for text in shown(made).values() if pattern.search(text)]
    assert not pattern.search(json.dumps(json.loads(made.catalog), ensure_ascii=False))


@given(whole=documents())
@settings(max_examples=60, deadline=None)
def test_what_names_no_host_is_as_it_was(whole: dict[str, Any]) -> None:
    """The findings of this rule are there exactly if a text of the document has it."""
    try:
        reading = read(whole)
    except SpecFault:
        return
    texts = json.dumps(whole, ensure_ascii=False)
    servers = re.escape(json.dumps(whole.get("servers", ""), ensure_ascii=False))
    host = reading.api.origin and reading.api.origin.host
    if host and not naming(host).search(re.sub(servers, "", texts)):
        assert rules(reading) == []
