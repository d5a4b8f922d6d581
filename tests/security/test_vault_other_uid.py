"""The API's side, as a user of its own with its whole environment and every box of the database, opens nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.vault import keys, seal, unseal
from app.vault.keys import KeyUnusable
from app.vault.seal import Binding
from app.vault.unseal import BoxFault, Secret

NOBODY = 65534
BOUND = Binding("hr-read", "https://hr.example.com", "static", "", ("GET /v1/x",), ("reporting",))
READ = """
import os, sys
os.setgid({nobody}); os.setuid({nobody})
try:
    descriptor = os.open(sys.argv[1], os.O_RDONLY)
except OSError as error:
    print(error.strerror)
else:
    print(os.read(descriptor, 1000))
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    # Every parent may be entered by everybody: only the file's own mode and owner are left to refuse.
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    private, public = tmp_path / "vault.private", tmp_path / "vault.public"
    keys.make_pair(private, public)
    return private, public


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_read_the_private_key_and_can_read_the_public_one(
    pair: tuple[Path, Path],
) -> None:
    def read(path: Path) -> str:
        command = [sys.executable, "-I", "-c", READ.format(nobody=NOBODY), str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout

    private, public = pair
    assert read(private) == "Permission denied\n"
    assert "plimsoll-vault-public-1" in read(public)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_broker_takes_no_key_that_another_user_owns(pair: tuple[Path, Path]) -> None:
    private, public = pair
    os.chown(private, NOBODY, NOBODY)
    with pytest.raises(KeyUnusable, match=f"belongs to uid {NOBODY}"):
        unseal.load(private)
    os.chown(public, NOBODY, NOBODY)
    with pytest.raises(KeyUnusable, match=f"belongs to uid {NOBODY}"):
        keys.read_public(public)


def test_what_the_api_side_has_opens_nothing(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """A key pair of its own making, the public key and the box: all that is left to try."""
    private, public = pair
    sealed = seal.seal(b"canary-secret", BOUND, keys.read_public(public))
    assert unseal.load(private).open(sealed, BOUND) == Secret(b"canary-secret")
    keys.make_pair(tmp_path / "own.private", tmp_path / "own.public")
    assert unseal.load(tmp_path / "own.private").open(sealed, BOUND) is BoxFault.OTHER_KEY
    assert b"canary" not in sealed
    assert b"hr.example.com" not in sealed
