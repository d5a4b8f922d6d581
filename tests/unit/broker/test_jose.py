"""Tokens and keys against the examples of the standards, and against forgeries."""

import json

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from broker import jose
from broker.jose import Ed25519, Es256, Hs256, KeyRefused, Signer
from plimsoll.contract import jwk
from tests.unit.broker.verifying import NotVerified, verify

SECRET = bytes(range(32))
CLAIMS = {"iss": "plimsoll", "aud": "hr", "sub": "reporting", "iat": 1000, "exp": 1100, "jti": "x"}


def pem(private: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey) -> bytes:
    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


ED = ed25519.Ed25519PrivateKey.from_private_bytes(jose.decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"))
EC = ec.derive_private_key(
    int.from_bytes(jose.decode("jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"), "big"), ec.SECP256R1()
)
POINT = EC.public_key().public_numbers()
PUBLISHED = {
    "HS256": {},
    "EdDSA": jwk.published(jwk.ed25519(ED.public_key().public_bytes_raw()), "EdDSA"),
    "ES256": jwk.published(jwk.p256(POINT.x, POINT.y), "ES256"),
}
SIGNERS: list[Signer] = [Hs256(SECRET, "hr-1"), Ed25519(ED), Es256(EC)]


def test_hs256_is_rfc_7515_a_1() -> None:
    key = jose.decode(
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
    )
    payload = b'{"iss":"joe",\r\n "exp":1300819380,\r\n "http://example.com/is_root":true}'
    assert jose.compact(b'{"typ":"JWT",\r\n "alg":"HS256"}', payload, Hs256(key, "k")) == (
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
        ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
        ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    )


def test_eddsa_is_rfc_8037_a() -> None:
    assert jose.compact(b'{"alg":"EdDSA"}', b"Example of Ed25519 signing", Ed25519(ED)) == (
        "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
        ".hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
    )
    assert Ed25519(ED).key_id == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def keys_of(signers: list[Signer]) -> dict[str, dict[str, str] | bytes]:
    """What an API has of these: the published key of each that has one, and the shared secret."""
    document = json.loads(jwk.document(json.dumps(PUBLISHED[each.algorithm]) for each in signers))
    return {key["kid"]: key for key in document["keys"]} | {"hr-1": SECRET}


@pytest.mark.parametrize("key", SIGNERS, ids=lambda key: key.algorithm)
def test_a_token_is_verified_with_what_the_api_has(key: Signer) -> None:
    token = jose.sign(CLAIMS, key)
    found = verify(
        token, keys_of(SIGNERS), algorithm=key.algorithm, issuer="plimsoll", audience="hr", now=1050
    )
    assert found == CLAIMS


@pytest.mark.parametrize("key", SIGNERS, ids=lambda key: key.algorithm)
@pytest.mark.parametrize(
    "other",
    [
        {"issuer": "evil"},
        {"audience": "payroll"},
        {"now": 1106},
        {"now": 994},
        {"algorithm": "none"},
        {"algorithm": "RS256"},
    ],
    ids=str,
)
def test_a_token_for_somebody_else_or_another_time_is_not(key: Signer, other: dict[str, str]) -> None:
    asked = {"algorithm": key.algorithm, "issuer": "plimsoll", "audience": "hr", "now": 1050} | other
    with pytest.raises(NotVerified):
        verify(jose.sign(CLAIMS, key), keys_of(SIGNERS), **asked)  # type: ignore[arg-type]


def test_a_public_key_is_no_secret_to_sign_with() -> None:
    """The confusion of algorithms: a token under HS256 whose secret is the published key."""
    published = Ed25519(ED)
    forged = Hs256(jwk.document([json.dumps(PUBLISHED["EdDSA"])]), published.key_id)
    for algorithm in ("HS256", "EdDSA"):
        with pytest.raises(NotVerified):
            verify(
                jose.sign(CLAIMS, forged),
                keys_of([published]),
                algorithm=algorithm,
                issuer="plimsoll",
                audience="hr",
                now=1050,
            )


@pytest.mark.parametrize("key", SIGNERS, ids=lambda key: key.algorithm)
def test_a_changed_token_is_not_verified(key: Signer) -> None:
    token = jose.sign(CLAIMS, key)
    for position in range(0, len(token), 7):
        changed = token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]
        with pytest.raises(NotVerified):
            verify(
                changed, keys_of(SIGNERS), algorithm=key.algorithm, issuer="plimsoll", audience="hr", now=1050
            )


def test_a_signer_names_the_key_that_is_published() -> None:
    assert [PUBLISHED[each.algorithm]["kid"] for each in SIGNERS[1:]] == [each.key_id for each in SIGNERS[1:]]


def test_keys_are_read_as_what_they_are() -> None:
    assert jose.signer("HS256", SECRET, "hr-1").key_id == "hr-1"
    assert jose.signer("EdDSA", pem(ED), "").key_id == Ed25519(ED).key_id
    assert jose.signer("ES256", pem(EC), "").key_id == Es256(EC).key_id


@pytest.mark.parametrize(
    ("algorithm", "key", "key_id"),
    [
        ("HS256", SECRET[:31], "k"),
        ("HS256", SECRET, ""),
        ("HS256", SECRET, "a b"),
        ("EdDSA", pem(EC), ""),
        ("ES256", pem(ED), ""),
        ("ES256", pem(ec.generate_private_key(ec.SECP384R1())), ""),
        ("ES256", pem(rsa.generate_private_key(65537, 2048)), ""),
        ("EdDSA", b"canary", ""),
        ("EdDSA", b"-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n", ""),
        ("RS256", pem(rsa.generate_private_key(65537, 2048)), ""),
        ("none", SECRET, "k"),
        ("hs256", SECRET, "k"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "key",
)
def test_a_key_that_does_not_fit_is_refused_and_not_shown(algorithm: str, key: bytes, key_id: str) -> None:
    with pytest.raises(KeyRefused) as caught:
        jose.signer(algorithm, key, key_id)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.binary(max_size=64))
def test_base64url_goes_there_and_back(data: bytes) -> None:
    assert jose.decode(jwk.encode(data)) == data
    assert "=" not in jwk.encode(data)


@pytest.mark.parametrize("text", ["A", "AA==", "AB", "A+/A", "AA A", "AA\n", "AAAA=", "é"])
def test_base64url_has_one_reading(text: str) -> None:
    with pytest.raises(ValueError, match="base64url"):
        jose.decode(text)


def test_no_key_shows_itself() -> None:
    shown = "".join(map(repr, SIGNERS))
    assert repr(SECRET)[2:-1] not in shown
