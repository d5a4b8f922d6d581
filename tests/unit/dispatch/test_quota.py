"""Rate, concurrency and the replica's cap are counted and never waited for."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dispatch.quota import Quota, Rate
from plimsoll.contract.refusals import Code, Reason, Refused


def quota(clock: Callable[[], float] = lambda: 0.0, **changes: int) -> Quota:
    values = {"rate_per_min": 0, "per_caller": 2, "total": 3} | changes
    return Quota(clock=clock, **values)


def test_the_third_run_of_a_caller_that_may_have_two_is_capacity_and_nothing_is_counted() -> None:
    limited = quota()
    with limited.enter("a"), limited.enter("a"):
        with pytest.raises(Refused) as caught, limited.enter("a"):
            pass
        assert (caught.value.refusal.code, caught.value.refusal.reason) == (Code.CAPACITY, Reason.CAPACITY)
        assert limited.running == 2
    assert limited.running == 0


def test_the_replica_s_cap_holds_across_callers() -> None:
    limited = quota()
    with limited.enter("a"), limited.enter("a"), limited.enter("b"):
        with pytest.raises(Refused), limited.enter("b"):
            pass
        with pytest.raises(Refused), limited.enter("c"):
            pass


def test_a_slot_comes_back_when_the_run_raises() -> None:
    limited = quota()
    with pytest.raises(ZeroDivisionError), limited.enter("a"):
        raise ZeroDivisionError
    assert limited.running == 0


def test_a_rate_is_spent_and_refills_and_says_when_to_come_back() -> None:
    now = [0.0]
    limited = quota(lambda: now[0], rate_per_min=60)
    for _ in range(60):
        with limited.enter("a"):
            pass
    with pytest.raises(Refused) as caught, limited.enter("a"):
        pass
    refusal = caught.value.refusal
    assert (refusal.code, refusal.reason, refusal.retry_after_s) == (Code.RATE_LIMITED, Reason.CAPACITY, 2)
    now[0] = 1.01
    with limited.enter("a"):
        pass


def test_a_rate_of_zero_is_no_limit_and_a_spent_one_says_when() -> None:
    assert not any(Rate(0, lambda: 0.0).spend("a") for _ in range(1000))
    rate = Rate(600, lambda: 0.0)
    assert [rate.spend("a") for _ in range(601)] == [0] * 600 + [1]


def test_one_caller_s_rate_is_not_another_s() -> None:
    limited = quota(rate_per_min=1)
    with limited.enter("a"):
        pass
    with limited.enter("b"):
        pass
    with pytest.raises(Refused), limited.enter("a"):
        pass


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_counts_never_pass_a_bound_and_always_return(steps: list[tuple[str, bool]]) -> None:
    limited = quota()
    open_runs: list[tuple[str, object]] = []
    for caller, enters in steps:
        if enters:
            try:
                entry = limited.enter(caller)
                entry.__enter__()
            except Refused:
                assert sum(name == caller for name, _ in open_runs) >= 2 or len(open_runs) >= 3
            else:
                open_runs.append((caller, entry))
        elif open_runs:
            open_runs.pop()[1].__exit__(None, None, None)  # type: ignore[attr-defined]
        assert limited.running == len(open_runs) <= 3
