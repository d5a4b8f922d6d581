"""Lines of ours: one object each, nothing a caller chose can break out of them, and few of a kind."""

import asyncio
import json
import logging
import warnings
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

from app import log

CANARY = "canary-7f3a"


@pytest.fixture
def lines() -> Iterator[StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    log._refusals.flush()
    stream = StringIO()
    log.configure_logging(stream)
    yield stream
    root.handlers[:], root.level = before
    logging.captureWarnings(capture=False)


def read(stream: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


HOSTILE = "a\nb\r\x1b[31m\x00\x7f\x85\u2028\u202e\u2066é\ud800"


def test_nothing_in_a_value_ends_a_line_or_colours_a_terminal(lines: StringIO) -> None:
    log.event(log.logger, HOSTILE, first=HOSTILE, second=HOSTILE)
    text = lines.getvalue()
    assert text.count("\n") == 1
    assert text.isascii()
    assert all(character.isprintable() for character in text.removesuffix("\n"))
    found = json.loads(text)
    assert (found["event"], found["first"]) == (HOSTILE, HOSTILE)


def test_values_are_cut(lines: StringIO) -> None:
    log.event(log.logger, "long", value="x" * 100_000)
    assert len(read(lines)[0]["value"]) == log.TEXT_LIMIT


@pytest.mark.parametrize(
    "name", ["code", "stdout", "stderr", "output", "token", "authorization", "session_id", "body"]
)
def test_a_field_that_would_hold_a_secret_is_withheld(lines: StringIO, name: str) -> None:
    log.event(log.logger, "run", **{name: CANARY})  # type: ignore[arg-type]
    assert CANARY not in lines.getvalue()
    assert read(lines)[0][name] == log.WITHHELD


def test_a_line_says_when_and_how_bad(lines: StringIO) -> None:
    log.event(log.logger, "started", level=logging.WARNING, port=8746, ready=True, none=None)
    (line,) = read(lines)
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "warning", "event": "started", "port": 8746, "ready": True, "none": None}


def raised() -> ValueError:
    """An exception that was raised here."""
    with pytest.raises(ValueError, match=CANARY) as caught:
        raise ValueError(CANARY)
    return caught.value


def test_a_failure_is_its_type_and_place(lines: StringIO) -> None:
    log.failure(log.logger, "broke", raised(), request_id="1")
    (line,) = read(lines)
    assert (line["error"], line["request_id"]) == ("ValueError", "1")
    assert line["place"].startswith("test_log.py:")
    assert CANARY not in lines.getvalue()


def test_lines_of_other_libraries_keep_what_is_constant(lines: StringIO) -> None:
    error = raised()
    logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=error)
    logging.getLogger("sqlalchemy").error("%s failed", CANARY)
    logging.getLogger("asyncio").error(f"Task {CANARY} %s", CANARY, exc_info=error)  # noqa: G004 - as asyncio does
    logging.getLogger("uvicorn.error").error(error)
    logging.getLogger("uvicorn.access").info(CANARY)
    logging.getLogger("uvicorn.error").error(f"Traceback:\n  {CANARY}")  # noqa: G004 - as uvicorn does at a failed start
    first, second, third, fourth, fifth = read(lines)
    assert fifth["template"] == "Traceback:"
    assert first["template"] == "Exception in ASGI application"
    assert first["error"] == third["error"] == "ValueError"
    assert second["logger"] == "sqlalchemy"
    assert "template" not in fourth
    assert CANARY not in lines.getvalue()


async def test_an_exception_that_the_event_loop_reports_stays_private(lines: StringIO) -> None:
    loop = asyncio.get_running_loop()
    loop.default_exception_handler({"message": CANARY, "exception": ValueError(CANARY), "handle": CANARY})
    assert CANARY not in lines.getvalue()
    assert read(lines)[0]["error"] == "ValueError"


def test_warnings_are_lines_too(lines: StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(CANARY, stacklevel=1)
    assert CANARY not in lines.getvalue()


def test_an_audit_line_holds_sizes_and_ids(lines: StringIO) -> None:
    log.audit_run(
        caller_id="c" * 32,
        caller_name="tester",
        request_id="1" * 32,
        run_id="2" * 32,
        trace_id="t",
        kind="javascript",
        outcome="finished",
        provider="wasm",
        tier="process",
        code_bytes=5,
        output_bytes=7,
        exit_code=0,
        duration_ms=12,
        start_ms=3,
    )
    (line,) = read(lines)
    assert (line["event"], line["caller_name"], line["outcome"], line["code_bytes"]) == (
        "run",
        "tester",
        "finished",
        5,
    )


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[tuple[str, dict[str, log.Value]]] = []
        self.summariser = log.Summariser(lambda *line: self.lines.append(line), clock=lambda: self.now)


def test_ten_of_a_kind_are_written_each_second_and_the_others_counted() -> None:
    seconds = Seconds()
    for now in (0.0, 1.0):
        seconds.now = now
        for _ in range(2000):
            seconds.summariser.note("unauthenticated", {})
        seconds.summariser.note("not_found", {})
    seconds.summariser.flush()
    assert seconds.lines.count(("unauthenticated", {})) == 20
    assert seconds.lines.count(("unauthenticated", {"more": 1990})) == 2
    assert seconds.lines.count(("not_found", {})) == 2
    assert len(seconds.lines) == 24


def test_the_number_of_kinds_is_bounded() -> None:
    seconds = Seconds()
    for number in range(1000):
        seconds.summariser.note(str(number), {})
    seconds.summariser.flush()
    assert len(seconds.lines) == log.KINDS_LIMIT + log.PER_SECOND + 1
    assert len(seconds.summariser._seen) == 0


def test_2000_refusals_are_few_lines(lines: StringIO) -> None:
    for number in range(2000):
        log.refused("unauthenticated", status=401, reason="permission", request_id=f"{number:032x}")
    log._refusals.flush()
    found = read(lines)
    assert len(found) <= 33
    assert sum(line.get("more", 1) for line in found) == 2000
    assert len(lines.getvalue()) < 8000
