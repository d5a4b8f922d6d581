"""What `plimsoll describe` says of a service: beside each wall, why it is none or no stronger one."""

from typing import Any

import pytest

from plimsoll.cli import show
from plimsoll.contract.rest import DescribeBody
from tests.unit.plimsoll import honest

PROVIDER = {
    "provider": "docker@runsc",
    "isolation": "container",
    "health": "serving",
    "faults": [],
    "evidence_sha256": "e" * 64,
    "checked_unix_ms": honest.NOW,
    "slots": 2,
    "free": 1,
    "policy": "",
    "environments": [],
}


def line(**changes: Any) -> str:
    """What is said of the one provider."""
    described = honest.description() | {"providers": [PROVIDER | changes]}
    return show.description(DescribeBody.model_validate(described)).splitlines()[2]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"shortfalls": ["gvisor_unproven"]}, " shortfalls=gvisor_unproven"),
        ({"health": "refusing", "isolation": "none", "faults": ["a", "b"]}, " faults=a,b"),
        ({"faults": ["a"], "shortfalls": ["b"]}, " faults=a shortfalls=b"),
    ],
)
def test_a_provider_says_what_it_lacks(changes: dict[str, Any], why: str) -> None:
    assert line(**changes).partition("free=1/2 ")[2] == f"evidence={'e' * 64}{why}"
