"""Standing still at the limit is told from using much memory."""

import asyncio
from collections.abc import Iterable

import pytest

from providers.docker.memory import MARGIN_BYTES, Watch
from tests.support.sandboxes import FakeUsage

LIMIT = 512 << 20
FULL, MUCH = FakeUsage(LIMIT - MARGIN_BYTES // 2, LIMIT), FakeUsage(LIMIT * 9 // 10, LIMIT)


async def starves(looks: Iterable[FakeUsage]) -> bool:
    """Whether these looks, and `MUCH` for ever after, are a run without memory."""
    rest = iter(looks)
    watch = Watch(lambda: next(rest, MUCH), lambda: False, look_s=0.001, full_s=0.004)
    try:
        async with asyncio.timeout(0.1):
            await watch.starved()
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([FULL] * 4, True),
        ([MUCH, FULL, FULL, FULL, FULL], True),
        ([MUCH] * 20, False),
        ([FULL] * 3, False),
        ([FULL, FULL, FULL, MUCH] * 5, False),
    ],
)
async def test_only_memory_that_stays_full_is_starving(looks: list[FakeUsage], expected: object) -> None:
    assert await starves(looks) is expected
