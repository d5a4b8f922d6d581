"""The software identity of a real image: what the service computes from the daemon's export is what anybody else does."""

import asyncio
import contextlib
import http.client
import subprocess
from collections.abc import AsyncIterator

import pytest

from providers.docker.manifest import manifest_of
from tests.support.docker import API, Daemon, Unix, identity_of

pytestmark = pytest.mark.component("docker")


async def export(docker: Daemon, image: str) -> AsyncIterator[bytes]:
    with contextlib.closing(Unix(docker.socket)) as connection:
        answer = await asyncio.to_thread(_ask, connection, image)
        while part := await asyncio.to_thread(answer.read, 1 << 20):
            yield part


def _ask(connection: Unix, image: str) -> http.client.HTTPResponse:
    connection.request("GET", f"{API}/images/{image}/get")
    return connection.getresponse()


async def identity(docker: Daemon, image: str, *, as_if: str = "") -> str:
    return await manifest_of(export(docker, image), docker.call("GET", f"/images/{as_if or image}/json"))


def test_it_is_what_anybody_else_computes(docker: Daemon, image: str) -> None:
    found = asyncio.run(identity(docker, image))
    assert found == identity_of(docker, image)
    assert found.startswith("oci-manifest:linux/")


def test_a_layer_more_is_another_identity(docker: Daemon, image: str) -> None:
    done = subprocess.run(
        ["docker", "build", "-q", "--network=none", "-"],
        input=f"FROM {image}\nRUN touch /one-more\n",
        env=docker.environment | {"DOCKER_BUILDKIT": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    other = done.stdout.split()[-1]
    try:
        assert asyncio.run(identity(docker, other)) not in {"", asyncio.run(identity(docker, image))}
        assert asyncio.run(identity(docker, other, as_if=image)) == ""
    finally:
        docker.docker("rmi", "-f", other)
