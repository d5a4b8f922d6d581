"""One docker daemon and one sandbox image for a whole session of tests; neither is made before a test asks for it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docker import Daemon, build_image, daemon


@pytest.fixture(scope="session")
def docker() -> Iterator[Daemon]:
    """In a directory with a short name: a Unix socket's path has little room."""
    with tempfile.TemporaryDirectory(prefix="pd-") as place, daemon(Path(place)) as found:
        yield found


@pytest.fixture(scope="session")
def image(docker: Daemon) -> str:
    return build_image(docker)
