"""A box opens for its key beside its binding, and in no other case."""

import pickle
from dataclasses import fields, replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from app.vault import box, seal, unseal
from app.vault.seal import Binding, binding_of
from app.vault.unseal import BoxFault, Secret, Unsealer
from plimsoll.contract.profiles import CredentialTerms, CredentialType, Profile

BOUND = Binding(
    profile="hr-read",
    origin="https://hr.example.com",
    credential_type="static",
    audience="hr",
    allow=("GET /v1/employees", "GET /v1/employees/*"),
    allowed_callers=("reporting", "payroll"),
    terms=(("header", "authorization"), ("scheme", "Bearer")),
)
PRIVATE = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = PRIVATE.public_key()
UNSEALER = Unsealer(PRIVATE)
SECRET = b"canary-of-a-secret"

ALTERED: list[tuple[str, Any]] = [
    ("profile", "hr-write"),
    ("profile", ""),
    ("origin", "https://evil.example"),
    ("origin", "http://hr.example.com"),
    ("origin", "https://hr.example.com:8443"),
    ("credential_type", "jwt"),
    ("audience", ""),
    ("audience", "payroll"),
    ("allow", ("GET /v1/employees",)),
    ("allow", ("GET /v1/employees", "GET /v1/employees/*", "DELETE /v1/employees/*")),
    ("allow", ("GET /v1/employees/*", "GET /v1/employees")),
    ("allow", ("GET /v1/employees,GET /v1/employees/*",)),
    ("allowed_callers", ("reporting",)),
    ("allowed_callers", ("reporting", "payroll", "mallory")),
    ("allowed_callers", ()),
    ("terms", ()),
    ("terms", (("header", "x-request-id"), ("scheme", "Bearer"))),
    ("terms", (("header", "authorization"), ("scheme", "Bearer"), ("scope", "admin"))),
]


def test_a_box_opens_beside_its_binding() -> None:
    assert UNSEALER.open(seal.seal(SECRET, BOUND, PUBLIC), BOUND) == Secret(SECRET)


@pytest.mark.parametrize(("name", "value"), ALTERED)
def test_a_box_stays_shut_beside_any_other(name: str, value: Any) -> None:
    sealed = seal.seal(SECRET, BOUND, PUBLIC)
    assert UNSEALER.open(sealed, replace(BOUND, **{name: value})) is BoxFault.BOUND_ELSEWHERE


def test_each_field_of_the_binding_was_altered() -> None:
    assert {name for name, _ in ALTERED} == {field.name for field in fields(Binding)}


PROFILE = Profile(
    name="hr-read",
    origin="https://hr.example.com",
    allow=("GET /v1/employees",),
    allowed_callers=("reporting",),
    credential=CredentialTerms(CredentialType.JWT, "hr", issuer="plimsoll", algorithm="EdDSA"),
)
SIZES = {"max_calls", "out_bytes", "back_bytes", "health_check"}


@pytest.mark.parametrize(
    "name", [field.name for field in fields(Profile) if field.name not in SIZES | {"credential"}]
)
def test_a_box_is_bound_to_every_field_of_its_profile(name: str) -> None:
    other: Any = ("other",) if name in {"allow", "allowed_callers"} else "other"
    assert binding_of(replace(PROFILE, **{name: other})) != binding_of(PROFILE)


@pytest.mark.parametrize("name", [field.name for field in fields(CredentialTerms)])
def test_a_box_is_bound_to_every_term_of_its_credential(name: str) -> None:
    other: Any = {"type": CredentialType.STATIC, "lifetime_s": 7}.get(name, "other")
    changed = replace(PROFILE, credential=replace(PROFILE.credential, **{name: other}))
    assert binding_of(changed) != binding_of(PROFILE)
    sealed = seal.seal(SECRET, binding_of(PROFILE), PUBLIC)
    assert UNSEALER.open(sealed, binding_of(changed)) is BoxFault.BOUND_ELSEWHERE


def test_sizes_may_change_without_sealing_again() -> None:
    assert binding_of(replace(PROFILE, max_calls=1, health_check="/up")) == binding_of(PROFILE)


def test_another_key_opens_nothing() -> None:
    sealed = seal.seal(SECRET, BOUND, PUBLIC)
    assert Unsealer(X25519PrivateKey.generate()).open(sealed, BOUND) is BoxFault.OTHER_KEY


