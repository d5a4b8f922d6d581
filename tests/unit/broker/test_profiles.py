"""What the API hands over is believed only as far as the box beside it and the broker's own settings say the same."""

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from app.vault import seal
from app.vault.unseal import BoxFault, Unsealer, binding_of
from broker.addresses import AddressFault
from broker.credential import Credential
from broker.hooks import ExecHook, ExecMinter, HttpHook, HttpMinter
from broker.mint import JwtMinter, MintFault, OneProfile, Order, StaticMinter
from broker.profiles import Handed, ProfileFault, Sources, grant_of, minter_for
from plimsoll.contract.grants import GrantFault, Origin, parse_origin
from plimsoll.contract.profiles import CredentialTerms, CredentialType, Profile, check
from tests.unit.broker.test_jose import ED, pem
from tests.unit.broker.verifying import verify

PRIVATE = X25519PrivateKey.from_private_bytes(bytes(range(32)))
ORIGIN = "https://hr.example.com"
STATIC = Profile(
    name="hr-read",
    origin=ORIGIN,
    allow=("GET /v1/employees?page", "GET /v1/employees/*"),
    allowed_callers=("reporting", "payroll"),
    credential=CredentialTerms(CredentialType.STATIC),
    max_calls=50,
    health_check="/healthz",
)
JWT = replace(
    STATIC,
    credential=CredentialTerms(
        CredentialType.JWT,
        "hr",
        issuer="plimsoll",
        scope="read",
        algorithm="HS256",
        key_id="hr-1",
        lifetime_s=60,
    ),
)
EXEC = replace(STATIC, credential=CredentialTerms(CredentialType.EXEC, "hr", hook="program"))
HTTP = replace(STATIC, credential=CredentialTerms(CredentialType.HTTP, "hr", hook="service"))
SECRET = b"canary-secret-of-32-bytes-or-more"
ORDER = Order("hr-read", "caller-7", "a" * 32, 30)


async def nowhere(_: Origin) -> AddressFault:
    return AddressFault.UNRESOLVED


@pytest.fixture
def sources() -> Sources:
    hooks: dict[str, ExecHook | HttpHook] = {
        "program": ExecHook(("/bin/true",), frozenset({ORIGIN})),
        "service": HttpHook(parse_origin("https://mint.example"), "/mint", frozenset({ORIGIN})),
        "elsewhere": ExecHook(("/bin/true",), frozenset({"https://other.example"})),
    }
    return Sources(Unsealer(PRIVATE), hooks, nowhere, OneProfile(b"k" * 32), lambda: 1000.0, bytes)


def handed(profile: Profile, secret: bytes = SECRET, caller: str = "reporting") -> Handed:
    return Handed(profile, seal.seal(secret, binding_of(profile), PRIVATE.public_key()), caller)


def test_each_type_has_its_minter(sources: Sources) -> None:
    kinds = [type(minter_for(handed(profile), sources)) for profile in (STATIC, JWT, EXEC, HTTP)]
    assert kinds == [StaticMinter, JwtMinter, ExecMinter, HttpMinter]


async def test_a_minted_token_is_for_this_profiles_api(sources: Sources) -> None:
    minter = minter_for(handed(JWT), sources)
    assert isinstance(minter, JwtMinter)
    minted = await minter.mint(ORDER)
    assert isinstance(minted, Credential)
    token = minted.value.removeprefix("Bearer ")
    claims = verify(token, {"hr-1": SECRET}, algorithm="HS256", issuer="plimsoll", audience="hr", now=1000)
    assert (claims["sub"], claims["scope"], claims["exp"]) == ("caller-7", "read", 1060)


async def test_a_hook_whose_service_is_unknown_gives_nothing(sources: Sources) -> None:
    minter = minter_for(handed(HTTP), sources)
    assert isinstance(minter, HttpMinter)
    assert await minter.mint(ORDER) is MintFault.HOOK_UNAVAILABLE


ALTERED: list[dict[str, Any]] = [
    {"name": "other"},
    {"origin": "https://evil.example"},
    {"allow": ("GET /v1/employees?page", "GET /v1/employees/*", "DELETE /v1/employees/*")},
    {"allowed_callers": ("reporting", "payroll", "mallory")},
]
ALTERED_TERMS: list[dict[str, Any]] = [{"header": "x-request-id"}, {"scheme": ""}, {"audience": "other"}]


@pytest.mark.parametrize("profile", [STATIC, JWT, EXEC, HTTP], ids=lambda profile: profile.credential.type)
def test_a_box_opens_beside_no_altered_profile(sources: Sources, profile: Profile) -> None:
    sealed = handed(profile).sealed
    changed = [replace(profile, **change) for change in ALTERED]
    changed += [
        replace(profile, credential=replace(profile.credential, **change)) for change in ALTERED_TERMS
    ]
    changed += [other for other in (STATIC, EXEC, HTTP, JWT) if other != profile]
    for other in changed:
        assert minter_for(Handed(other, sealed, "reporting"), sources) is BoxFault.BOUND_ELSEWHERE


@pytest.mark.parametrize(
    "change",
    [{"scope": "admin"}, {"issuer": "x"}, {"lifetime_s": 9999}, {"key_id": "x"}, {"algorithm": "EdDSA"}],
)
def test_nobody_makes_a_token_mean_more(sources: Sources, change: dict[str, Any]) -> None:
    other = replace(JWT, credential=replace(JWT.credential, **change))
    assert minter_for(Handed(other, handed(JWT).sealed, "reporting"), sources) is BoxFault.BOUND_ELSEWHERE


