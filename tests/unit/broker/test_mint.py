"""What a minted credential says, for how long, and where it may be attached."""

import base64
import math

import pytest

from broker.credential import Credential, CredentialFault, Place, attach
from broker.jose import Hs256
from broker.mint import GRACE_S, Claims, JwtMinter, OneProfile, Order, StaticMinter
from plimsoll.contract import jwk
from tests.unit.broker.verifying import verify

ORDER = Order("hr-read", "caller-7", "a" * 32, budget_s=30.5)
SECRET = bytes(range(32))
PLACE = Place()


def minter(claims: Claims, randomness: bytes = b"\x01" * 16) -> JwtMinter:
    return JwtMinter(Hs256(SECRET, "hr-1"), claims, PLACE, lambda: 1000.9, lambda size: randomness[:size])


async def claims_of(claims: Claims, order: Order = ORDER) -> dict[str, object]:
    minted = await minter(claims).mint(order)
    assert isinstance(minted, Credential)
    token = minted.value.removeprefix("Bearer ")
    assert minted.secrets == (token.encode(),)
    return verify(
        token, {"hr-1": SECRET}, algorithm="HS256", issuer=claims.issuer, audience=claims.audience, now=1000
    )


async def test_a_token_says_who_calls_whom_until_when() -> None:
    assert await claims_of(Claims("plimsoll", "hr", "employees:read", lifetime_s=60)) == {
        "iss": "plimsoll",
        "aud": "hr",
        "sub": "caller-7",
        "scope": "employees:read",
        "iat": 1000,
        "exp": 1060,
        "jti": jwk.encode(b"\x01" * 16),
    }


@pytest.mark.parametrize(
    ("lifetime_s", "budget_s", "lives"), [(60, 300, 60), (300, 30.5, 31 + GRACE_S), (1, 1, 1)]
)
async def test_it_lives_no_longer_than_configured_and_than_the_run(
    lifetime_s: int, budget_s: float, lives: int
) -> None:
    order = Order("hr-read", "c", "a" * 32, budget_s)
    found = await claims_of(Claims("plimsoll", "hr", lifetime_s=lifetime_s), order)
    assert found["exp"] == 1000 + lives
    assert lives <= math.ceil(budget_s) + GRACE_S


async def test_without_a_scope_there_is_no_claim_of_one() -> None:
    assert "scope" not in await claims_of(Claims("plimsoll", "hr"))


async def test_every_token_is_another() -> None:
    names = [await minter(Claims("plimsoll", "hr"), bytes([number]) * 16).mint(ORDER) for number in range(3)]
    assert len({name.value for name in names if isinstance(name, Credential)}) == 3


@pytest.mark.parametrize(
    "claims",
    [
        {"issuer": ""},
        {"audience": ""},
        {"lifetime_s": 0},
        {"lifetime_s": -5},
        {"scope": "x" * 513},
        {"audience": "x" * 513},
    ],
    ids=str,
)
def test_claims_that_would_mean_too_much_are_refused(claims: dict[str, object]) -> None:
    with pytest.raises(CredentialFault):
        Claims(**({"issuer": "plimsoll", "audience": "hr"} | claims))  # type: ignore[arg-type]


async def test_a_token_without_a_caller_is_never_made() -> None:
    with pytest.raises(ValueError, match="caller"):
        await minter(Claims("plimsoll", "hr")).mint(Order("hr-read", "", "a" * 32, 30))


async def test_a_static_credential_is_what_was_sealed() -> None:
    minted = await StaticMinter(b"canary-token", PLACE).mint(ORDER)
    assert minted == Credential("authorization", "Bearer canary-token", (b"canary-token",))
    assert "canary" not in repr(minted)


def test_a_credential_goes_where_the_place_says() -> None:
    assert attach(b"canary-token", Place("x-api-key", "")).value == "canary-token"
    basic = attach(b"user:password", Place(scheme="Basic"))
    assert basic.value == "Basic " + base64.b64encode(b"user:password").decode()
    assert basic.secrets == (b"user:password", base64.b64encode(b"user:password"))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"short",
        b"with a space",
        b"line\nbreak!",
        b"canary\r\nhost: evil",
        b"\xc3\xa9" * 8,
        b"x" * 16385,
        b"tab\there!!",
    ],
)
def test_what_cannot_be_attached_is_refused_and_not_shown(token: bytes) -> None:
    with pytest.raises(CredentialFault) as caught:
        attach(token, PLACE)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Authorization",
        "host",
        "cookie",
        "content-type",
        "accept",
        "content-length",
        "te",
        "x y",
        "x:",
        "x\n",
        "é",
    ],
)
def test_a_header_that_says_something_else_is_no_place(header: str) -> None:
    with pytest.raises(CredentialFault):
        Place(header)


def test_a_scheme_is_one_word() -> None:
    with pytest.raises(CredentialFault):
        Place(scheme="Bearer x")


def test_one_secret_serves_one_profile() -> None:
    known = OneProfile(b"k" * 32, most=2)
    assert known.claim(SECRET, "hr-read")
    assert known.claim(SECRET, "hr-read")
    assert not known.claim(SECRET, "hr-write")
    assert known.claim(b"another", "hr-write")
    assert not known.claim(b"one too many", "third")
    assert known.claim(SECRET, "hr-read")
    assert repr(SECRET)[2:-1] not in str(vars(known) if hasattr(known, "__dict__") else "")
