"""The API of docs/verify-tokens.md, as the page has it: it takes the tokens of real runs, and no others."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from broker import jose
from broker.jose import Ed25519, Es256, Hs256, Signer
from plimsoll.contract import jwk
from tests.docs.pages import programs
from tests.integration.grants.conftest import BROKER, Granted, broker_pid
from tests.integration.service.stand import Served, Stand, json_of
from tests.unit.broker.test_jose import EC, ED, PUBLISHED, pem

(PROGRAM,) = programs("verify-tokens")
KEYS = {"EdDSA": pem(ED).decode(), "ES256": pem(EC).decode()}
SIGNERS: dict[str, Signer] = {"EdDSA": Ed25519(ED), "ES256": Es256(EC)}
PROFILE = """
[{name}]
origin = "{origin}"
allow = ["GET /v1/employees"]
allowed_callers = ["reporting"]
[{name}.credential]
type = "jwt"
env = "KEY"
algorithm = "{algorithm}"
issuer = "plimsoll"
audience = "{audience}"
scope = "{scope}"
"""


@contextmanager
def verifying(served: Served) -> Iterator[str]:
    """The page's program, started anew; where it serves."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM.text],
        env={"PLIMSOLL_URL": served.running.url, "PORT": "0", "PATH": os.defpath},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"serving on (\d+)\n", process.stdout.readline())
            assert found
            yield f"http://127.0.0.1:{found[1]}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Granted, Served]]:
    granted = Granted(Stand(tmp_path_factory.mktemp("house"), "", dict(BROKER)))
    with granted.stand.service() as served:
        yield granted, served


House = tuple[Granted, Served]


def apply(granted: Granted, origin: str, algorithm: str, **more: str) -> None:
    asked = {"name": "hr-jwt", "audience": "hr", "scope": "employees:read staff"} | more
    text = PROFILE.format(origin=origin, algorithm=algorithm, **asked)
    done = granted.admin("grants", "apply", "-", stdin=text, KEY=KEYS[algorithm])
    assert done.returncode == 0, done.stderr


def answered(granted: Granted, served: Served, profile: str = "hr-jwt") -> tuple[int, Any]:
    """What a real run gets of the API."""
    told = json_of(granted.run(served, "call:GET=/v1/employees", profile=profile))["result"]["stdout"]
    said = json.loads(told)
    return said["status"], json.loads(said["body"])


@pytest.mark.parametrize("algorithm", SIGNERS)
def test_the_token_of_a_run_is_taken_and_says_whose_it_is(house: House, algorithm: str) -> None:
    granted, served = house
    with verifying(served) as origin:
        apply(granted, origin, algorithm)
        status, said = answered(granted, served)
        assert (status, said["employees"]) == (200, ["Ada", "Grace"])
        listed = granted.admin("callers", "list").stdout.splitlines()
        assert said["caller"] in [line.split()[1] for line in listed if line.startswith("reporting ")]
        apply(granted, origin, algorithm, name="for-payroll", audience="payroll")
        assert answered(granted, served, "for-payroll") == (401, {"error": "not verified"})
        apply(granted, origin, algorithm, name="for-less", scope="employees:readers")
        assert answered(granted, served, "for-less") == (403, {"error": "another scope"})


def test_it_is_taken_by_an_api_that_fetches_after_the_broker_was_started_anew(house: House) -> None:
    granted, served = house
    with verifying(served) as origin:
        apply(granted, origin, "EdDSA")
        old = broker_pid(served.running.process.pid)
        os.kill(old, signal.SIGKILL)
        end = time.monotonic() + 60
        while (again := granted.run(served, "call:GET=/v1/employees", profile="hr-jwt")).status_code != 200:
            assert time.monotonic() < end, again.text
            time.sleep(0.05)
        assert json.loads(json_of(again)["result"]["stdout"])["status"] == 200
        assert broker_pid(served.running.process.pid) != old


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    told = {"iss": "plimsoll", "aud": "hr", "sub": "caller-7", "scope": "employees:read", "jti": "x"}
    return told | {"iat": now, "exp": now + 60} | more


