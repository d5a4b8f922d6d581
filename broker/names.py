"""What names mean, asked for all runs: each name by one question at a time.

A question blocks a thread for as long as a name server keeps silent, and nobody can end it. Runs that wait for the same name
wait for the same question: a server that does not answer for its names has a thread for each name, not for each run.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.addresses import Resolver

THREADS: Final = 64
"""Names that are asked for at once; those of further silent servers wait."""

_Asked = asyncio.Future[Sequence[str]]


class Names:
    """A resolver over another one. It keeps no answer: who comes later asks anew."""

    def __init__(self, resolver: Resolver) -> None:
        """Ask `resolver`."""
        self._resolver = resolver
        self._asked: dict[tuple[str, int], _Asked] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a name, as text. Raises OSError. Whoever stops waiting ends nobody else's question."""
        key = (host, port)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.ensure_future(self._resolver(host, port))
            asked.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(asked)

    def _ended(self, key: tuple[str, int], asked: _Asked) -> None:
        del self._asked[key]
        if not asked.cancelled():
            asked.exception()  # perhaps nobody waits any more
