"""Keys as a JWK set shows them, against the standards' examples; and that the set lets out public keys alone."""

import json

import pytest

from broker.jose import decode
from plimsoll.contract import jwk
from tests.unit.broker.test_jose import POINT, PUBLISHED


def test_the_key_of_rfc_8037_a_is_named_as_there() -> None:
    raw = decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
    assert jwk.published(jwk.ed25519(raw), "EdDSA") == {
        "alg": "EdDSA",
        "crv": "Ed25519",
        "kid": "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
        "kty": "OKP",
        "use": "sig",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    }


def test_the_key_of_rfc_7515_a_3_is_written_as_there() -> None:
    assert jwk.p256(POINT.x, POINT.y) == {
        "crv": "P-256",
        "kty": "EC",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    }


def test_a_coordinate_that_begins_with_zeros_keeps_its_length() -> None:
    assert len(decode(jwk.p256(1, 2)["x"])) == 32


KEY = PUBLISHED["EdDSA"]


def test_each_key_is_there_once_in_one_order() -> None:
    texts = [json.dumps(PUBLISHED[name]) for name in ("ES256", "EdDSA", "ES256")]
    found = json.loads(jwk.document(texts))["keys"]
    assert found == sorted((PUBLISHED["ES256"], KEY), key=lambda key: key["kid"])
    assert jwk.document(texts) == jwk.document(reversed(texts))
    assert jwk.document([]) == b'{"keys":[]}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        "null",
        "{}",
        json.dumps({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "hr-1"}),
        json.dumps(KEY | {"d": "cHJpdmF0ZQ"}),
        json.dumps(KEY | {"alg": "HS256"}),
        json.dumps(KEY | {"kid": 7}),
        json.dumps({name: value for name, value in KEY.items() if name != "kid"}),
        json.dumps({"kty": "RSA", "n": "AQAB", "e": "AQAB", "alg": "RS256", "kid": "k"}),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_public_key_is_not_let_out(text: str) -> None:
    assert jwk.document([text]) == b'{"keys":[]}'
