"""The pages of the documentation, the fenced blocks and the tables on them."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.repository import ROOT, named, short

_FENCE = re.compile(
    r"^(?P<indent>[ ]*)```(?P<language>[^\s`]*)(?P<word>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Block:
    """One fenced block. `word` is what stands behind its language."""

    page: Path
    line: int
    language: str
    text: str
    word: str = ""

    @property
    def place(self) -> str:
        return f"{short(self.page)}:{self.line}"


def pages() -> list[Path]:
    """README.md and everything under docs/."""
    return [path for path in named(".md") if path == ROOT / "README.md" or path.is_relative_to(ROOT / "docs")]


def page(name: str) -> str:
    """The text of docs/NAME.md."""
    return (ROOT / "docs" / f"{name}.md").read_text()


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, also those inside lists, in order."""
    text = path.read_text()
    return [_block(path, text, match) for match in _FENCE.finditer(text)]


def _block(path: Path, text: str, match: re.Match[str]) -> Block:
    indent = len(match["indent"])
    lines = [line[indent:] for line in match["text"].splitlines()]
    return Block(
        path,
        text.count("\n", 0, match.start()) + 1,
        match["language"],
        "\n".join(lines),
        match["word"].strip(),
    )


def programs(name: str) -> list[Block]:
    """The blocks of Python on docs/NAME.md."""
    return [block for block in blocks(ROOT / "docs" / f"{name}.md") if block.language == "python"]


def table(text: str, *heads: str) -> list[tuple[str, ...]]:
    """The rows, as cells of Markdown, of the one table whose first columns are headed so."""
    lines = text.splitlines()
    (start,) = [number for number, line in enumerate(lines) if _cells(line)[: len(heads)] == heads]
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(_cells(line))
    return rows


def _cells(line: str) -> tuple[str, ...]:
    if not line.startswith("|"):
        return ()
    return tuple(cell.strip().replace("\\|", "|") for cell in _CELLS.split(line.strip().strip("|")))


def plain(cell: str) -> str:
    """A cell without the marks around code."""
    return cell.replace("`", "")
