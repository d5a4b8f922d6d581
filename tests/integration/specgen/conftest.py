"""The interpreters that a generated client is run in."""

import shutil
from collections.abc import Callable, Iterator

import pytest
from anyio.from_thread import start_blocking_portal

from tests.integration.specgen.interpreters import Inputs, Seen, in_node, in_python, in_wasm
from tests.support.wasm_in_process import opened, unopened

Guest = Callable[[str, Inputs], Seen]


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """Runs a preamble with calls behind the wasm wall."""
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    provider = unopened(folder)  # before there are threads
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(opened(provider)) as guest:
        yield lambda preamble, inputs: portal.call(in_wasm, guest, preamble, inputs)


@pytest.fixture(scope="module")
def plain_javascript() -> Guest | None:
    """Node, where there is one."""
    return in_node if shutil.which("node") else None


@pytest.fixture(scope="module")
def python() -> Guest:
    return in_python