@given(st.integers(0, 1 << 16), st.integers(0, 7))
def test_a_flipped_bit_keeps_it_shut(position: int, bit: int) -> None:
    sealed = bytearray(seal.seal(SECRET, BOUND, PUBLIC))
    sealed[position % len(sealed)] ^= 1 << bit
    assert isinstance(UNSEALER.open(bytes(sealed), BOUND), BoxFault)


@given(st.integers(0, 400))
def test_a_cut_box_stays_shut(length: int) -> None:
    sealed = seal.seal(SECRET, BOUND, PUBLIC)
    assert isinstance(UNSEALER.open(sealed[: min(length, len(sealed) - 1)], BOUND), BoxFault)


def test_a_box_of_a_fresh_key_of_low_order_stays_shut() -> None:
    forged = box.header(box.raw(PUBLIC), bytes(32)) + bytes(64)
    assert UNSEALER.open(forged, BOUND) is BoxFault.ALTERED


@pytest.mark.parametrize(
    "sealed", [b"", b"\x01", bytes(200), b"\x02" + bytes(200), b"\x01" * (box.BOX_BYTES + 1)]
)
def test_other_bytes_are_no_box(sealed: bytes) -> None:
    assert UNSEALER.open(sealed, BOUND) in {BoxFault.MALFORMED, BoxFault.OTHER_KEY}


def test_one_secret_never_seals_to_the_same_box() -> None:
    assert len({seal.seal(SECRET, BOUND, PUBLIC) for _ in range(50)}) == 50


@pytest.mark.parametrize("secret", [b"", b"x" * (box.SECRET_BYTES + 1)])
def test_a_secret_of_no_use_is_not_sealed(secret: bytes) -> None:
    with pytest.raises(ValueError, match="bytes"):
        seal.seal(secret, BOUND, PUBLIC)


@given(st.binary(min_size=1, max_size=64), st.text(max_size=8), st.lists(st.text(max_size=8), max_size=3))
def test_any_binding_opens_its_own_box(secret: bytes, name: str, listed: list[str]) -> None:
    bound = replace(BOUND, profile=name, allow=tuple(listed))
    opened = UNSEALER.open(seal.seal(secret, bound, PUBLIC), bound)
    assert opened == Secret(secret)


def test_the_layout_is_pinned() -> None:
    """Boxes lie in databases: what was sealed by this version opens in every later one."""
    sealed = bytes.fromhex(PINNED)
    assert UNSEALER.open(sealed, BOUND) == Secret(SECRET)


def test_the_api_side_has_nothing_that_opens() -> None:
    assert set(seal.__all__) == {"Binding", "binding_of", "seal"}
    assert not hasattr(seal, "unseal")
    assert not hasattr(PUBLIC, "exchange")


def test_nothing_shows_a_secret_or_a_key() -> None:
    opened = UNSEALER.open(seal.seal(SECRET, BOUND, PUBLIC), BOUND)
    shown = repr(opened) + str(opened) + repr(UNSEALER) + str(vars(UNSEALER)) + repr(vars(unseal))
    assert "canary" not in shown
    assert PRIVATE.private_bytes_raw().hex() not in shown
    assert repr(PRIVATE.private_bytes_raw())[2:-1] not in shown
    with pytest.raises(TypeError):
        pickle.dumps(UNSEALER)


PINNED = (
    "015027c4c7a86152d741fac5db15ea187178d216ed93315bf419a46fe187a86e666933f108795eb4646a7b404e2d39ca"
    "c6c7b7f7ab298721e4366e378c8067f52516e2502389a200411a4b959aca7cff2b3296a127e565ce683e06923b9ffd79"
    "50dca693d37e541bff47f8593e1f407d2a23add975d10088986001e432c12dde3e527b1b8f6de40440bc63a952d21c58"
    "b69b831c9920fd128b8efc14dbbfd79518e2384e2b40d827d5beb8db77e9476ce62166b2f49790aa58d26638e4fcdaf2"
    "ec9415ac431a2250e20fcc8bd55516af97bc2855ac2556abc73cf693efb5629a0b07714d44d4674f72512dc13e8a4564"
    "10a3cb57a0465fcb2a51a0076924ee524e21ef50ff1797156323eeaadeadfb484e179708e2a57dda1cfe869bb6fec127"
    "a4465b548e8c908f3124cc7a0031f50acec884ffa6d2969abd6d1301bd044c4d44d51a963137dcd9"
)
