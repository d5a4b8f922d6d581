"""The one strict parser of request bodies."""

from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from plimsoll.contract.refusals import Refusal
from plimsoll.contract.requests import RunRequest

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class RunRead:
    """A run request as sent, and whether its trace id was dropped for its form (to be logged)."""

    request: RunRequest
    trace_id_dropped: bool = False


def parse_json(body: bytes) -> Any | Refusal:
    raise NotImplementedError


def read_model(model: type[Model], value: Any) -> Model | Refusal:
    raise NotImplementedError


def read_run(body: bytes) -> RunRead | Refusal:
    """The body of `POST /v1/runs`, or what is wrong with it."""
    raise NotImplementedError
