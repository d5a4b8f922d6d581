"""What a stranger wrote cannot command a terminal, and reaches a pipe as it is."""

import io
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cli import show, terminal
from plimsoll.client.errors import Capacity, InvalidRequest, RecordMismatch
from plimsoll.contract.refusals import Reason


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00fc \N{SHIP}\n\tx", "plain \u00fc \N{SHIP}\n\tx"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("over\rwritten", "over\\x0dwritten"),
        ("\x00\x07\x7f", "\\x00\\x07\\x7f"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202edef\u2066", "abc\\u202edef\\u2066"),
        ("\u2028\ufeff", "\\u2028\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_control_and_direction_characters_are_shown(text: str, shown: str) -> None:
    assert terminal.escaped(text) == shown


@given(st.text())
def test_nothing_that_commands_is_left(text: str) -> None:
    kept = set(terminal.escaped(text)) - set("\n\t\u200c\u200d")
    assert not [char for char in kept if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]


class Tty(io.TextIOWrapper):
    """A text stream that says it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:  # type: ignore[explicit-override]
        return True

    def bytes(self) -> bytes:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()


@pytest.mark.parametrize(
    ("raw", "written"), [(False, b"\\x1b[0m\\xff\n"), (True, b"\x1b[0m\xff")], ids=["escaped", "raw"]
)
def test_a_terminal_gets_escapes_unless_raw(raw: bool, written: bytes) -> None:  # noqa: FBT001 - a parameter
    stream = Tty()
    terminal.write_guest(stream, b"\x1b[0m\xff", raw=raw)
    assert stream.bytes() == written


def test_a_pipe_gets_the_exact_bytes() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal.write_guest(stream, b"\x1b[0m\xff\r\n", raw=False)
    assert isinstance(stream.buffer, io.BytesIO)
    assert stream.buffer.getvalue() == b"\x1b[0m\xff\r\n"


def test_progress_is_shown_on_a_terminal_only_and_taken_away() -> None:
    stream = Tty()
    with terminal.progress(stream, "running \x1b ..."):
        assert stream.bytes() == b"running \\x1b ..."
    assert stream.bytes().endswith(b"\r\x1b[K")
    pipe = io.StringIO()
    with terminal.progress(pipe, "running"):
        pass
    assert pipe.getvalue() == ""


def test_a_failure_says_first_whether_anything_ran() -> None:
    marked = show.failure(Capacity("Busy.", not_dispatched=Reason.CAPACITY, retry_after=3), running=True)
    assert show.failure_text(marked) == "nothing ran (capacity): Busy.; try again in 3 s"
    unmarked = show.failure(RecordMismatch("No.", fields=["policy"]), running=True)
    assert show.failure_text(unmarked) == "may have run: No."
    reading = show.failure(InvalidRequest("No."), running=False)
    assert show.failure_text(reading) == "nothing ran: No."


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_pieces_are_shown_as_the_whole_is(data: bytes, at: list[int]) -> None:
    marks = [0, *sorted(min(mark, len(data)) for mark in at), len(data)]
    for raw in (False, True):
        whole, pieces = Tty(), Tty()
        terminal.write_guest(whole, data, raw=raw)
        writer = terminal.GuestWriter(pieces, raw=raw)
        for start, end in pairwise(marks):
            writer.write(data[start:end])
        writer.close()
        assert pieces.bytes() == whole.bytes()