def asked(origin: str, token: str, scheme: str = "Bearer") -> int:
    request = urllib.request.Request(f"{origin}/v1/employees", headers={"authorization": f"{scheme} {token}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def with_header(key: Signer, **more: Any) -> str:
    head = {"alg": key.algorithm, "kid": key.key_id, "typ": "JWT"} | more
    return jose.compact(jwk.to_json(head), jwk.to_json(claims()), key)


def unsigned(algorithm: str, kid: str) -> str:
    head = jwk.to_json({"alg": algorithm, "kid": kid, "typ": "JWT"})
    return f"{jwk.encode(head)}.{jwk.encode(jwk.to_json(claims()))}."


class Disguised:
    """A key that says it is another."""

    def __init__(self, key: Signer, key_id: str, algorithm: str = "") -> None:
        self.algorithm, self.key_id, self.sign = algorithm or key.algorithm, key_id, key.sign


def forgeries(algorithm: str) -> Iterator[tuple[str, str]]:
    """What is refused, and its name."""
    key, public = SIGNERS[algorithm], PUBLISHED[algorithm]
    foreign: dict[str, Signer] = {
        "EdDSA": Ed25519(ed25519.Ed25519PrivateKey.generate()),
        "ES256": Es256(ec.generate_private_key(ec.SECP256R1())),
    }
    wrong: dict[str, dict[str, Any]] = {
        "another audience": {"aud": "payroll"},
        "several audiences": {"aud": ["hr", "payroll"]},
        "another issuer": {"iss": "evil"},
        "nobody": {"sub": ""},
        "expired": {"iat": int(time.time()) - 600, "exp": int(time.time()) - 10},
        "not yet": {"iat": int(time.time()) + 60, "exp": int(time.time()) + 120},
        "an end that is a text": {"exp": "9999999999"},
    }
    for name, told in wrong.items():
        yield name, jose.sign(claims(**told), key)
    for name in ("iss", "aud", "sub", "iat", "exp"):
        yield f"no {name}", jose.sign({k: v for k, v in claims().items() if k != name}, key)
    yield "a foreign key", jose.sign(claims(), foreign[algorithm])
    yield "a foreign key with our name", jose.sign(claims(), Disguised(foreign[algorithm], key.key_id))
    brought = with_header(Disguised(foreign[algorithm], key.key_id), jwk=public, jku="https://evil.example")
    yield "a key that the token brings", brought
    for secret in (
        public["x"].encode(),
        jwk.to_json(public),
        jwk.to_json({"keys": [public]}),
        jose.decode(public["x"]),
    ):
        for said in ("HS256", algorithm):
            yield (
                f"a public key as the secret of {said}",
                jose.sign(claims(), Disguised(Hs256(secret, key.key_id), key.key_id, said)),
            )
    for said in ("none", "None", "NONE", algorithm):
        yield f"no signature under {said}", unsigned(said, key.key_id)
    yield "an algorithm of another key", jose.sign(claims(), Disguised(key, key.key_id, "RS256"))
    yield "an extension that must be understood", with_header(key, crit=["b64"], b64=False)
    good = jose.sign(claims(), key)
    yield "a part more", f"{good}.x"
    yield "nothing", ""
    yield "dots", ".."
    yield "no base64", good.replace(".", ".!", 1)
    yield (
        "a changed claim",
        ".".join([good.split(".")[0], jwk.encode(jwk.to_json(claims(sub="x"))), good.split(".")[2]]),
    )
    yield "deep", f"{jwk.encode(b'[' * 20_000)}.{jwk.encode(b'[' * 20_000)}.x"


@pytest.mark.parametrize("algorithm", SIGNERS)
def test_whatever_else_is_refused(house: House, algorithm: str) -> None:
    granted, served = house
    with verifying(served) as origin:
        apply(granted, origin, algorithm)
        good = jose.sign(claims(), SIGNERS[algorithm])
        assert asked(origin, good) == 200
        assert asked(origin, good, "Basic") == 401
        taken = [name for name, token in forgeries(algorithm) if asked(origin, token) != 401]
        assert taken == []
        assert asked(origin, jose.sign(claims(scope="employees:write"), SIGNERS[algorithm])) == 403
        assert asked(origin, good) == 200


def test_after_a_rotation_an_api_that_starts_takes_the_tokens_of_both_keys(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted, served = house
    name = f"rotated-{secrets.token_hex(4)}"
    old, new = ed25519.Ed25519PrivateKey.generate(), ed25519.Ed25519PrivateKey.generate()
    for key in (old, new):
        monkeypatch.setitem(KEYS, "EdDSA", pem(key).decode())
        apply(granted, "https://hr.example.com", "EdDSA", name=name)
    end = time.monotonic() + 20
    while (
        jwk.encode(new.public_key().public_bytes_raw()) not in served.http.get("/.well-known/jwks.json").text
    ):
        assert time.monotonic() < end
        time.sleep(0.05)
    with verifying(served) as origin:
        assert [asked(origin, jose.sign(claims(), Ed25519(key))) for key in (old, new)] == [200, 200]
