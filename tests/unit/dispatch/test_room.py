"""What is reserved for a kept answer is never less than the answer takes, and an answer is never more than clients take."""

from dataclasses import replace

import pytest

from app.api.shapes import answer_bytes
from app.dispatch.advice import FINDINGS
from app.dispatch.keyed import Room
from app.dispatch.leases import profile_name
from app.dispatch.outcome import Finished
from plimsoll.client.answers import BODY_LIMIT
from plimsoll.contract import bounds
from plimsoll.contract.advice import Advice
from plimsoll.contract.grants import parse_route
from plimsoll.contract.requests import JavaScript, Project, RunRequest
from plimsoll.contract.results import Artifact, Outcome, ProjectResult, ScriptResult, StepResult
from plimsoll.contract.tiers import Tier
from plimsoll.records import Stated, make_record
from tests.support.fakes import EVIDENCE, accepted, ended

ROOM = Room(1, 1, bounds.OUTPUT_CAP_BYTES)
FULL = bounds.OUTPUT_CAP_BYTES
FILL = {
    "control characters": b"\x01",
    "quotes": b'"',
    "lines": b"\n",
    "letters": b"x",
    "no text": b"\xff",
    "multi-byte text": "\N{SHIP}".encode(),
}


LONGEST_ROUTE = f"DELETE /{'/'.join(['x' * 128] * 32)}/?{'&'.join(f'{n:064}' for n in range(32))}"
FOUND = Advice("repeated_read", LONGEST_ROUTE, 2**63, "s" * 256, True, LONGEST_ROUTE, 2**63, 2**63)


def body(request: RunRequest, result: ScriptResult | ProjectResult) -> bytes:
    begun = accepted()
    stated = Stated("p" * 64, "process", "e" * 300, "s" * 256, begun.instance)
    record = make_record(request, result, stated, policy="p" * 300, started_unix_ms=1, ended_unix_ms=2)
    run = Finished("a" * 32, "p" * 64, Tier.PROCESS, EVIDENCE, begun, ended(), result, record, recorded=True)
    advice = (FOUND,) * FINDINGS if profile_name(request) else None
    return answer_bytes(replace(run, advice=advice))


def filled(part: bytes, size: int) -> bytes:
    return part * (size // len(part))


@pytest.mark.parametrize("part", FILL.values(), ids=FILL)
@pytest.mark.parametrize("profile", ["", "hr-read"])
def test_a_snippets_answer_fits(part: bytes, profile: str) -> None:
    request = RunRequest(JavaScript("1", profile))
    output = filled(part, FULL)
    result = ScriptResult(request.payload.kind, 255, stdout=output, stderr=output, stdout_truncated=True)
    assert len(body(request, result)) <= ROOM.reserve(request) < bounds.MIB


@pytest.mark.parametrize("part", FILL.values(), ids=FILL)
@pytest.mark.parametrize("files", [1, 100])
def test_the_largest_project_fits_and_so_does_it_for_clients(files: int, part: bytes) -> None:
    paths = tuple(f"{number:03}{chr(0x22) * 1021}" for number in range(files))
    commands = ("\x01" * bounds.STEP_BYTES,) * bounds.STEPS
    request = RunRequest(Project((), commands, paths, "hr-read"))
    output = filled(part, FULL)
    result = ProjectResult(
        outcome=Outcome.RUNNER_FAILED,
        outcome_detail="\x01" * 512,
        steps=tuple(StepResult(command, 255, stdout=output, stderr=output) for command in commands),
        artifacts=tuple(Artifact(path, filled(part, bounds.ARTIFACTS_BYTES // files)) for path in paths),
    )
    size = len(body(request, result))
    assert size <= ROOM.reserve(request) <= BODY_LIMIT


def test_a_project_reserves_for_what_it_asks_only() -> None:
    small = RunRequest(Project((), ("one",)))
    assert ROOM.reserve(small) < bounds.MIB
    assert ROOM.reserve(RunRequest(Project((), ("one",), ("a",)))) > bounds.ARTIFACTS_BYTES


def test_the_longest_route_is_one() -> None:
    assert str(parse_route(LONGEST_ROUTE)) == LONGEST_ROUTE
