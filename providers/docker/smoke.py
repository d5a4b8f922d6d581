"""Programs that break each limit of a container on purpose, with their verdicts. The provider runs them its normal way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from plimsoll.contract.requests import Python
from providers.seam import Break, Finish


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case went: its end, its output inside the cap, and how long it took from Begun to its end."""

    step: Finish | Break
    stdout: bytes
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Case:
    """One program, the limits it runs under, and whether an outcome says that they hold."""

    payload: Python
    timeout_ms: int
    output_bytes: int
    holds: Callable[[Outcome], bool]


def cases(wall: str) -> Mapping[str, Case]:
    """All cases by name for a wall (`evidence.wall_of`): at start each is run; later `inside` and one other in turn."""
    raise NotImplementedError


INSIDE: Final = "inside"
