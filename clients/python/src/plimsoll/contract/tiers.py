"""Strength of the wall around a run, as an ordered value. The only place that compares two walls."""

from enum import StrEnum


class Tier(StrEnum):
    """How strong the wall is, weakest first. The words are wire values and are never renamed."""

    NONE = "none"
    PROCESS = "process"
    CONTAINER = "container"
    KERNEL = "kernel"
    VM = "vm"

    @property
    def rank(self) -> int:
        """Position in the order, 0 for `none`."""
        return _ORDER.index(self)

    def meets(self, floor: "Tier | None") -> bool:
        """Whether this wall satisfies `floor`; `none` satisfies nothing, and an absent floor accepts any wall."""
        if self is Tier.NONE:
            return False
        return floor is None or self.rank >= floor.rank

    def at_most(self, ceiling: "Tier") -> "Tier":
        """The weaker of this tier and `ceiling`: a setting can lower a tier and never raise it."""
        return self if self.rank <= ceiling.rank else ceiling


_ORDER = (Tier.NONE, Tier.PROCESS, Tier.CONTAINER, Tier.KERNEL, Tier.VM)

FLOORS: tuple[Tier, ...] = _ORDER[1:]
"""The four words a request may demand (`none` is no floor)."""
