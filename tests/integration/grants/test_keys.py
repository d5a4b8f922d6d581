"""`/.well-known/jwks.json` of a real service: from the moment a profile is applied, at every replica, and never a secret."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence

from tests.integration.grants.conftest import Granted, broker_pid
from tests.integration.service.stand import Json, Served, json_of
from tests.unit.broker.test_jose import EC, ED, PUBLISHED, pem

PATH = "/.well-known/jwks.json"
TERMS = 'type = "jwt"\nenv = "KEY"\nalgorithm = "{}"\nissuer = "plimsoll"\naudience = "hr"\n'
SHARED = "a-secret-of-32-bytes-that-is-shared"
KEYS = {"EdDSA": pem(ED).decode(), "ES256": pem(EC).decode(), "HS256": SHARED}


def applying(granted: Granted, algorithm: str) -> subprocess.CompletedProcess[str]:
    name = algorithm.lower()
    text = (
        f'[{name}]\norigin = "https://hr.example.com"\nallow = ["GET /a"]\nallowed_callers = ["reporting"]\n'
        f"[{name}.credential]\n{TERMS.format(algorithm)}"
        + ('key_id = "hr-1"\n' if algorithm == "HS256" else "")
    )
    return granted.admin("grants", "apply", "-", stdin=text, KEY=KEYS[algorithm])


def apply(granted: Granted, algorithm: str) -> None:
    done = applying(granted, algorithm)
    assert done.returncode == 0, done.stderr


def await_keys(served: Served, algorithms: Sequence[str]) -> None:
    """It is a second behind at most; the machine may be slower."""
    wanted = {PUBLISHED[algorithm]["kid"] for algorithm in algorithms}
    end = time.monotonic() + 20
    while (found := {key["kid"] for key in shown(served)}) != wanted:
        assert time.monotonic() < end, found
        time.sleep(0.05)


def shown(served: Served) -> list[Json]:
    keys: list[Json] = json_of(served.http.get(PATH))["keys"]
    return keys


def test_keys_are_there_before_anything_is_signed_and_after_the_broker_ended(granted: Granted) -> None:
    with granted.stand.service() as served:
        assert shown(served) == []
        for algorithm in ("EdDSA", "HS256", "ES256"):
            apply(granted, algorithm)
        await_keys(served, ["EdDSA", "ES256"])
        assert shown(served) == sorted((PUBLISHED["EdDSA"], PUBLISHED["ES256"]), key=lambda key: key["kid"])
        assert "hr-1" not in served.http.get(PATH).text
        os.kill(broker_pid(served.running.process.pid), signal.SIGKILL)
        assert len(shown(served)) == 2
        assert granted.admin("grants", "remove", "eddsa").returncode == 0
        time.sleep(1.1)  # as old as an answer may be: then the key is still there, for tokens that are
        assert len(shown(served)) == 2
    with granted.stand.service(name="-again") as served:
        await_keys(served, ["EdDSA", "ES256"])


def test_it_may_be_cached_by_whoever_asks_and_other_answers_may_not(on_sqlite: Granted) -> None:
    with on_sqlite.stand.service() as served:
        answer = served.http.get(PATH)
        assert answer.headers.get_list("cache-control") == ["public, max-age=300"]
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        refused = served.http.post(PATH)
        assert (refused.status_code, refused.headers.get_list("cache-control")) == (405, ["no-store"])
        assert served.http.get("/readyz").headers.get_list("cache-control") == ["no-store"]


def test_a_service_without_a_broker_publishes_what_was_applied(on_sqlite: Granted) -> None:
    """Its tokens may be valid still."""
    assert on_sqlite.admin("vault", "init").returncode == 0
    apply(on_sqlite, "EdDSA")
    on_sqlite.stand.settings.clear()
    with on_sqlite.stand.service() as served:
        await_keys(served, ["EdDSA"])


def test_who_applies_before_there_is_a_key_to_seal_with_is_told_how_it_is_made(on_sqlite: Granted) -> None:
    refused = applying(on_sqlite, "EdDSA")
    assert refused.returncode == 1
    assert "vault.public is not there" in refused.stderr
    assert "plimsoll-admin vault init" in refused.stderr
    assert on_sqlite.admin("vault", "init").returncode == 0
    apply(on_sqlite, "EdDSA")
