"""What the container provider must have seen to claim a tier. Pure: from observations to findings; names decide nothing."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from providers.docker.sight import Limits
from providers.seam import Findings, Observation

HELD: Final = "held"


def judge_container(observations: Iterable[Observation], *, runtime: str) -> Findings:
    """The tier that one container's facts prove. `runtime` (configured) only decides if shortfalls are said."""
    raise NotImplementedError


def judge(observations: Iterable[Observation], *, runtime: str) -> Findings:
    """As `judge_container`, of a whole look: the facts of a container and of the limits that were tried (`of_smoke`)."""
    raise NotImplementedError


def of_smoke(results: Mapping[str, str]) -> list[Observation]:
    """How each of smoke.CASES went: HELD or failed."""
    raise NotImplementedError


def of_daemon(inspected: Mapping[str, Any], limits: Limits, unseen: str) -> tuple[Observation, ...]:
    """What the daemon says of a container that cannot be seen from here (`unseen`: the code of Unseen): `container` at most."""
    raise NotImplementedError
