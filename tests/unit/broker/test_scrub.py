"""The whole credential is found in each promised form and inside anything, and a part of it never is."""

import asyncio
import base64
import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from broker.scrub import Net, Search
from plimsoll.contract.profiles import SHORTEST

SECRET = "sk/live+0123\"'%41\\abc=~."
NET = Net([SECRET.encode()])
CREDENTIALS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=SHORTEST, max_size=40)
AROUND = st.binary(max_size=7)

FORMS = {
    "as it is": SECRET,
    "in JSON": json.dumps(SECRET),
    "in JSON with an escaped slash": json.dumps(SECRET).replace("/", "\\/"),
    "in JSON with every character escaped": "".join(f"\\u00{ord(character):02x}" for character in SECRET),
    "in JSON in capitals": "".join(f"\\u00{ord(character):02X}" for character in SECRET),
    "in a URL": quote(SECRET, safe=""),
    "in a form": quote_plus(SECRET),
    "in a URL with every character encoded": "".join(f"%{ord(character):02x}" for character in SECRET),
    "in a URL in mixed cases": "".join(f"%{ord(character):02X}" for character in SECRET[:5])
    + quote(SECRET[5:]),
    "half encoded": SECRET[:6]
    + "".join(f"%{ord(character):02X}" for character in SECRET[6:10])
    + quote(SECRET[10:]),
    "in a URL in JSON": json.dumps({"next": "https://x.example/?key=" + quote(SECRET, safe="")}),
    "in base64": base64.b64encode(SECRET.encode()).decode(),
    "in base64 behind a user": base64.b64encode(b"user:" + SECRET.encode()).decode(),
    "in base64 for URLs": base64.urlsafe_b64encode(b"?>" + SECRET.encode()).decode().rstrip("="),
    "in base64 in JSON with an escaped slash": json.dumps(base64.b64encode(SECRET.encode()).decode()).replace(
        "/", "\\/"
    ),
    "in base64 in a URL": quote(base64.b64encode(b"a" + SECRET.encode()).decode(), safe=""),
    "in base64 in lines": base64.encodebytes(SECRET.encode() * 5).decode(),
    "in base64 in lines in JSON": json.dumps(
        base64.encodebytes(b"x" * 50 + SECRET.encode()).decode().replace("\n", "\r\n")
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_each_form_is_found(form: str) -> None:
    assert NET.catches(form.encode())
    assert NET.catches(b"before" + form.encode() + b"behind")


@given(CREDENTIALS, AROUND, AROUND)
def test_any_credential_is_found_inside_anything(secret: str, before: bytes, behind: bytes) -> None:
    net, raw = Net([secret.encode()]), secret.encode()
    inside = before + raw + behind
    assert net.catches(inside)
    assert net.catches(base64.b64encode(inside))
    assert net.catches(base64.urlsafe_b64encode(inside))
    assert net.catches(quote(secret, safe="").encode())
    assert net.catches(json.dumps({"echo": secret}).encode())
    assert net.catches(json.dumps({"echo": base64.b64encode(inside).decode()}).encode())


@given(CREDENTIALS)
def test_a_part_is_never_reacted_to(secret: str) -> None:
    raw = secret.encode()
    net = Net([raw])
    for part in (raw[1:], raw[:-1], raw[:-1] + b" ", raw[: len(raw) // 2] + b" " + raw[len(raw) // 2 :]):
        assert not net.catches(part)
        assert not net.catches(base64.b64encode(part)[:-4])


@given(st.binary(max_size=300))
def test_other_bytes_pass(text: bytes) -> None:
    assert not NET.catches(text)


def test_any_of_several_credentials_is_found() -> None:
    net = Net([b"first-secret", b"second-secret"])
    assert net.catches(b"... second-secret ...")
    assert net.catches(b"... first-secret ...")
    assert not net.catches(b"... third-secret ...")


def test_a_credential_too_short_to_look_for_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        Net([b"1234567"])


def test_nothing_is_shown() -> None:
    assert "live" not in repr(NET) + str(NET)


class Beside(Executor):
    """What it was given, done when the test says so."""

    def __init__(self) -> None:
        self.given: list[tuple[Callable[[], Any], Future[Any]]] = []

    @override
    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        found: Future[Any] = Future()
        self.given.append((lambda: work(*args, **more), found))
        return found

    def do(self) -> int:
        """Everything that is there; how much it was."""
        given, self.given = self.given, []
        for work, found in given:
            found.set_result(work())
        return len(given)


async def test_long_answers_of_one_run_are_searched_in_turn_and_not_before_those_of_others() -> None:
    beside = Beside()
    one, two = Search(NET, beside), Search(NET, beside)
    many = [asyncio.create_task(one.catches(bytes(100_000))) for _ in range(16)]
    await asyncio.sleep(0.01)
    single = asyncio.create_task(two.catches(bytes(100_000) + SECRET.encode()))
    await asyncio.sleep(0.01)
    assert beside.do() == 2
    assert await single
    for _ in range(15):
        await asyncio.sleep(0.01)
        assert beside.do() == 1
    assert await asyncio.gather(*many) == [False] * 16


async def test_a_short_answer_waits_for_no_long_one() -> None:
    beside = Beside()
    search = Search(NET, beside)
    long = asyncio.create_task(search.catches(bytes(100_000)))
    await asyncio.sleep(0)
    assert await search.catches(SECRET.encode())
    long.cancel()
