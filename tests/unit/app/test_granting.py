"""Profiles as an operator writes them: what is taken, and every fault by profile, field and rule, never with a secret."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from app.granting import Reading, listed
from app.vault.seal import binding_of
from app.vault.unseal import Secret, Unsealer
from tests.unit.broker.test_jose import EC, ED, pem

KEY = X25519PrivateKey.generate()
SECRET = "canary-of-a-credential"
ENVIRON = {
    "HR_TOKEN": SECRET,
    "SHORT": "short",
    "ED": pem(ED).decode(),
    "EC": pem(EC).decode(),
    "NO_PEM": SECRET,
}
GOOD = """
[hr-read]
origin = "https://hr.example.com"
allow = ["GET /v1/employees", "GET /v1/employees/*"]
allowed_callers = ["reporting"]
max_calls = 50
description = "Reads employees."
[hr-read.preamble]
python = "import host"
[hr-read.credential]
type = "static"
env = "HR_TOKEN"
"""
JWT = """
[hr-jwt]
origin = "https://hr.example.com"
allow = ["GET /v1/employees"]
allowed_callers = ["reporting"]
[hr-jwt.credential]
type = "jwt"
env = "ED"
algorithm = "EdDSA"
issuer = "plimsoll"
audience = "hr"
"""


def read(text: str) -> Reading:
    reading = Reading(ENVIRON, KEY.public_key())
    reading.read(text)
    return reading


def test_a_good_profile_is_sealed_and_only_the_brokers_key_opens_it() -> None:
    reading = read(GOOD)
    assert reading.faults == []
    (grant,) = reading.found
    assert (grant.profile.name, grant.profile.max_calls) == ("hr-read", 50)
    assert json.loads(grant.preamble) == {"python": "import host"}
    assert Unsealer(KEY).open(grant.sealed, binding_of(grant.profile)) == Secret(SECRET.encode())
    assert SECRET not in repr(reading) + repr(grant) + listed(grant)
    assert SECRET.encode() not in grant.sealed


def test_a_key_of_its_algorithm_is_sealed() -> None:
    assert [each.profile.name for each in read(JWT).found] == ["hr-jwt"]
    assert read(JWT.replace('"ED"', '"EC"').replace("EdDSA", "ES256")).faults == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("max_calls = 50", "max_calls = 0", "max_calls must be 1 to 100000"),
        ("max_calls = 50", 'max_calls = "50"', "max_calls must be a whole number"),
        ("max_calls = 50", "max_cals = 50", "max_cals is no field of a profile"),
        ("max_calls = 50", 'advice = "loud"', "advice must be one of off, operator, caller"),
        (
            "https://hr.example.com",
            "https://hr.example.com/",
            "origin: origin 'https://hr.example.com/' must be",
        ),
        ("GET /v1/employees/*", "GET /v1/../x", "allow: route 'GET /v1/../x' must have segments"),
        ('"reporting"', '"Reporting"', "allowed_callers must list 1 to 256 names"),
        ('origin = "https://hr.example.com"', "", "origin is required"),
        ('allow = ["GET /v1/employees", ', "allow = [7, ", "allow must be a list of texts"),
        ("Reads employees.", "Reads HR.example.com.", "description, catalog and preamble must not name"),
        ("python =", "cobol =", "preamble must be a table of javascript, python"),
        ('type = "static"', 'type = "magic"', "credential.type must be one of static, jwt, exec, http"),
        ('env = "HR_TOKEN"', "", "credential.env must name the environment variable"),
        ('env = "HR_TOKEN"', 'env = "MISSING"', "credential.env: MISSING is not set"),
        ('env = "HR_TOKEN"', 'env = "SHORT"', "credential.env: SHORT must hold 8 to 16384 characters"),
        ('env = "HR_TOKEN"', 'env = "HR_TOKEN"\nheader = "cookie"', "credential.header must be"),
        (
            'env = "HR_TOKEN"',
            'env = "HR_TOKEN"\nsecret = "x"',
            "credential.secret is no field of a credential",
        ),
        ('type = "static"', 'type = "exec"\nhook = "vault"', "credential.env is for static and jwt"),
        ("[hr-read.credential]", "[[hr-read.credential]]", "credential must be a table"),
    ],
)
def test_a_fault_is_named_and_nothing_is_taken(old: str, new: str, fault: str) -> None:
    assert old in GOOD
    reading = read(GOOD.replace(old, new, 1))
    assert reading.found == []
    assert any(each.startswith(f"hr-read: {fault}") for each in reading.faults), reading.faults
    assert SECRET not in "".join(reading.faults)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"ED"', '"EC"', "credential.env: EC must hold a key for EdDSA"),
        ('"ED"', '"NO_PEM"', "credential.env: NO_PEM must hold a private key as PEM"),
        (
            "EdDSA",
            "HS256",
            "credential.env: ED must hold at least 32 bytes, and credential.key_id must name it",
        ),
        ('issuer = "plimsoll"', "", "credential: a jwt must have an algorithm"),
    ],
)
def test_a_key_that_does_not_fit_is_named(old: str, new: str, fault: str) -> None:
    reading = read(JWT.replace(old, new, 1))
    assert f"hr-jwt: {fault}" in "\n".join(reading.faults)
    assert reading.found == []


def test_every_fault_is_named_at_once() -> None:
    text = GOOD.replace("max_calls = 50", "max_calls = 0").replace("HR_TOKEN", "MISSING") + JWT.replace(
        "EdDSA", "none"
    )
    assert len(read(text).faults) >= 3


@pytest.mark.parametrize("text", ["", "hr = 1", "[hr", "[hr]\nallow = []"])
def test_what_is_no_file_of_profiles_is_a_fault(text: str) -> None:
    assert read(text).faults
