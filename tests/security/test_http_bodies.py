"""Bodies that never end: one token holds a bounded number of bytes, and they are given back. The real service."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app.http.limits import SNIPPET_BODY_BYTES
from tests.integration.http.wire import Answer, Wire, connect, head
from tests.support.service import Running, environment, make_caller, started

SILENT = 60
"""Connections of one token, each with a body whose last byte is missing."""
MOST_MIB = 32


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with started(environment(tmp_path / "data"), tmp_path / "log") as service:
        yield service


def rss_mib(running: Running) -> int:
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def start(running: Running, token: str, *lines: str) -> Wire:
    at = urlsplit(running.url)
    own = ("Content-Type: application/json", f"Content-Length: {SNIPPET_BODY_BYTES}")
    wire = connect((str(at.hostname), int(at.port or 0)))
    wire.socket.settimeout(1)
    return wire.send(head("POST", "/v1/runs", *own, *lines, token=token))


def refused(wire: Wire) -> Answer | None:
    """The answer that came before the body's end, if one did."""
    with contextlib.suppress(OSError):  # it is read and dropped for a while only
        wire.send(b" " * (SNIPPET_BODY_BYTES - 1))
    try:
        return wire.answer()
    except TimeoutError:
        return None


@pytest.mark.slow
def test_one_token_holds_a_bounded_number_of_bytes_and_others_are_served(running: Running) -> None:
    token, other = (make_caller(running.environ, name) for name in ("greedy", "other"))
    before, wires, answers = rss_mib(running), [], []
    for number in range(SILENT):
        wires.append(start(running, token, *(("Idempotency-Key: k",) if number % 2 else ())))
        if number >= MOST_MIB // 2:  # these came last: there is room for the ones before
            answers.append((number, refused(wires[-1])))
        else:
            wires[-1].send(b" " * (SNIPPET_BODY_BYTES - 1))
            time.sleep(0.02)
    for number, answer in answers[1:]:
        assert answer is not None
        assert (answer.status, answer.problem["code"]) == (429, "capacity")
        assert ("not_dispatched" in answer.problem) is not bool(number % 2), "its key may have a run"
    grown = rss_mib(running) - before
    print(f"{SILENT} bodies of 2 MiB that do not end: {grown} MiB more")
    assert grown < 2 * MOST_MIB
    assert running.run("1", other).status_code == 501
    assert running.run("1", token).status_code in {429, 501}
    for wire in wires:
        wire.close()
    until = time.monotonic() + 5
    while True:
        wire = start(running, token)
        answer = refused(wire)
        wire.close()
        if answer is None:
            break
        assert time.monotonic() < until, answer
