"""What a service that is ending still says of the runs it cancels: all they printed, and truly whether it was cut."""

import signal
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.service.stand import EVENTS, Json, events_in, http, run_body
from tests.support.service import PATIENT, environment, started

CAP = 65_536
PROGRAMS = {
    "console.log(1);for(;;);": (b"1\n", False),
    "console.log('é'.repeat(50)); for(;;);": (("é" * 50 + "\n").encode(), False),
    "console.log('x'.repeat(59_999)); for(;;);": (b"x" * 59_999 + b"\n", False),
    f"console.log('x'.repeat({CAP - 1})); for(;;);": (b"x" * (CAP - 1) + b"\n", False),
    f"console.log('x'.repeat({CAP})); for(;;);": (b"x" * CAP, True),
    "console.log('x' + 'é'.repeat(44_999)); for(;;);": (("x" + "é" * 44_999).encode()[:CAP], True),
}
"""What each prints before it loops: the bytes that are kept, and whether there were more."""


def told_of(url: str, code: str, *, stream: bool) -> Json:
    """The answer's result and whether it was cancelled, with the bytes of stdout as they came."""
    with http(url) as client:
        headers = dict(EVENTS) if stream else {}
        answer = client.post("/v1/runs", json=run_body(code, 60_000), headers=headers)
    if not stream:
        body: Json = answer.json()
        return body
    events = events_in(answer.content)
    told = events[-1][1]
    chunks = [data for name, data in events if name == "stdout"]
    came = b"".join(
        b64decode(each["data"]) if each["encoding"] == "base64" else each["data"].encode() for each in chunks
    )
    assert came == stdout_of(told)
    return told


def stdout_of(told: Json) -> bytes:
    text: str = told["result"]["stdout"]
    return b64decode(text) if told["result"]["stdout_encoding"] == "base64" else text.encode()


@pytest.mark.component("wasm")
@pytest.mark.component("seccomp")
def test_runs_that_a_drain_cancels_are_told_with_all_they_printed(tmp_path: Path) -> None:
    settings = {"PLIMSOLL_INSECURE": "1", "SANDBOX_PROVIDER": "wasm", "PLIMSOLL_DRAIN_GRACE_S": "3"}
    wide = {"SANDBOX_RATE_PER_MIN": "0", "SANDBOX_PER_CALLER_CONCURRENT": "32"}
    with (
        started(environment(tmp_path / "data", **settings, **wide), tmp_path / "log", *PATIENT) as running,
        ThreadPoolExecutor(2 * len(PROGRAMS)) as pool,
    ):
        asked = [
            (pool.submit(told_of, running.url, code, stream=stream), expected)
            for code, expected in PROGRAMS.items()
            for stream in (False, True)
        ]
        running.until_begun(len(asked))
        running.process.send_signal(signal.SIGTERM)
        for answer, (stdout, cut) in asked:
            told = answer.result(20)
            assert (told["cancelled"], told["result"]["exit_code"]) == (True, 130)
            assert stdout_of(told) == stdout
            assert (told["result"]["stdout_truncated"], told["result"]["stderr_truncated"]) == (cut, False)
        assert running.process.wait(15) == 0
