"""One authority for the tests here."""

from pathlib import Path

import pytest

from tests.integration.broker.apis import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder: Path = tmp_path_factory.mktemp("authority")
    return Authority(folder)
