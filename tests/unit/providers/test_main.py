"""The entry of a provider process: what it does with arguments and settings it cannot use."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from plimsoll.contract import frames


@contextmanager
def entry(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [each.replace("N", str(theirs.fileno())) for each in arguments]
        process = subprocess.Popen(
            [sys.executable, "-I", "-m", "providers.main", *words],
            env={},
            pass_fds=(theirs.fileno(),),
            stderr=subprocess.PIPE,
        )
        theirs.close()
        try:
            yield process, ours
        finally:
            process.kill()
            process.communicate()


def said(process: subprocess.Popen[bytes]) -> str:
    _, errors = process.communicate(timeout=20)
    (line,) = errors.splitlines()
    assert process.returncode == 1
    return str(json.loads(line)["code"])


@pytest.mark.parametrize("arguments", [(), ("--fd",), ("--fd", "x"), ("--fd", "999"), ("--xx", "N")])
def test_without_its_socket_it_does_not_start(arguments: tuple[str, ...]) -> None:
    with entry(*arguments) as (process, _):
        assert said(process) == "usage"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x0aabc",
        frames.encode({"op": "settings"}),
        frames.encode({"op": "reserve", "settings": {}}),
    ],
)
def test_without_settings_it_does_not_start(first: bytes) -> None:
    with entry("--fd", "N") as (process, sock):
        sock.sendall(first)
        sock.shutdown(socket.SHUT_WR)
        assert said(process) == "no_settings"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"provider": "unknown"},
        {"provider": "wasm"},
        {"provider": "wasm", "cache_dir": "/nowhere", "memory_mb": "canary"},
        {"provider": "wasm", "cache_dir": "/nowhere", "memory_mb": 1},
        {"provider": "wasm", "cache_dir": "/nowhere", "output_bytes": 1 << 20},
        {"provider": 7},
        {"provider": "docker"},
        {"provider": "docker@../canary", "state_dir": "/nowhere"},
        {"provider": "docker@runsc", "state_dir": "/nowhere", "memory_mb": 1},
    ],
)
def test_bad_settings_are_a_code_and_never_a_value(settings: dict[str, object]) -> None:
    with entry("--fd", "N") as (process, sock):
        sock.sendall(frames.encode({"op": "settings", "settings": settings}))
        assert said(process) == "bad_settings"


def test_it_ends_when_its_peer_does() -> None:
    with entry("--fd", "N") as (process, sock):
        settings = {"provider": "wasm", "cache_dir": os.devnull}
        sock.sendall(frames.encode({"op": "settings", "settings": settings}))
        sock.close()
        assert process.wait(20) == 0
