"""Which addresses pass: each literal, each way to carry one inside another, and names that change their mind."""

import ipaddress
import socket
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.addresses import (
    ADDRESSES,
    Address,
    AddressFault,
    Rules,
    Vetted,
    carried,
    judge,
    parse_listed,
    vet,
)
from plimsoll.contract.grants import Origin

API = Origin("https", "api.example", 443)
NOTHING = Rules()
OPEN = Rules(
    listed=parse_listed(
        "127.0.0.0/8, ::1/128, 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fc00::/7"
    )
)

NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "169.254.0.1",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::2",
    "::7f00:1",  # IPv4-compatible
    "::ffff:0:7f00:1",  # translated
    "64:ff9b:1::7f00:1",  # NAT64 of one's own
    "100::1",
    "fe80::1",
    "fe80::1%1",
    "2606:4700::1111%1",
    "fec0::1",
    "ff02::1",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:1::1",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "4000::1",
    # Carried: mapped, NAT64, 6to4, Teredo (server and client), ISATAP.
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
    "2001:0:808:808:0:0:5601:5601",
    "2606:4700::5efe:a9fe:a9fe",
    "2606:4700::200:5efe:a9fe:a9fe",
    "2002:808:808::5efe:a9fe:a9fe",
]
PRIVATE = [
    "127.0.0.1",
    "127.255.255.255",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fc00::1",
    "fd12::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::1",
    "2002:c0a8:101::1",
    "2001:0:a00:1:0:0:f7f7:f7f7",
    "2001:0:808:808:0:0:f5ff:fffe",
    "2606:4700::5efe:a00:1",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "169.253.1.1",
    "2606:4700::1111",
    "2a00:1450::1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
    "2001:0:808:808:0:0:f7f7:f7f7",
    "2606:4700::5efe:808:808",
]


@pytest.mark.parametrize("text", NEVER)
def test_these_never_pass_whatever_is_listed(text: str) -> None:
    assert judge(ipaddress.ip_address(text), NOTHING) is AddressFault.NEVER
    assert judge(ipaddress.ip_address(text), OPEN) is AddressFault.NEVER


@pytest.mark.parametrize("text", PRIVATE)
def test_private_addresses_pass_only_where_they_are_listed(text: str) -> None:
    assert judge(ipaddress.ip_address(text), NOTHING) is AddressFault.PRIVATE
    assert judge(ipaddress.ip_address(text), OPEN) is None


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_pass(text: str) -> None:
    assert judge(ipaddress.ip_address(text), NOTHING) is None


