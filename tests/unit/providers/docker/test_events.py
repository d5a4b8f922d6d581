"""How a container's end is heard of."""

import pytest

from providers.docker import events
from providers.docker.events import Death, Deaths

ONE, OTHER = "a" * 64, "b" * 64


def event(action: str, container: str = ONE, exit_code: int = 0) -> dict[str, object]:
    return {"Action": action, "Actor": {"ID": container, "Attributes": {"exitCode": str(exit_code)}}}


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def deaths(calls: list[str]) -> Deaths:
    made = Deaths()
    made.expect(ONE, lambda: calls.append(ONE))
    return made


async def test_an_end_is_told_with_its_exit_code(deaths: Deaths) -> None:
    deaths.heard(event("die", exit_code=7))
    assert await deaths.of(ONE) == Death(7, oom=False)


async def test_memory_that_ran_out_before_the_end_is_told(deaths: Deaths) -> None:
    deaths.heard(event("oom"))
    deaths.heard(event("die", exit_code=137))
    assert await deaths.of(ONE) == Death(137, oom=True)


async def test_the_word_of_memory_may_come_after_the_end(deaths: Deaths) -> None:
    deaths.heard(event("die", exit_code=137))
    told = deaths.of(ONE)
    deaths.heard(event("oom"))
    assert await told == Death(137, oom=True)


async def test_an_end_that_nobody_tells_is_waited_for_and_has_no_exit_code(
    deaths: Deaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "WAIT_S", 0.01)
    assert await deaths.of(ONE) == Death(None, oom=False)


async def test_only_expected_containers_count(deaths: Deaths, calls: list[str]) -> None:
    deaths.heard(event("die", OTHER))
    assert calls == []
    assert await deaths.of(OTHER) == Death()


def test_a_forgotten_container_is_no_longer_expected(deaths: Deaths, calls: list[str]) -> None:
    deaths.forget(ONE)
    deaths.forget(ONE)
    deaths.heard(event("die"))
    assert calls == []


def test_an_end_told_twice_counts_once(deaths: Deaths, calls: list[str]) -> None:
    deaths.heard(event("die", exit_code=3))
    deaths.heard(event("die", exit_code=4))
    assert calls == [ONE]


@pytest.mark.parametrize("bad", [{}, {"Action": "die"}, {"Action": "die", "Actor": {"ID": ONE}}])
def test_what_is_no_event_is_an_error(deaths: Deaths, bad: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError)):
        deaths.heard(bad)
