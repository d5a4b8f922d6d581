"""Field names that a caller chose, and pydantic's errors in our words."""

import inspect
import json
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from app.http import faults, strict
from plimsoll.contract import rest
from plimsoll.contract.refusals import Refusal

NAMES = {
    "long": ("a" * 5000, "a" * 61 + "..."),
    "control": ("a\x1b[31m\n", "a\\x1b[31m\\x0a"),
    "bidi": ("a\u202eb", "a\\u202eb"),
    "DEL": ("a\x7f", "a\\x7f"),
    "letters": ("é", "\\xe9"),
}


@pytest.mark.parametrize(("name", "shown"), NAMES.values(), ids=NAMES)
def test_the_name_of_an_unknown_field_is_cut_and_escaped(name: str, shown: str) -> None:
    body = {"payload": {"kind": "python", "code": "1"}, name: 1}
    refusal = strict.read_run(json.dumps(body).encode())
    assert isinstance(refusal, Refusal)
    assert refusal.faults[0].field == shown


def _request_models() -> list[type[BaseModel]]:
    return [
        model
        for _, model in inspect.getmembers(rest, inspect.isclass)
        if issubclass(model, rest._Request) and model is not rest._Request
    ]


SAMPLES: list[Any] = [
    None, True, 0, -1, 10**12, 0.5, float("inf"), float("nan"), "", "a", "a\x00", "../a", "a" * 300_000, [], [None],
    [""], ["a", "a"], ["a"] * 300, [1.0] * 70, {}, {"a": 1}, [{}], [[]], {"kind": "x"}, {"kind": "python"},
]  # fmt: skip


@pytest.mark.parametrize("model", _request_models(), ids=lambda model: model.__name__)
def test_every_error_of_a_request_model_has_words_of_ours(model: type[BaseModel]) -> None:
    for name in [*model.model_fields, "unknown"]:
        for sample in SAMPLES:
            found = strict.read_model(model, {name: sample})
            rules = [fault.rule for fault in found.faults] if isinstance(found, Refusal) else []
            assert faults.FALLBACK not in rules, (name, type(sample))


def test_an_error_without_words_still_says_something() -> None:
    found = faults.faults_in([{"type": "surprise", "loc": ("query", "a")}], drop=1)
    assert [(fault.field, fault.rule) for fault in found] == [("a", "is not valid")]


def test_only_known_types_of_errors_have_words() -> None:
    from pydantic_core.core_schema import ErrorType  # noqa: PLC0415

    assert set(faults._PHRASES) - set(get_args(ErrorType)) == {"rule"}
