"""One invocation of the bench: each part is measured here and, where there is one, on the base, in turn.

What was measured is written after every turn, so that an invocation that is interrupted keeps what it had.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.bench import ratios
from tests.bench.parts import Part
from tests.bench.report import Figure, Report, write


@dataclass(slots=True)
class Tree:
    """A checkout with its environment, and what was measured in it. `name` is empty for the present one."""

    name: str
    root: Path
    python: Path
    report: Report = field(default_factory=Report)


class Runner(Protocol):
    """Measures one part in one tree."""

    def run(self, part: Part, tree: Tree) -> None:
        """Add figures and failures to the tree's report; also when it is interrupted."""


def machine() -> dict[str, Any]:
    """What kind of machine this is; no name and no path."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "python": ".".join(map(str, sys.version_info[:3])),
    }


@dataclass(slots=True)
class Invocation:
    """All that one invocation measures, in the present tree and perhaps in a base."""

    quick: bool
    here: Tree
    base: Tree | None = None
    began: float = field(default_factory=time.time)
    machine: dict[str, Any] = field(default_factory=machine)

    @property
    def trees(self) -> tuple[Tree, ...]:
        return (self.here,) if self.base is None else (self.here, self.base)

    def document(self) -> dict[str, Any]:
        """Everything, with what kind of machine it was."""
        base = (
            {} if self.base is None else {"base": {"commit": self.base.name, **self.base.report.document()}}
        )
        return {
            "date": time.strftime("%Y-%m-%d", time.gmtime(self.began)),
            "seconds": round(time.time() - self.began, 1),
            "quick": self.quick,
            "machine": {**self.machine, "load_after": round(os.getloadavg()[0], 2)},
            **self.here.report.document(),
            **base,
        }

    def text(self) -> str:
        """Its tables; with a base, both and their ratio."""
        if self.base is None:
            return self.here.report.text()
        return ratios.text(self.here.report, self.base.report, self.base.name)


def take_turns(
    invocation: Invocation, parts: Sequence[Part], runner: Runner, others: Callable[[], float], out: Path
) -> None:
    """Every part in every tree. `others` waits a moment and says how many processors others use.

    A figure has the higher of what it said before and after its turn.
    """
    latest: list[Figure] = []
    turns = [(part, tree) for part in parts for tree in invocation.trees]
    for number, (part, tree) in enumerate(turns):
        used = others()
        _mark(latest, used)
        say(
            f"{number + 1} of {len(turns)}: {part.name}{f' at {tree.name}' * bool(tree.name)}, others use {used:.1f}"
        )
        had = len(tree.report.figures)
        try:
            runner.run(part, tree)
        finally:
            latest = tree.report.figures[had:]
            _mark(latest, used)
            write(out, invocation.document())
    _mark(latest, others())
    write(out, invocation.document())


def _mark(figures: Iterable[Figure], used: float) -> None:
    for figure in figures:
        figure.others_cpus = max(figure.others_cpus, round(used, 2))


def say(text: str) -> None:
    """Progress, for who waits."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def loads() -> str:
    """The load in words."""
    return "load {:.2f}, {:.2f}, {:.2f} (1, 5 and 15 minutes)".format(*os.getloadavg())
