"""The committed guest, compiled once, and an engine of its own for each file."""

from collections.abc import Iterator

import pytest

from providers.wasm import guest
from providers.wasm.vm import Engine, EngineConfig, compile_module

CONFIG = EngineConfig()


@pytest.fixture(scope="session")
def code() -> bytes:
    return compile_module(guest.load(), CONFIG)


@pytest.fixture(scope="module")
def engine(code: bytes) -> Iterator[Engine]:
    with Engine.load(code, CONFIG) as made:
        made.start_ticker()
        yield made
