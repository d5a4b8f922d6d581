"""`python -m plimsoll.records VECTORS.json`: recompute every digest of a vector file.

Prints one line per section. Exit status: 0 all equal, 1 some differ (each named), 2 the file cannot be used.
"""

import sys
from pathlib import Path

from plimsoll.records import vectors

_USAGE = "usage: python -m plimsoll.records VECTORS.json"
_ONE_ARGUMENT = 2


def main(argv: list[str]) -> int:
    """Check the file named by the one argument; the exit status."""
    if len(argv) != _ONE_ARGUMENT:
        return _cannot(_USAGE)
    try:
        reports = vectors.recompute(vectors.read(Path(argv[1]).read_bytes()))
    except OSError as error:
        return _cannot(f"{argv[1]}: {error.strerror}")
    except vectors.VectorFileFault as fault:
        return _cannot(f"{argv[1]}: {fault}")
    for report in reports:
        _say(f"{report.section}: {report.count} checked, {len(report.differing)} differ")
        for line in report.differing:
            _say(f"  {line}")
    if not reports:
        _say("no section holds a vector")
    return 1 if any(report.differing for report in reports) else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _cannot(message: str) -> int:
    sys.stderr.write(message + "\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv))
