"""A docker provider's directory is ours alone, or nothing starts."""

import os
import stat
from pathlib import Path

import pytest

from app.dispatch.state import UnsafeStateError, make_state_directory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def private_files() -> None:
    os.umask(0o077)


def test_it_is_made_with_the_way_to_it_for_us_alone(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    path = data / "providers" / "docker-runsc"
    make_state_directory(path, below=data)
    make_state_directory(path, below=data)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (data, path.parent, path)} == {0o700}


@pytest.mark.parametrize("which", [".", "providers", "providers/docker"])
def test_one_that_others_can_reach_is_refused_and_not_repaired(data: Path, which: str) -> None:
    path = data / "providers" / "docker"
    path.mkdir(parents=True, mode=0o700)
    (data / which).chmod(0o755)
    with pytest.raises(UnsafeStateError, match="can be reached by others"):
        make_state_directory(path, below=data)
    assert stat.S_IMODE((data / which).stat().st_mode) == 0o755


@pytest.mark.parametrize("which", ["providers", "providers/docker"])
def test_a_link_in_its_place_is_refused(data: Path, tmp_path: Path, which: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "docker").mkdir(parents=True, mode=0o700)
    (data / which).parent.mkdir(exist_ok=True, mode=0o700)
    (data / which).symlink_to(elsewhere)
    with pytest.raises(UnsafeStateError, match="must be a directory"):
        make_state_directory(data / "providers" / "docker", below=data)


def test_the_data_directory_itself_may_be_reached_through_a_link(data: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(data)
    make_state_directory(tmp_path / "link" / "providers" / "docker", below=tmp_path / "link")
    assert (data / "providers" / "docker").is_dir()
