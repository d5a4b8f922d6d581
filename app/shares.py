"""How many runs each provider may hold at once, so that all of them together keep to one total of memory; pure.

1. every provider has an equal share of the total
2. one that has no use for all of its share (`MOST_SLOTS` runs are the most) leaves the rest to the others, in equal parts
3. a provider has as many slots as runs fit into its share; every sandbox that exists takes one: one that waits for a run, one
   that runs, and one that is being destroyed
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

MOST_SLOTS: Final = 32


def slots(total_mb: int, memory_mb: Mapping[str, int]) -> dict[str, int]:
    """Slots by provider. `memory_mb` is what one run of each may have."""
    shares = _shares(total_mb, {name: MOST_SLOTS * each for name, each in memory_mb.items()})
    return {name: shares[name] // each for name, each in memory_mb.items()}


def least_total(memory_mb: Mapping[str, int]) -> int:
    """The smallest total that gives every provider a slot; there must be a provider."""
    enough = len(memory_mb) * max(memory_mb.values())
    return bisect_left(range(enough), True, key=lambda total: all(slots(total, memory_mb).values()))  # noqa: FBT003  # what is looked for


def _shares(total_mb: int, useful_mb: Mapping[str, int]) -> dict[str, int]:
    left, shares = dict(useful_mb), dict[str, int]()
    while left:
        equal = (total_mb - sum(shares.values())) // len(left)
        modest = {name: useful for name, useful in left.items() if useful <= equal}
        shares |= modest or dict.fromkeys(left, equal)
        left = {name: useful for name, useful in left.items() if name not in shares}
    return shares