def test_a_listed_network_opens_itself_alone() -> None:
    rules = Rules(listed=parse_listed("10.1.0.0/16"))
    assert judge(ipaddress.ip_address("10.1.2.3"), rules) is None
    assert judge(ipaddress.ip_address("::ffff:10.1.2.3"), rules) is None
    assert judge(ipaddress.ip_address("10.2.0.1"), rules) is AddressFault.PRIVATE
    assert judge(ipaddress.ip_address("127.0.0.1"), rules) is AddressFault.PRIVATE


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0/0",
        "::/0",
        "169.254.0.0/16",
        "8.0.0.0/8",
        "10.0.0.1/8",
        "fe80::/10",
        "loopback",
        "126.0.0.0/7",
        "::ffff:0:0/96",
    ],
)
def test_what_never_passes_cannot_be_listed(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_listed(text)


@given(st.ip_addresses(v=4))
def test_an_address_passes_inside_another_only_if_it_passes_itself(inner: ipaddress.IPv4Address) -> None:
    alone = judge(inner, NOTHING)
    number = int(inner)
    for carrier in (0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80):
        outer = ipaddress.IPv6Address(carrier)
        assert carried(outer) == (inner,)
        assert judge(outer, NOTHING) == alone


@given(st.ip_addresses())
def test_nothing_that_the_standard_library_calls_private_passes(address: Address) -> None:
    if address.is_private or address.is_multicast or address.is_link_local or address.is_unspecified:
        assert judge(address, NOTHING) is not None


class Names:
    """A resolver that gives one answer after the other."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        answer = self.answers.pop(0)
        if not answer:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return answer


def nowhere(_: Address) -> bool:
    return False


def everywhere(_: Address) -> bool:
    return True


async def test_all_addresses_of_a_name_must_pass() -> None:
    assert await vet(API, NOTHING, Names(["8.8.8.8", "2606:4700::1111", "8.8.8.8"]), nowhere) == Vetted(
        (ipaddress.ip_address("8.8.8.8"), ipaddress.ip_address("2606:4700::1111"))
    )
    assert await vet(API, NOTHING, Names(["8.8.8.8", "10.0.0.1"]), nowhere) is AddressFault.PRIVATE
    assert await vet(API, OPEN, Names(["8.8.8.8", "169.254.169.254"]), nowhere) is AddressFault.NEVER


async def test_a_name_is_asked_once_and_its_answer_kept() -> None:
    names = Names(["8.8.8.8"], ["127.0.0.1"])
    vetted = await vet(API, NOTHING, names, nowhere)
    assert vetted == Vetted((ipaddress.ip_address("8.8.8.8"),))
    assert names.asked == [("api.example", 443)]
    assert await vet(API, NOTHING, names, nowhere) is AddressFault.PRIVATE


@pytest.mark.parametrize("answer", [[], ["not an address"], ["127.1"], ["0x7f.1"], ["2130706433"]])
async def test_a_name_without_a_clear_answer_is_refused(answer: list[str]) -> None:
    assert await vet(API, OPEN, Names(answer), nowhere) is AddressFault.UNRESOLVED


async def test_a_name_with_too_many_addresses_is_refused() -> None:
    many = [f"8.8.8.{number}" for number in range(ADDRESSES + 1)]
    assert await vet(API, NOTHING, Names(many), nowhere) is AddressFault.TOO_MANY


async def test_a_literal_is_judged_without_asking_anybody() -> None:
    names = Names()
    assert await vet(Origin("https", "10.0.0.1", 443), NOTHING, names, nowhere) is AddressFault.PRIVATE
    assert await vet(Origin("https", "::ffff:7f00:1", 443), OPEN, names, nowhere) == Vetted(
        (ipaddress.ip_address("127.0.0.1"),)
    )
    assert names.asked == []


async def test_plain_http_is_for_loopback_alone() -> None:
    assert (
        await vet(Origin("http", "api.example", 80), OPEN, Names(["8.8.8.8"]), nowhere)
        is AddressFault.PLAIN_HTTP
    )
    assert (
        await vet(Origin("http", "api.example", 80), OPEN, Names(["10.0.0.1"]), nowhere)
        is AddressFault.PLAIN_HTTP
    )
    mapped = await vet(Origin("http", "api.example", 80), OPEN, Names(["::ffff:127.0.0.1", "::1"]), nowhere)
    assert isinstance(mapped, Vetted)
    carried_home = Names(["64:ff9b::7f00:1"])
    assert (
        await vet(Origin("http", "api.example", 80), OPEN, carried_home, nowhere) is AddressFault.PLAIN_HTTP
    )


async def test_a_listener_of_our_own_is_never_an_origin() -> None:
    home = ipaddress.ip_address("127.0.0.1")
    ours = Rules(OPEN.listed, listeners=((home, 8746),))
    at = Origin("http", "localhost", 8746)
    assert await vet(at, ours, Names(["127.0.0.1"]), nowhere) is AddressFault.OURSELVES
    assert await vet(at, ours, Names(["::ffff:127.0.0.1"]), nowhere) is AddressFault.OURSELVES
    assert isinstance(
        await vet(Origin("http", "localhost", 8747), ours, Names(["127.0.0.1"]), nowhere), Vetted
    )
    anywhere = Rules(OPEN.listed, listeners=((None, 8746),))
    assert await vet(at, anywhere, Names(["127.0.0.1"]), everywhere) is AddressFault.OURSELVES
    far = Origin("https", "api.example", 8746)
    assert isinstance(await vet(far, anywhere, Names(["8.8.8.8"]), nowhere), Vetted)
