"""Every relative link in a Markdown file leads to a file, and to a heading where it names one."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.architecture.repository import named, short

PAGES = named(".md")
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*?$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")


def links(page: Path) -> list[str]:
    prose = _CODE.sub("", _FENCE.sub("", page.read_text()))
    found = [inline or reference for inline, reference in _LINK.findall(prose)]
    return [link for link in found if not re.match(r"[a-z][a-z0-9+.-]*:", link)]


def anchors(page: Path) -> set[str]:
    """The names that a forge gives the page's headings."""
    prose = _FENCE.sub("", page.read_text())
    names: set[str] = set(_ANCHOR.findall(prose))
    for heading in _HEADING.findall(prose):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        copies = sum(1 for known in names if re.fullmatch(re.escape(name) + r"(-\d+)?", known))
        names.add(f"{name}-{copies}" if copies else name)
    return names


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_relative_links_resolve(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken
