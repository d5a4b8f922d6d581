"""A run in a waiting container against a run in one made for it: the figures are printed, their ratio is asserted."""

import statistics
import time

import pytest

from plimsoll.contract.requests import JavaScript, Python
from providers.docker.frames import Runnable, SnippetEnded, Talk
from tests.integration.docker.conftest import Start
from tests.support.docker import Daemon, Sandbox

TIMES = 7
PROGRAMS: dict[str, Runnable] = {"python": Python("print(6*7)"), "javascript": JavaScript("console.log(6*7)")}


def spent(sandbox: Sandbox, payload: Runnable) -> float:
    """Milliseconds from the code's leaving to its result, in a container that waits for it."""
    talk = Talk()
    while not talk.ready:
        sandbox.feed(talk)
    time.sleep(0.1)  # so that the start's own wake is over
    began = time.monotonic()
    assert sandbox.run(payload, talk)[-1] == SnippetEnded(0)
    return (time.monotonic() - began) * 1000


def cold(docker: Daemon, image: str, runtime: str, language: str) -> tuple[float, float]:
    """Milliseconds from nothing to the result, and from there to nothing again."""
    began = time.monotonic()
    sandbox = Sandbox.start(docker, image, runtime, language)
    assert sandbox.run(PROGRAMS[language])[-1] == SnippetEnded(0)
    answered = time.monotonic()
    sandbox.destroy()
    return (answered - began) * 1000, (time.monotonic() - answered) * 1000


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_waiting_container_is_far_faster_than_a_new_one(
    start: Start, docker: Daemon, image: str, runtime: str, language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pooled = sorted(spent(start(language), PROGRAMS[language]) for _ in range(TIMES))
    made, ended = zip(*(cold(docker, image, runtime, language) for _ in range(TIMES)), strict=True)
    with capsys.disabled():
        print(
            f"\n{runtime:6} {language:11} pooled p50 {statistics.median(pooled):6.1f} best {pooled[0]:6.1f}"
            f"   cold p50 {statistics.median(made):6.1f}   destroy p50 {statistics.median(ended):6.1f} ms"
        )
    # The best of each: whatever else the machine does, it does to some of them.
    assert pooled[0] * 20 < min(made)
