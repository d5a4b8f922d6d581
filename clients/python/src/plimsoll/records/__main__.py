"""`python -m plimsoll.records`: recompute the digests of a file of vectors, or of one answer of a live service.

    python -m plimsoll.records VECTORS.json
    python -m plimsoll.records --request request.json --answer answer.json

Exit status: 0 all equal, 1 some differ (each named), 2 a file cannot be used, or the command is wrong.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from plimsoll.records import single, vectors

_ABOUT = """\
Recompute run records. With VECTORS.json, every digest of a file of vectors. With --request and --answer, what one answer
of a service states: request_sha256, result_sha256 and record_sha256 recomputed, the software rule's id, and the fields
that the answer repeats beside its record. Not checked: evidence_sha256 and what else is in no digest."""
_EXITS = (
    "Exit status: 0 all hold, 1 some differ (each is named), 2 a file cannot be used or the command is wrong."
)


def main(argv: Sequence[str]) -> int:
    """Check what the arguments name; the exit status."""
    parser = _parser()
    asked = parser.parse_args(argv[1:])
    pair = (asked.request, asked.answer)
    try:
        if asked.vectors is not None and pair == (None, None):
            return _vectors(asked.vectors)
        if asked.vectors is None and None not in pair:
            return _single(asked.request, asked.answer)
    except OSError as error:
        return _cannot(f"{error.filename}: {error.strerror}")
    except vectors.VectorFileFault as fault:
        return _cannot(f"{asked.vectors}: {fault}" if asked.vectors else str(fault))
    parser.print_usage(sys.stderr)
    return _cannot("give VECTORS.json, or both --request and --answer")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m plimsoll.records", description=_ABOUT, epilog=_EXITS, allow_abbrev=False
    )
    parser.add_argument("vectors", metavar="VECTORS.json", nargs="?", help="a file of vectors")
    parser.add_argument("--request", metavar="FILE", help="the body that was sent to POST /v1/runs")
    parser.add_argument(
        "--answer", metavar="FILE", help="its answer, or the finished run from GET /v1/runs/{id}"
    )
    return parser


def _vectors(path: str) -> int:
    reports = vectors.recompute(vectors.read(Path(path).read_bytes()))
    for report in reports:
        _say(f"{report.section}: {report.count} checked, {len(report.differing)} differ")
        for line in report.differing:
            _say(f"  {line}")
    if not reports:
        _say("no section holds a vector")
    return 1 if any(report.differing for report in reports) else 0


def _single(request: str, answer: str) -> int:
    statements = single.check(single.read(Path(request).read_bytes(), Path(answer).read_bytes()))
    for each in statements:
        _say(f"{each.name}: {f'differs: {each.problem}' if each.problem else 'holds'}")
    _say("evidence_sha256: not checked, it is in no record")
    return 1 if any(each.problem for each in statements) else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _cannot(message: str) -> int:
    sys.stderr.write(message + "\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv))
