"""Profiles as an operator writes them: what is taken, and every fault by profile, field and rule, never with a secret."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from app.granting import Reading, listed
from app.vault.seal import binding_of
from app.vault.unseal import Secret, Unsealer
from plimsoll.contract.profiles import DESCRIPTION_BYTES
from tests.unit.broker.test_jose import EC, ED, PUBLISHED, pem

KEY = X25519PrivateKey.generate()
SECRET = "canary-of-a-credential"
ENVIRON = {
    "HR_TOKEN": SECRET,
    "SHORT": "short",
    "ED": pem(ED).decode(),
    "EC": pem(EC).decode(),
    "NO_PEM": SECRET,
    "SHARED": "s" * 32,
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


def read(text: str, folder: Path | None = None) -> Reading:
    reading = Reading(ENVIRON, KEY.public_key(), folder)
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


def test_a_key_of_its_algorithm_is_sealed_and_its_public_half_kept() -> None:
    (first,) = read(JWT).found
    (second,) = read(JWT.replace('"ED"', '"EC"').replace("EdDSA", "ES256")).found
    assert json.loads(first.public_key) == PUBLISHED["EdDSA"]
    assert json.loads(second.public_key) == PUBLISHED["ES256"]


def test_nothing_of_a_shared_secret_is_published() -> None:
    shared = JWT.replace("EdDSA", "HS256").replace('env = "ED"', 'env = "SHARED"\nkey_id = "hr-1"')
    for text in (GOOD, shared):
        (grant,) = read(text).found
        assert grant.public_key == ""


FILES = GOOD.replace('"Reads employees."', '{ file = "description.md" }').replace(
    'python = "import host"', 'python = { file = "more/preamble.py" }'
)


def test_texts_may_stand_in_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "description.md").write_text("Reads\nemployees.", encoding="utf-8")
    (tmp_path / "more" / "preamble.py").write_text("import host\n", encoding="utf-8")
    reading = read(FILES, tmp_path)
    assert reading.faults == []
    (grant,) = reading.found
    assert (grant.description, json.loads(grant.preamble)) == (
        "Reads\nemployees.",
        {"python": "import host\n"},
    )


def test_each_file_that_cannot_be_taken_is_named_by_profile_field_and_rule(tmp_path: Path) -> None:
    (tmp_path / "description.md").write_bytes(b"x" * (DESCRIPTION_BYTES + 1))
    reading = read(FILES, tmp_path)
    assert reading.found == []
    assert reading.faults == [
        f"hr-read: description.file must be at most {DESCRIPTION_BYTES} bytes: 'description.md' has more",
        "hr-read: preamble.python.file cannot be read: 'more/preamble.py': No such file or directory",
    ]
    told = "must be a text where the profiles come from stdin: there is no folder to read from"
    assert read(FILES).faults == [
        f"hr-read: {name}.file {told}" for name in ("description", "preamble.python")
    ]


def test_a_file_that_names_the_origins_host_is_refused(tmp_path: Path) -> None:
    (tmp_path / "description.md").write_text("See https://HR.example.com/docs.", encoding="utf-8")
    reading = read(GOOD.replace('"Reads employees."', '{ file = "description.md" }'), tmp_path)
    assert reading.faults == [
        "hr-read: description, catalog and preamble must not name the origin's host: callers see them"
    ]


@pytest.mark.parametrize("text", ['"""a\\u0000b"""', '{ file = "nul" }'])
def test_a_text_without_a_place_in_every_database_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "nul").write_bytes(b"a\0b")
    assert read(GOOD.replace('"Reads employees."', text), tmp_path).faults == [
        "hr-read: description must hold no NUL"
    ]


@pytest.mark.parametrize(
    "value", ["7", "{ file = 7 }", "{ path = 'x' }", "{ file = 'x', more = 'y' }", "{}", "['x']"]
)
@pytest.mark.parametrize("field", ["description", "preamble.python"])
def test_what_is_neither_a_text_nor_names_a_file_is_refused(field: str, value: str) -> None:
    old = 'python = "import host"' if field.startswith("preamble") else 'description = "Reads employees."'
    new = f"{field.rpartition('.')[2]} = {value}"
    fault = f'hr-read: {field} must be a text, or a table {{ file = "…" }}'
    assert read(GOOD.replace(old, new)).faults == [fault]


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
        ("https://hr.example.com", "http://10.1.2.3", "origin must be https; http is for loopback alone"),
        ("https://hr.example.com", "https://169.254.169.254", "origin must be no link-local, multicast"),
        ("https://hr.example.com", "https://[::]", "origin must be no link-local, multicast"),
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
