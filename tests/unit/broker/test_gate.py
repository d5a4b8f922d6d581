"""What the broker holds at once: so many calls and bytes, and never all of them for a few runs."""

from contextlib import ExitStack

from broker.desk import CALLS_OF_ONE, WAITING_BYTES, Gate
from plimsoll.contract.grants import MESSAGE_BYTES

SMALL = 4 << 10
RUNS = 100


def hold(stack: ExitStack, gate: Gate, run_id: str, size: int) -> bool:
    """Whether one more message of the run has room; it then stays."""
    take = stack.enter_context(gate.hold(run_id))
    return take is not None and take(size)


def test_whatever_other_runs_hold_one_that_holds_little_has_room() -> None:
    gate = Gate()
    with ExitStack() as stack:
        for number in range(RUNS):
            while hold(stack, gate, f"greedy-{number}", MESSAGE_BYTES):
                pass
        assert not hold(stack, gate, "greedy-0", SMALL)
        assert all(hold(stack, gate, f"small-{number}", SMALL) for number in range(RUNS))


def test_a_run_by_itself_may_hold_as_many_large_messages_as_it_has_calls_under_way() -> None:
    gate = Gate()
    with ExitStack() as stack:
        assert all(hold(stack, gate, "one", 1 << 20) for _ in range(16))


def test_a_run_has_only_so_many_calls() -> None:
    gate = Gate()
    with ExitStack() as stack:
        assert all(hold(stack, gate, "one", 1) for _ in range(CALLS_OF_ONE))
        assert not hold(stack, gate, "one", 1)
        assert hold(stack, gate, "another", 1)


def test_what_was_held_is_given_back() -> None:
    gate = Gate()
    calls = gate.calls
    with ExitStack() as stack:
        while hold(stack, gate, "one", MESSAGE_BYTES):
            pass
    assert (gate.calls, gate.waiting) == (calls, WAITING_BYTES)
    with ExitStack() as stack:
        assert hold(stack, gate, "one", MESSAGE_BYTES)
