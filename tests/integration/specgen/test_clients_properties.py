"""Whatever the document: both languages make the same calls of the same inputs, and the allow list allows each of them."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.message import Call
from broker.policy import Allowed, Denied, Rule, decide
from plimsoll.contract.grants import parse_route
from plimsoll.specgen import Api, SpecFault, read, write
from plimsoll.specgen.model import Form, Kind, Parameter, Place
from tests.integration.specgen.conftest import Guest
from tests.integration.specgen.interpreters import Inputs
from tests.support.openapi_documents import documents

pytestmark = [
    pytest.mark.component("wasm"),
    pytest.mark.component("seccomp"),
    pytest.mark.timeout(600),
    pytest.mark.slow,
]

EXAMPLES = 40
CONTROL = "control characters"
whole_numbers = st.integers(-(2**53) + 1, 2**53 - 1)
numbers = st.one_of(whole_numbers, st.floats(allow_nan=False, allow_infinity=False))
texts = st.one_of(st.text("abc.-_~0", min_size=1, max_size=4), st.text(max_size=6))
scalars = st.one_of(texts, numbers, st.booleans(), st.none())
bodies = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
of_kind: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.STRING: texts,
    Kind.INTEGER: whole_numbers,
    Kind.NUMBER: numbers,
    Kind.BOOLEAN: st.booleans(),
    Kind.SCALAR: scalars,
}


def values(parameter: Parameter) -> st.SearchStrategy[Any]:
    """Mostly of its kind, sometimes not; for a path mostly what may stand in one."""
    fitting = of_kind[parameter.kind]
    if parameter.place is Place.PATH and parameter.kind is Kind.STRING:
        fitting = st.text("abc.-_~0", min_size=1, max_size=4)
    if parameter.many:
        fitting = st.lists(fitting, max_size=3)
    return st.one_of(fitting, fitting, fitting, scalars)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Api, Inputs]:
    try:
        api = read(draw(documents())).api
    except SpecFault:
        return Api("", "", None, ()), []
    inputs = []
    for each in api.operations:
        for _ in range(2):
            given_ones = {
                one.name: draw(values(one))
                for one in each.parameters
                if draw(st.integers(0, 9)) > (0 if one.required else 4)
            }
            if each.body and draw(st.booleans()):
                given_ones["body"] = draw(texts if each.body.form is Form.TEXT else bodies)
            inputs.append((each.name, given_ones))
    return api, inputs


@given(case=cases())
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    # The interpreters are shared on purpose: a guest is new for every program anyway.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_both_languages_make_the_same_calls_and_the_allow_list_allows_them(
    wasm: Guest, python: Guest, plain_javascript: Guest | None, case: tuple[Api, Inputs]
) -> None:
    api, inputs = case
    if not api.operations:
        return
    made = write(api, "api")
    seen = python(made.python, inputs)
    assert wasm(made.javascript, inputs) == seen
    if plain_javascript is not None:
        assert plain_javascript(made.javascript, inputs) == seen
    assert (seen.made, seen.polluted) == (["api"], [])
    routes = [parse_route(text) for text in api.allow]
    for end in seen.ends:
        assert end["calls"] or end["code"] == "argument"
        for each in end["calls"]:
            judged = decide(routes, message(each))
            assert isinstance(judged, Allowed) or is_of_the_value(judged), (each, judged)


def message(call: dict[str, Any]) -> Call:
    query = tuple(
        (key, part)
        for key, found in call["query"].items()
        for part in (found if isinstance(found, list) else [found])
    )
    body = None if call["body"] is None else call["body"].encode()
    return Call(call["method"], call["path"], query, tuple(call["headers"].items()), body)


def is_of_the_value(judged: Denied) -> bool:
    """Refused for what the program put in, which only the broker judges, and not for the route that was made."""
    return (judged.code is Rule.QUERY and CONTROL in judged.reason) or (
        judged.code is Rule.HEADER and "visible ASCII" in judged.reason
    )
