"""What a run's calls say about how well its program calls its API: findings of ours, made once the result is final.

Fields are only ever added, with a default. Advice is in no digest: a run is the same run with and without it.
"""

from dataclasses import dataclass
from enum import StrEnum


class AdviceCode(StrEnum):
    """What was found; append-only. Whoever reads answers takes a code it does not know for one that came later."""

    FAN_OUT = "fan_out"
    REPEATED_READ = "repeated_read"


class AdviceTo(StrEnum):
    """Who is told: nobody, whoever runs the service, or also the run's caller."""

    OFF = "off"
    OPERATOR = "operator"
    CALLER = "caller"


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding about the calls of one route.

    `code` is a word of AdviceCode. `route` and `suggested_route` (empty: none) are the profile's texts, `sentence` is ours.
    `count` is how many calls it is about, with `at_least` that many or more; `ms` and `bytes_back` are of these together.
    """

    code: str
    route: str
    count: int
    sentence: str
    at_least: bool = False
    suggested_route: str = ""
    ms: int = 0
    bytes_back: int = 0
