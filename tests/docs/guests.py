"""Runs the programs that docs/guest-api.md shows, as guests, with an API of two routes behind them."""

import contextlib
import io
import json
import os
import time
from typing import Any
from unittest.mock import patch

from providers.docker.agent import host
from providers.wasm import guest
from providers.wasm.vm import Engine, EngineConfig, compile_module
from tests.support.brokers import answer, failure

PRINTED = "7 Ada\n8 Grace\n201\n"


def answered(message: bytes) -> bytes:
    """What the API says."""
    call: dict[str, Any] = json.loads(message)
    match call["method"], call["path"], call.get("query"), json.loads(call.get("body", "null")):
        case "GET", "/v1/employees", {"page": "2"}, None:
            return answer('[{"id": 7, "name": "Ada"}, {"id": 8, "name": "Grace"}]')
        case "POST", "/v1/notes", None, {"about": 7, "text": "called"}:
            return answer("", 201)
        case _:
            return failure("denied")


def javascript_calls(text: str) -> None:
    """It is a program for a VM."""
    config = EngineConfig()
    with Engine.load(compile_module(guest.load(), config), config) as engine:
        engine.start_ticker()
        result = engine.run(
            text.encode(), deadline_ns=time.monotonic_ns() + 20 * 10**9, seed=os.urandom(8), on_call=answered
        )
    assert (result.stdout.decode(), result.stderr) == (PRINTED, b"")


def python_calls(text: str) -> None:
    """It is a program for a container; here its messages go to the API without one."""
    printed = io.StringIO()
    with (
        patch.dict("sys.modules", {"host": host}),
        patch.object(host, "_send", answered),
        contextlib.redirect_stdout(printed),
    ):
        exec(compile(text, "page", "exec"), {})
    assert printed.getvalue() == PRINTED
