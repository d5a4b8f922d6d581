"""A service that is not reached: the error says where, and why, and nothing that is secret."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import plimsoll
from plimsoll.client import errors
from plimsoll.client.core import Core
from plimsoll.client.exchange import failure
from plimsoll.client.options import options
from plimsoll.client.progress import Progress
from plimsoll.contract.refusals import Reason
from tests.integration.client.stub import serving

TOKEN = "secret-token"


def fail_sync(url: str | None = None, **how: Any) -> errors.PlimsollError:
    with plimsoll.Client(url, TOKEN, **how) as client, pytest.raises(errors.PlimsollError) as caught:
        client.run_javascript("1")
    return caught.value


def fail_async(url: str | None = None, **how: Any) -> errors.PlimsollError:
    async def main() -> errors.PlimsollError:
        async with plimsoll.AsyncClient(url, TOKEN, **how) as client:
            with pytest.raises(errors.PlimsollError) as caught:
                await client.run_javascript("1")
            return caught.value

    return asyncio.run(main())


def fail_streaming(url: str | None = None, **how: Any) -> errors.PlimsollError:
    with plimsoll.Client(url, TOKEN, **how) as client, pytest.raises(errors.PlimsollError) as caught:
        client.stream_javascript("1").__enter__()
    return caught.value


@pytest.fixture(params=[fail_sync, fail_async, fail_streaming], ids=["sync", "async", "stream"])
def fail(request: pytest.FixtureRequest) -> Any:
    return request.param


def says(error: errors.PlimsollError, text: str, mark: Reason | None = Reason.ENVIRONMENT) -> None:
    sent = "nothing was sent" if mark else "the request may have arrived"
    assert str(error) == f"{text}: {sent}"
    assert error.not_dispatched is mark
    assert isinstance(error, errors.TransportError)


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_nobody_listens(fail: Any, host: str, free_port: int) -> None:
    error = fail(f"http://{host}:{free_port}/below")
    says(error, f"the service at {host}:{free_port} could not be reached (refused)")


@pytest.mark.parametrize(
    ("base_url", "place"),
    [
        ("https://example.org/below", "example.org:443"),
        ("http://127.0.0.1", "127.0.0.1:80"),
        ("http://[::1]:8746", "[::1]:8746"),
    ],
)
def test_a_place_always_has_a_port(base_url: str, place: str) -> None:
    prepared = Core(options(base_url, TOKEN)).describe()
    error = failure(OSError(TOKEN), Progress(), prepared, options(base_url, TOKEN))
    says(error, f"the service at {place} could not be reached (OSError)")


def test_what_a_caller_was_handling_is_no_cause(fail: Any, free_port: int) -> None:
    try:
        Path("absent").stat()
    except FileNotFoundError:
        assert "(refused)" in str(fail(f"http://127.0.0.1:{free_port}"))


def test_there_is_no_socket(fail: Any, tmp_path: Path) -> None:
    says(
        fail(unix_socket=tmp_path / "s"),
        f"the service at {tmp_path / 's'} could not be reached (no such socket)",
    )


def test_nobody_listens_at_a_socket(fail: Any, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
    says(fail(unix_socket=tmp_path / "s"), f"the service at {tmp_path / 's'} could not be reached (refused)")


def test_a_name_nobody_knows(fail: Any) -> None:
    says(
        fail("https://sandbox.invalid", deadline=20),
        "the service at sandbox.invalid:443 could not be reached (name not found)",
    )


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """A listener that says this to whatever comes, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_https_to_what_speaks_http(fail: Any, data: bytes) -> None:
    with answering(data) as port:
        error = fail(f"https://127.0.0.1:{port}")
    says(error, f"the service at 127.0.0.1:{port} could not be reached (TLS failed: is it http?)")


def test_a_service_that_says_nothing(fail: Any) -> None:
    with serving(lambda _, __: time.sleep(1)) as stub:
        error = fail(stub.url, deadline=0.3)
    says(error, f"the service at 127.0.0.1:{stub.port} did not answer in time", None)
    assert isinstance(error, errors.RequestTimeout)


def test_a_connection_that_is_never_made(fail: Any) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
            error = fail(f"http://127.0.0.1:{port}", deadline=0.5)
        finally:
            for each in waiting:
                each.close()
    says(error, f"the service at 127.0.0.1:{port} could not be reached (timed out)")


def test_a_client_that_is_closed_sends_nothing() -> None:
    client = plimsoll.Client("http://127.0.0.1:1", "")
    client.close()
    for use in (lambda: client.run_javascript("1"), lambda: client.stream_javascript("1").__enter__()):
        with pytest.raises(errors.TransportError) as caught:
            use()
        says(caught.value, "this client is closed")


async def test_a_closed_asynchronous_client_too() -> None:
    client = plimsoll.AsyncClient("http://127.0.0.1:1", "")
    await client.close()
    with pytest.raises(errors.TransportError) as caught:
        await client.run_javascript("1")
    says(caught.value, "this client is closed")


LEAKS = """
import asyncio, sys
import plimsoll

def told(call):
    try:
        call()
    except plimsoll.TransportError as error:
        print(error)

with plimsoll.Client(unix_socket=sys.argv[1]) as client:
    told(lambda: client.run_javascript("1"))

async def later():
    async with plimsoll.AsyncClient(unix_socket=sys.argv[1]) as client:
        try:
            await client.run_javascript("1")
        except plimsoll.TransportError as error:
            print(error)

asyncio.run(later())
"""


@pytest.mark.parametrize("stale", [False, True])
def test_a_socket_that_cannot_be_connected_is_closed(stale: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    if stale:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "s"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LEAKS, str(tmp_path / "s")],
        env={name: value for name, value in os.environ.items() if not name.startswith("PLIMSOLL_")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("could not be reached") == 2
