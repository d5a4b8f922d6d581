"""No file names a machine's folders or a package registry's host: any clone and any mirror will do."""

import re
from pathlib import Path

import pytest

from tests.architecture.repository import files, short, text

# Put together from pieces, so that this file does not contain what it looks for.
_SLASH = "/"
WORDS = (
    *(rf"(?<![\w.\-/]){_SLASH}{folder}{_SLASH}" for folder in ("work", "root")),
    *(r"\b" + host.replace(".", r"\.") for host in ("py" + "pi.org", "files.python" + "hosted.org")),
    *(r"\b" + host.replace(".", r"\.") for host in ("registry.npm" + "js.org", "registry.yarn" + "pkg.com")),
    *(r"\b" + host.replace(".", r"\.") for host in ("deb.deb" + "ian.org", "proxy.go" + "lang.org")),
    *(r"\b" + host.replace(".", r"\.") for host in ("crates" + ".io", "repo1." + "maven.org")),
)
_FORBIDDEN = re.compile("|".join(WORDS))


@pytest.mark.parametrize("path", files(), ids=short)
def test_no_machine_path_and_no_registry_host(path: Path) -> None:
    content = text(path)
    if content is None:
        return
    found = [
        f"{number}: {line.strip()[:120]}"
        for number, line in enumerate(content.splitlines(), 1)
        if _FORBIDDEN.search(line)
    ]
    assert not found


def test_the_pattern_finds_what_it_looks_for() -> None:
    for folder in ("work", "root"):
        assert _FORBIDDEN.search(f'"{_SLASH}{folder}{_SLASH}x"')
    assert _FORBIDDEN.search("https://" + "py" + "pi.org/simple")
    assert not _FORBIDDEN.search("the framework/root/of it, ./work/x")
