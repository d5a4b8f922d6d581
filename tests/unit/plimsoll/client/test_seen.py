"""Instances are remembered in the order they came, up to a bound, also when many threads ask."""

import threading

from plimsoll.client.seen import Seen


def test_an_instance_is_new_once() -> None:
    seen = Seen()
    assert [seen.add(name) for name in ("a", "b", "a")] == [True, True, False]


def test_the_oldest_is_forgotten_first() -> None:
    seen = Seen(limit=2)
    assert [seen.add(name) for name in ("a", "b", "c", "b", "c", "a")] == [
        True,
        True,
        True,
        False,
        False,
        True,
    ]


def test_an_owner_may_be_told_again_and_nobody_else() -> None:
    seen = Seen()
    asked = [("a", "key k"), ("a", "key k"), ("a", "key l"), ("a", ""), ("b", ""), ("b", ""), ("b", "key k")]
    assert [seen.add(*each) for each in asked] == [True, True, False, False, True, False, False]


def test_two_threads_never_both_believe_it() -> None:
    seen = Seen()
    new: list[bool] = []

    def add() -> None:
        new.extend(seen.add(str(number)) for number in range(2000))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(new) == 2000
