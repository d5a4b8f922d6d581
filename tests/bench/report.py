"""What was measured, as a table for people and as JSON for programs. Targets are printed with their verdict, never asserted."""

import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.sampling import Series


@dataclass(frozen=True, slots=True)
class Line:
    """One measured thing: least, median, 95th percentile."""

    name: str
    unit: str
    least: float
    p50: float
    p95: float
    samples: int


@dataclass(frozen=True, slots=True)
class Value:
    """One number derived from lines, or counted. With `at_most` or `at_least` it is a target."""

    name: str
    unit: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.at_most is None and self.at_least is None:
            return None
        high = self.at_most is None or self.value <= self.at_most
        return high and (self.at_least is None or self.value >= self.at_least)

    @property
    def target(self) -> str:
        """The target in words."""
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return "" if self.at_least is None else f">= {self.at_least:g}"


@dataclass(slots=True)
class Figure:
    """One numbered figure."""

    number: int
    title: str
    lines: list[Line] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """How it was measured where that is not the usual way, or why it was not."""

    def note(self, text: str) -> None:
        """Add a sentence."""
        self.notes.append(text)

    def line(self, name: str, series: Series, unit: str = "ms") -> None:
        """Add a series."""
        self.lines.append(Line(name, unit, series.least, series.p50, series.p95, len(series.values)))

    def value(
        self,
        name: str,
        value: float,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Add a number."""
        self.values.append(Value(name, unit, value, at_most, at_least))

    def text(self) -> str:
        """A table of it."""
        rows = [f"{self.number}. {self.title}"]
        if self.lines:
            rows.append(f"   {'':<52}{'min':>10}{'p50':>10}{'p95':>10}{'n':>7}")
        rows += [
            f"   {f'{each.name}, {each.unit}':<52}{each.least:>10.3f}{each.p50:>10.3f}{each.p95:>10.3f}{each.samples:>7}"
            for each in self.lines
        ]
        rows += [f"   {_named(each):<52}{each.value:>10.3f}{_verdict(each)}" for each in self.values]
        return "\n".join([*rows, *(f"   {each}" for each in self.notes)])


def _named(value: Value) -> str:
    return f"{value.name}, {value.unit}" if value.unit else value.name


def _verdict(value: Value) -> str:
    return "" if value.met is None else f"   target {value.target}: {'met' if value.met else 'MISSED'}"


def machine() -> dict[str, Any]:
    """What kind of machine this is; no name and no path."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "python": ".".join(map(str, sys.version_info[:3])),
    }


@dataclass(slots=True)
class Report:
    """All figures of one invocation."""

    quick: bool
    figures: list[Figure] = field(default_factory=list)
    began: float = field(default_factory=time.time)
    machine: dict[str, Any] = field(default_factory=machine)

    def figure(self, number: int, title: str) -> Figure:
        """Begin a figure."""
        self.figures.append(Figure(number, title))
        return self.figures[-1]

    def write(self, file: Path) -> None:
        """Write the JSON."""
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(self.document(), indent=1) + "\n", encoding="utf-8")

    def document(self) -> dict[str, Any]:
        """Everything, with what kind of machine it was."""
        return {
            "date": time.strftime("%Y-%m-%d", time.gmtime(self.began)),
            "seconds": round(time.time() - self.began, 1),
            "quick": self.quick,
            "machine": self.machine,
            "figures": [_figure(each) for each in self.figures],
        }


def _figure(figure: Figure) -> dict[str, Any]:
    values = [asdict(each) | {"met": each.met} for each in figure.values]
    return asdict(figure) | {"values": values}
