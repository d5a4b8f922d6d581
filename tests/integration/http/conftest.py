"""A real listener on loopback for each test."""

from collections.abc import Iterator

import pytest

from tests.integration.http.wire import SHORT, Service, running


@pytest.fixture
def service() -> Iterator[Service]:
    with running(SHORT) as started:
        yield started
