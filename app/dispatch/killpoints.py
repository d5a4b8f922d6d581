"""Named places where a crash of the service must leave the truth behind.

The dispatcher reports each place to a callback, which does nothing in service. The tests' entry point passes one that kills
the process there, and then compares what the restarted service says with what the provider's side-effect file holds.
"""

from collections.abc import Callable
from enum import StrEnum


class KillPoint(StrEnum):
    """In the order one run passes them."""

    BEFORE_RESERVE = "before_reserve"
    AFTER_RESERVE = "after_reserve"
    BEFORE_STARTING_COMMIT = "before_starting_commit"
    AFTER_STARTING_COMMIT = "after_starting_commit"
    BEFORE_SEND = "before_send"
    AFTER_SEND = "after_send"
    AFTER_ACCEPTED = "after_accepted"
    AFTER_END_RECEIVED = "after_end_received"
    BEFORE_END_COMMIT = "before_end_commit"
    AFTER_END_COMMIT = "after_end_commit"
    BEFORE_ANSWER = "before_answer"


Reached = Callable[[KillPoint], None]


def pass_by(point: KillPoint) -> None:
    """The callback in service: nothing happens."""