@pytest.mark.parametrize("caller", ["mallory", "", "Reporting", "reporting,payroll"])
def test_only_a_listed_caller_gets_a_minter(sources: Sources, caller: str) -> None:
    assert minter_for(handed(STATIC, caller=caller), sources) is ProfileFault.CALLER


def test_a_hook_sealed_for_an_origin_it_does_not_mint_for_stays_unused(sources: Sources) -> None:
    """Whoever can seal boxes of their own gets no further: the broker's own settings list the origins."""
    evil = replace(EXEC, origin="https://evil.example")
    assert minter_for(handed(evil), sources) is ProfileFault.HOOK
    for hook in ("elsewhere", "unknown", "service"):
        other = replace(EXEC, credential=replace(EXEC.credential, hook=hook))
        assert minter_for(handed(other), sources) is ProfileFault.HOOK
    wrong = replace(HTTP, credential=replace(HTTP.credential, hook="program"))
    assert minter_for(handed(wrong), sources) is ProfileFault.HOOK


def test_one_secret_serves_one_profile(sources: Sources) -> None:
    assert isinstance(minter_for(handed(JWT), sources), JwtMinter)
    assert isinstance(minter_for(handed(JWT), sources), JwtMinter)
    assert minter_for(handed(replace(JWT, name="hr-write")), sources) is ProfileFault.SHARED


@pytest.mark.parametrize(
    ("profile", "secret"),
    [
        (STATIC, b"short"),
        (STATIC, b"canary\r\nhost: evil"),
        (JWT, b"x" * 31),
        (replace(JWT, credential=replace(JWT.credential, algorithm="EdDSA")), SECRET),
        (replace(JWT, credential=replace(JWT.credential, algorithm="ES256")), pem(ED)),
        (replace(JWT, credential=replace(JWT.credential, key_id="")), SECRET),
    ],
    ids=range(6),
)
def test_a_secret_of_another_kind_is_refused(sources: Sources, profile: Profile, secret: bytes) -> None:
    assert minter_for(handed(profile, secret), sources) is ProfileFault.CREDENTIAL


def test_a_malformed_profile_is_refused_before_its_box_is_opened(sources: Sources) -> None:
    for change in ({"origin": "evil"}, {"allow": ("get /",)}, {"max_calls": 0}):
        assert minter_for(handed(replace(STATIC, **change)), sources) is ProfileFault.MALFORMED
    cookie = replace(STATIC, credential=replace(STATIC.credential, header="cookie"))
    assert minter_for(handed(cookie), sources) is ProfileFault.MALFORMED


def test_the_grant_is_the_profiles() -> None:
    grant = grant_of(STATIC)
    assert [str(route) for route in grant.routes] == list(STATIC.allow)
    assert (grant.max_calls, grant.health_check, grant.out_bytes) == (50, "/healthz", STATIC.out_bytes)


def test_nothing_shows_a_box_or_a_secret(sources: Sources) -> None:
    given = handed(STATIC)
    assert "canary" not in repr(given) + repr(sources) + repr(minter_for(given, sources))
    assert given.sealed.hex()[:40] not in repr(given)
    assert repr(given.sealed)[2:40] not in repr(given)


TERMS = STATIC.credential
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"name": "HR"}, "name"),
    ({"name": ""}, "name"),
    ({"name": "a" * 65}, "name"),
    ({"origin": "https://hr.example.com/"}, "origin"),
    ({"allow": ()}, "allow"),
    ({"allow": ("GET /x", "GET /x")}, "each once"),
    ({"allow": tuple(f"GET /{number}" for number in range(257))}, "allow"),
    ({"allow": ("GET x",)}, "route"),
    ({"allowed_callers": ()}, "allowed_callers"),
    ({"allowed_callers": ("a", "a")}, "each once"),
    ({"allowed_callers": ("*",)}, "allowed_callers"),
    ({"max_calls": 0}, "max_calls"),
    ({"max_calls": 100_001}, "max_calls"),
    ({"out_bytes": 0}, "out_bytes must"),
    ({"out_bytes": (1 << 20) + 1}, "out_bytes must"),
    ({"back_bytes": (4 << 20) + 1}, "out_bytes must"),
    ({"health_check": "healthz"}, "starts with /"),
    ({"health_check": "/up?x"}, "one path"),
    ({"health_check": "/*"}, "one path"),
    ({"health_check": "/../up"}, "dots alone"),
    ({"credential": replace(TERMS, hook="program")}, "hook"),
    ({"credential": replace(EXEC.credential, hook="")}, "hook"),
    ({"credential": replace(EXEC.credential, hook="../x")}, "hook"),
    ({"credential": replace(JWT.credential, hook="program")}, "hook"),
    ({"credential": replace(JWT.credential, algorithm="none")}, "algorithm"),
    ({"credential": replace(JWT.credential, issuer="")}, "issuer"),
    ({"credential": replace(JWT.credential, audience="")}, "audience"),
    ({"credential": replace(JWT.credential, lifetime_s=0)}, "lifetime"),
    ({"credential": replace(JWT.credential, lifetime_s=86_401)}, "lifetime"),
    ({"credential": replace(TERMS, scope="x")}, "for a jwt"),
    ({"credential": replace(TERMS, key_id="x")}, "for a jwt"),
    ({"credential": replace(TERMS, audience="x" * 513)}, "characters"),
]


@pytest.mark.parametrize(("change", "rule"), BROKEN)
def test_a_profile_that_breaks_a_rule_says_which(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(GrantFault, match=rule):
        check(replace(STATIC, **change))


@pytest.mark.parametrize("profile", [STATIC, JWT, EXEC, HTTP])
def test_a_good_profile_passes(profile: Profile) -> None:
    check(profile)
    check(replace(profile, health_check=None, max_calls=100_000))
