"""How containers ended, as the daemon's stream of events tells it: who waits for whom, and what was heard so far. No I/O."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

WAIT_S: Final = 2.0
"""How long a death may take to be told."""
_OOM_AFTER_S: Final = 0.2
"""The word that memory ran out comes from another thread of the runtime, and may come after the death."""
_KILLED: Final = 137


@dataclass(frozen=True, slots=True)
class Death:
    """A container's end. No exit code: it was not told in time."""

    exit_code: int | None = None
    oom: bool = False


@dataclass(slots=True)
class _Expected:
    on_death: Callable[[], None]
    exit_code: int | None = None
    died: asyncio.Event = field(default_factory=asyncio.Event)
    oom: asyncio.Event = field(default_factory=asyncio.Event)


class Deaths:
    """The containers whose end is waited for; events of any other are nothing to us."""

    def __init__(self) -> None:
        self._expected: dict[str, _Expected] = {}

    def expect(self, container: str, on_death: Callable[[], None]) -> None:
        """From now on; `on_death` is called once, when it is told."""
        self._expected[container] = _Expected(on_death)

    def forget(self, container: str) -> None:
        """Nobody waits any more. Unknown ids are fine."""
        self._expected.pop(container, None)

    def heard(self, event: Mapping[str, Any]) -> None:
        """Take one event. Raises KeyError, TypeError, ValueError, AttributeError when it is no event."""
        expected = self._expected.get(event["Actor"]["ID"])
        if expected is None:
            return
        if event["Action"] == "oom":
            expected.oom.set()
        elif event["Action"] == "die" and not expected.died.is_set():
            expected.exit_code = int(event["Actor"]["Attributes"]["exitCode"])
            expected.died.set()
            expected.on_death()

    async def of(self, container: str) -> Death:
        """How that container ended, waiting at most two seconds to hear of it."""
        expected = self._expected.get(container)
        if expected is None:
            return Death()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await expected.died.wait()
        if expected.exit_code == _KILLED:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_OOM_AFTER_S):
                    await expected.oom.wait()
        return Death(expected.exit_code, expected.oom.is_set())
