"""What `plimsoll describe` says of a service, beside each wall why it is none or no stronger one; and `wait` of calls."""

from typing import Any

import pytest

from plimsoll.cli import show
from plimsoll.contract.rest import DescribeBody, RunView
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


def test_a_run_with_a_grant_says_how_its_calls_went() -> None:
    kept = honest.view(honest.run_answer())
    counts = {"bytes_out": 0, "bytes_back": 0, "probes": 0, "entries": [], "left_out": 0}
    calls = counts | {"sent": 3, "delivered": 2, "failed": {"upstream": 1, "denied": 4}}
    line = show.view_summary(RunView.model_validate(kept | {"grant_profile": "hr-read", "calls": calls}))
    assert " exit=0 calls=2/3 denied=4 upstream=1 duration=" in line
    assert "calls" not in show.view_summary(RunView.model_validate(kept))
