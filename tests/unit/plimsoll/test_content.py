"""Bytes in JSON: text where it is text, and never so much longer that an answer could not be taken."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.contract.content import SLACK_BYTES, escaped_size, file_text, longest, stream_text
from plimsoll.records.rest import stream_bytes


@given(st.binary(max_size=200))
def test_both_ways_give_the_same_bytes_back(data: bytes) -> None:
    for told in (stream_text(data), file_text(data)):
        assert stream_bytes(*told) == data


@given(st.text(max_size=200))
def test_the_size_in_json_is_known(text: str) -> None:
    quoted = json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass")
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert escaped_size(text.encode()) == len(quoted) - 2


@pytest.mark.parametrize("data", [b"", b"\n" * 1000, b'{"a":"b"}' * 5000, "día 🚢".encode() * 1000])
def test_ordinary_files_are_text(data: bytes) -> None:
    assert file_text(data) == (data.decode(), "utf-8")


@pytest.mark.parametrize("part", [b"\x00", b'"\\', b"\x1b[0m\n", b"\xff", b"x"])
def test_no_file_grows_by_more_than_half_and_the_slack(part: bytes) -> None:
    data = part * 100_000
    text, encoding = file_text(data)
    assert escaped_size(text.encode()) <= longest(len(data)) + SLACK_BYTES
    assert base64.b64decode(text) == data if encoding == "base64" else text.encode() == data
