"""What was measured, as a table for people and as JSON for programs. Targets are printed with their verdict, never asserted.

What fails is noted beside what did not: a figure, a part, or the rest of a report that was interrupted.
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from typing_extensions import override

from tests.bench.sampling import Series

BUSY_CPUS: Final = 1.5
"""Figures measured while others used more processors than this are not to be compared."""
_LONGEST: Final = 300
_PERHAPS_A_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{24,}")


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
    def label(self) -> str:
        """Name and unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

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
    others_cpus: float = 0.0
    """Processors that other programs used in the pauses before and after its part, at most."""

    @property
    def comparable(self) -> bool:
        """Whether others left the machine alone while it was measured."""
        return self.others_cpus <= BUSY_CPUS

    @property
    def mark(self) -> str:
        """What keeps it from being compared; empty if nothing does."""
        return "" if self.comparable else f"not to be compared: others used {self.others_cpus:.1f} processors"

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
        rows += [f"   {each.label:<52}{each.value:>10.3f}{_verdict(each)}" for each in self.values]
        return "\n".join([*rows, *(f"   {each}" for each in (*self.notes, self.mark) if each)])

    def document(self) -> dict[str, Any]:
        """It as JSON."""
        values = [asdict(each) | {"met": each.met} for each in self.values]
        return asdict(self) | {"values": values, "comparable": self.comparable}

    @classmethod
    def read(cls, document: dict[str, Any]) -> Self:
        """The figure of a document."""
        values = [{key: value for key, value in each.items() if key != "met"} for each in document["values"]]
        return cls(
            document["number"],
            document["title"],
            [Line(**each) for each in document["lines"]],
            [Value(**each) for each in values],
            document["notes"],
            document["others_cpus"],
        )


def _verdict(value: Value) -> str:
    return "" if value.met is None else f"   target {value.target}: {'met' if value.met else 'MISSED'}"


@dataclass(frozen=True, slots=True)
class Failure:
    """What could not be measured, and why: the kind of error and its first line."""

    what: str
    why: str

    @override
    def __str__(self) -> str:
        return f"{self.what} failed: {self.why}"


def reason(error: BaseException) -> str:
    """Kind and first line of an error, without words that are long enough to be a token."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {_PERHAPS_A_SECRET.sub('[...]', first)}"[:_LONGEST].removesuffix(": ")


@dataclass(slots=True)
class Report:
    """Figures, and what failed on the way to them."""

    figures: list[Figure] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def figure(self, number: int, title: str) -> Figure:
        """Begin a figure."""
        self.figures.append(Figure(number, title))
        return self.figures[-1]

    @contextmanager
    def measuring(self, number: int, title: str) -> Iterator[Figure]:
        """Begin a figure and keep what it has when its measurement fails, which is noted; the next one can be measured."""
        figure = self.figure(number, title)
        with self.attempt(f"figure {number}"):
            try:
                yield figure
            except BaseException as error:
                figure.note(
                    f"{'not whole' if figure.lines or figure.values else 'not measured'}: {reason(error)}"
                )
                raise

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Note and print an error, and go on behind the block. Interrupts go on upwards."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it was, the other figures are still to be had
            self.fail(what, reason(error))

    def fail(self, what: str, why: str) -> None:
        """Note a failure and print it."""
        self.failures.append(Failure(what, why))
        print(self.failures[-1], file=sys.stderr, flush=True)

    def add(self, other: "Report") -> None:
        """Take over what another one has."""
        self.figures += other.figures
        self.failures += other.failures

    def document(self) -> dict[str, Any]:
        """It as JSON, by number."""
        figures = sorted(self.figures, key=lambda each: each.number)
        return {
            "figures": [each.document() for each in figures],
            "failures": [asdict(each) for each in self.failures],
        }

    @classmethod
    def read(cls, document: dict[str, Any]) -> Self:
        """The report of a document."""
        return cls(
            [Figure.read(each) for each in document["figures"]],
            [Failure(**each) for each in document["failures"]],
        )

    def text(self) -> str:
        """All tables, and what failed."""
        figures = sorted(self.figures, key=lambda each: each.number)
        failed = "\n".join(map(str, self.failures))
        return "\n\n".join([*(each.text() for each in figures), *([failed] if failed else [])])


def write(file: Path, document: dict[str, Any]) -> None:
    """Write JSON, whole or not at all: whoever is interrupted keeps what stood there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    beside.replace(file)


def read_report(file: Path) -> Report:
    """The report of a file that `write` wrote."""
    return Report.read(json.loads(file.read_text(encoding="utf-8")))
