"""The files of this repository, for the checks in this folder."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@cache
def files() -> tuple[Path, ...]:
    """Every file that is committed or would be: tracked or not, never the ignored ones."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = {ROOT / name for name in listing.stdout.decode().split("\0") if name}
    return tuple(sorted(path for path in paths if path.is_file()))


def named(*suffixes: str) -> tuple[Path, ...]:
    return tuple(path for path in files() if path.suffix in suffixes)


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text(path: Path) -> str | None:
    """The file's text, or None for a binary file."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
