"""`make bench`: every figure against a floor measured in the same minutes. See docs/performance.md for what they mean.

The table goes to stdout, the numbers to build/bench.json. Targets are printed with their verdict and fail nothing. The exit
status is 1 if a part could not be measured, 130 after an interrupt.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.bench import base, owned, page
from tests.bench.invocation import Invocation, Runner, Tree, loads, say, take_turns
from tests.bench.parts import FULL, PARTS, QUICK, Part
from tests.bench.processes import others_cpus
from tests.bench.report import Report, read_report, write

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
INTERRUPTED = 128 + signal.SIGINT
"""The exit status that a shell gives a program which SIGINT has ended."""


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.part is not None:
        (part,) = (each for each in PARTS if each.name == options.part)
        return _measure(part, options.out, quick=options.quick)
    owned.interruptible()
    owned.adopt()
    BUILD.mkdir(exist_ok=True)
    return bench(options, ROOT, Processes(BUILD, options.quick), others_cpus)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options. Exits with status 2 when they are wrong."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="few samples: about a third of the time")
    add("--page", action="store_true", help="also write the numbers into docs/performance.md")
    add("--only", metavar="N,M", type=_parts, default=PARTS, help="only the parts with these figures")
    add("--base", metavar="COMMIT", help="measure that commit too, in turn with the present tree")
    add("--out", metavar="FILE", type=Path, default=BUILD / "bench.json", help="where the numbers go")
    names = [each.name for each in PARTS]
    add("--part", choices=names, help="one part, in this process, with its data beside FILE")
    options = parser.parse_args(arguments)
    if options.page and options.only is not PARTS:
        parser.error("--page takes the figures of all parts")
    return options


def _parts(text: str) -> tuple[Part, ...]:
    known = {str(number): part for part in PARTS for number in part.figures}
    wanted = text.split(",")
    if unknown := [each for each in wanted if each not in known]:
        raise argparse.ArgumentTypeError(f"there is no figure {unknown[0]!r}")
    return tuple(part for part in PARTS if part in {known[each] for each in wanted})


def bench(options: argparse.Namespace, root: Path, runner: Runner, others: Callable[[], float]) -> int:
    """Measure, print and write; the exit status."""
    invocation = Invocation(options.quick, Tree("", root, Path(sys.executable)))
    say(loads())
    interrupted = False
    try:
        with nullcontext() if options.base is None else base.built(root, options.base) as invocation.base:
            take_turns(invocation, options.only, runner, others, options.out)
    except base.CannotBuildError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        interrupted = True
    print(invocation.text())
    say(loads())
    if interrupted:
        say("interrupted: the rest was not measured")
        return INTERRUPTED
    failed = bool(invocation.here.report.failures)
    if options.page and failed:
        say(f"{page.PAGE.name} stays as it is, because something failed")
    elif options.page:
        page.rewrite(invocation.document())
    return int(failed)


@dataclass(frozen=True, slots=True)
class Processes:
    """Runs each part in a process of its own tree, which is ended with everything that it started.

    The data of both trees is on the same disk, beside the code and not in /tmp, which may be memory: a commit must cost what
    a disk costs.
    """

    build: Path
    quick: bool

    def run(self, part: Part, tree: Tree) -> None:
        with tempfile.TemporaryDirectory(
            prefix="bench-", dir=self.build, ignore_cleanup_errors=True
        ) as place:
            out = Path(place) / "part.json"
            flags: list[str | Path] = ["--part", part.name, "--out", out, *["--quick"] * self.quick]
            status: int | None = None
            try:
                status = owned.run([tree.python, "tests/bench", *flags], tree.root)
            finally:
                found = read_report(out) if out.exists() else Report()
                tree.report.add(found)
            if status and not found.failures:
                tree.report.fail(part.name, f"its process ended with {status}")


def _measure(part: Part, out: Path, *, quick: bool) -> int:
    """In the process of its own: the figures go to `out`, also after an interrupt."""
    owned.interrupted_with_parent()
    report = Report()
    try:
        with report.attempt(part.name):
            part.measure(report, out.parent, QUICK if quick else FULL)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        write(out, report.document())
    return int(bool(report.failures))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
