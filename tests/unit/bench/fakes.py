"""A bench in which nothing is measured and nothing takes time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.bench.invocation import Tree
from tests.bench.parts import Part
from tests.bench.sampling import Series


@dataclass
class FakeRunner:
    """Every figure has one line and one value. `errors` are raised in the first figure of a part, by part and tree."""

    errors: Mapping[tuple[str, str], BaseException] = field(default_factory=dict)
    turns: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[], None] = lambda: None

    def run(self, part: Part, tree: Tree) -> None:
        self.before()
        self.turns.append((part.name, tree.name))
        for number in part.figures:
            with tree.report.measuring(number, f"Figure {number}") as figure:
                figure.line("a run", Series([2.0 if tree.name else 3.0] * 3))
                if number == part.figures[0] and (part.name, tree.name) in self.errors:
                    raise self.errors[part.name, tree.name]
                figure.value("a count", 7.0, "KiB", at_most=8)


def quiet() -> float:
    """Nobody else uses the machine."""
    return 0.0
