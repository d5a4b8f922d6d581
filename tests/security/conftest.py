"""What the hostile tests share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private cache, filled by the first provider that needs it."""
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return folder
