"""The log has one line for a change of what is proven, and none without one."""

import json
import logging
from collections.abc import Iterator
from io import StringIO

import pytest

from app.dispatch.standing import AWAY, STARTING, Standing
from app.log import JsonLines
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Health
from tests.support.fakes import info

KERNEL = Standing.of(info(tier=Tier.KERNEL))


@pytest.fixture
def log() -> Iterator[StringIO]:
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("plimsoll")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield written
    logger.setLevel(before)
    logger.removeHandler(handler)


def test_a_change_says_what_was_what_is_and_why(log: StringIO) -> None:
    fallen = info(tier=Tier.CONTAINER, shortfalls=("gvisor_unproven", "platform_unknown"))
    KERNEL.then(Standing.of(fallen), "docker@runsc")
    line = json.loads(log.getvalue())
    assert line.pop("time")
    assert line == {
        "level": "warning",
        "event": "provider.changed",
        "provider": "docker@runsc",
        "tier": "container",
        "health": "serving",
        "faults": "",
        "shortfalls": "gvisor_unproven,platform_unknown",
        "was_tier": "kernel",
        "was_health": "serving",
        "was_faults": "",
        "was_shortfalls": "",
    }


@pytest.mark.parametrize(
    ("now", "level"),
    [
        (Standing.of(info(tier=Tier.KERNEL)), "info"),
        (Standing.of(info(tier=Tier.NONE, health=Health.REFUSING, faults=("daemon_gone",))), "warning"),
        (AWAY, "warning"),
    ],
)
def test_a_wall_gained_is_news_and_one_lost_is_a_warning(log: StringIO, now: Standing, level: str) -> None:
    assert STARTING.then(now, "docker") is now
    assert json.loads(log.getvalue())["level"] == level


def test_the_same_again_is_no_line(log: StringIO) -> None:
    KERNEL.then(Standing.of(info(tier=Tier.KERNEL, checked_unix_ms=1)), "docker@runsc")
    assert log.getvalue() == ""
