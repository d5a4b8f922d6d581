"""The figures of two reports side by side, with their ratio."""

from collections.abc import Iterator
from typing import Final

from tests.bench.report import Figure, Report

Numbers = tuple[float | None, float | None]
"""Minimum and median; a single number has no minimum."""
_NONE: Final[Numbers] = (None, None)


def text(here: Report, base: Report, commit: str) -> str:
    """Every figure that either report has, and what failed in each."""
    ours, theirs = ({each.number: each for each in report.figures} for report in (here, base))
    tables = [
        "\n".join(_figure(ours.get(number), theirs.get(number)))
        for number in sorted(ours.keys() | theirs.keys())
    ]
    head = f"The base is {commit}; a ratio is what was measured here divided by what was measured there."
    failed = [*map(str, here.failures), *(f"base: {each}" for each in base.failures)]
    return "\n\n".join([head, *tables, *(["\n".join(failed)] if failed else [])])


def ratio(here: float | None, base: float | None) -> float | None:
    """None where one of them is missing or there is nothing to divide by."""
    return here / base if here is not None and base else None


def _figure(here: Figure | None, base: Figure | None) -> Iterator[str]:
    one = here or base
    if one is None:
        return
    yield f"{one.number}. {one.title}"
    heads = ("min", "base", "ratio", "p50", "base", "ratio")
    yield f"   {'':<60}" + "".join(f"{each:>10}" for each in heads)
    ours, theirs = _rows(here), _rows(base)
    for name in dict.fromkeys([*ours, *theirs]):
        pairs = zip(ours.get(name, _NONE), theirs.get(name, _NONE), strict=True)
        cells = (cell for mine, other in pairs for cell in (mine, other, ratio(mine, other)))
        yield f"   {name:<60}" + "".join(map(_cell, cells))
    for where, figure in (("here", here), ("base", base)):
        if figure is None:
            yield f"   {where}: not measured"
        else:
            yield from (f"   {where}: {each}" for each in (*figure.notes, figure.mark) if each)


def _rows(figure: Figure | None) -> dict[str, Numbers]:
    if figure is None:
        return {}
    lines = {f"{each.name}, {each.unit}": (each.least, each.p50) for each in figure.lines}
    return lines | {each.label: (None, each.value) for each in figure.values}


def _cell(number: float | None) -> str:
    return f"{'-':>10}" if number is None else f"{number:>10.3f}"
