"""Counts of connections, and the peer's uid."""

import os
import socket
from dataclasses import replace

import pytest

from app.http import door
from app.http.door import Door, Entry
from app.http.limits import DEFAULTS, ListenerLimits

SMALL = replace(DEFAULTS, connections=8, per_address=2, turned_away=1)


def enter(
    hosts: list[str | None], limits: ListenerLimits = SMALL, trusted: tuple[str, ...] = ()
) -> list[Entry]:
    counted = Door(limits, trusted)
    return [counted.enter(host)[0] for host in hosts]


def test_an_address_is_capped_and_others_are_not() -> None:
    assert enter(["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"]) == [
        Entry.WELCOME,
        Entry.WELCOME,
        Entry.TURNED_AWAY,
        Entry.WELCOME,
    ]


def test_only_so_many_are_told() -> None:
    assert enter(["10.0.0.1"] * 4)[2:] == [Entry.TURNED_AWAY, Entry.SHUT]


def test_the_whole_listener_is_capped() -> None:
    assert enter([f"10.0.0.{number}" for number in range(9)])[8] is Entry.TURNED_AWAY


def test_a_place_is_given_back() -> None:
    counted = Door(SMALL)
    for _ in range(100):
        places = [counted.enter("10.0.0.1") for _ in range(4)]
        assert [entry for entry, _ in places] == [Entry.WELCOME, Entry.WELCOME, Entry.TURNED_AWAY, Entry.SHUT]
        for place in places:
            counted.leave(*place)
    assert (counted._inside, counted._turned_away, counted._by_address) == (0, 0, {})


def test_a_net_of_ipv6_addresses_counts_as_one() -> None:
    assert enter(["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:0:9::1", "2001:db8:0:1::1"])[2:] == [
        Entry.TURNED_AWAY,
        Entry.WELCOME,
    ]
    assert enter(["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1"])[2] is Entry.TURNED_AWAY
    assert enter(["fe80::1%eth0", "fe80::2%eth0", "fe80::3%eth0"])[2] is Entry.TURNED_AWAY


def test_trusted_proxies_and_unix_sockets_have_only_the_listeners_cap() -> None:
    assert set(enter(["10.0.0.1"] * 8, trusted=("10.0.0.0/8",))) == {Entry.WELCOME}
    assert set(enter([None] * 8)) == {Entry.WELCOME}
    assert enter([None] * 9)[8] is Entry.TURNED_AWAY


def test_it_is_crowded_when_three_quarters_are_in() -> None:
    counted = Door(SMALL)
    crowded = []
    for number in range(7):
        crowded.append(counted.crowded)
        counted.enter(f"10.0.0.{number}")
    assert crowded == [False] * 6 + [True]


def test_the_peer_of_a_unix_socket_must_be_us(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert not door.is_other_user(ours)
        monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
        assert door.is_other_user(ours)


def test_a_peer_whose_uid_cannot_be_read_is_another() -> None:
    closed = socket.socket(socket.AF_UNIX)
    closed.close()
    assert door.is_other_user(closed)
