"""What `plimsoll specgen` does: one document in, files or one JSON object out, and a report of what is not in them.

It asks no service. Exit status: 0 all of it is expressed; 1 written, and the report says what is left out or wider than
asked for; 64 an option is wrong; 65 the document breaks a rule or a bound, 66 it cannot be read (both: nothing is written);
73 a file cannot be written.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from plimsoll.cli import acts, show, trees
from plimsoll.contract.grants import GrantFault
from plimsoll.contract.results import Artifact
from plimsoll.records import strictjson
from plimsoll.specgen import (
    DOCUMENT_BYTES,
    NESTING,
    Finding,
    Outputs,
    Reading,
    SpecFault,
    parse_server,
    read,
    write,
)
from plimsoll.specgen.model import Effect

INCOMPLETE, USAGE, BAD_DOCUMENT, NO_INPUT = 1, 64, 65, 66
SHOWN = 100
"""Findings on stderr; the report has all of them."""
_ORDER: tuple[Effect, ...] = ("left out", "wider", "partial", "note")


def add(commands: Any) -> argparse.ArgumentParser:
    """The command and its options."""
    command: argparse.ArgumentParser = commands.add_parser(
        "specgen", help="make a grant's allow list, clients and description from an OpenAPI document"
    )
    command.description = __doc__
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_argument("file", metavar="FILE", help="OpenAPI 3.0 or 3.1 as JSON; - reads stdin")
    command.add_argument("--name", default="api", help="the grant profile's name (default: api)")
    command.add_argument(
        "--server", metavar="URL", help="the API's origin, perhaps with a path, for the document's"
    )
    command.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WHAT",
        help="a method, a method and path, or an operationId; once for each (default: everything)",
    )
    command.add_argument("--report", metavar="FILE", help="write all findings there, as JSON")
    command.add_argument("-o", "--output", metavar="DIR", help="write the five files below this folder")
    command.add_argument("--force", action="store_true", help="replace files that are there already")
    command.add_argument(
        "--json", action="store_true", help="one JSON object on stdout: all files and findings"
    )
    command.set_defaults(alone=specgen)
    return command


def specgen(asked: argparse.Namespace) -> int:
    """`plimsoll specgen`."""
    try:
        server = parse_server(asked.server) if asked.server else None
        reading = read(_document(asked.file), server=server, only=asked.only)
        outputs = write(reading.api, asked.name)
        _write(asked, reading, outputs)
    except GrantFault as fault:
        return _failed(USAGE, fault)
    except SpecFault as fault:
        return _failed(BAD_DOCUMENT, fault)
    except trees.Unreadable as error:
        return _failed(NO_INPUT, error)
    except trees.Unwritable as error:
        return _failed(acts.NO_OUTPUT, error)
    _tell(reading)
    return 0 if reading.complete else INCOMPLETE


def _failed(status: int, error: Exception) -> int:
    acts.say(f"specgen: {error}")
    return status


def _document(path: str) -> Any:
    """The parsed document. Raises Unreadable and SpecFault."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(DOCUMENT_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(DOCUMENT_BYTES + 1)
    except OSError as error:
        raise trees.Unreadable(f"{path}: {error.strerror}") from None
    if len(data) > DOCUMENT_BYTES:
        raise SpecFault("#", f"must be at most {DOCUMENT_BYTES} bytes")
    try:
        return strictjson.loads(data, nesting=NESTING)
    except strictjson.JsonFault as fault:
        raise SpecFault("#", f"{fault} (a document in YAML is to be converted first)") from None


def _write(asked: argparse.Namespace, reading: Reading, outputs: Outputs) -> None:
    """Files, report, stdout; what could not be written is known before anything is."""
    files = [Artifact(name, text.encode()) for name, text in outputs.files().items()]
    places = [(asked.output, files)] if asked.output else []
    if asked.report:
        path = Path(asked.report)
        places.append((str(path.parent), [Artifact(path.name, _report(reading).encode())]))
    for folder, found in places:
        trees.check(folder, [each.path for each in found], force=asked.force)
    for folder, found in places:
        trees.write(folder, found, force=asked.force)
    if asked.json:
        sys.stdout.write(show.to_json({**_findings(reading), "files": outputs.files()}))
    elif not asked.output:
        sys.stdout.write(outputs.fragment)
    sys.stdout.flush()


def _report(reading: Reading) -> str:
    return show.to_json(_findings(reading))


def _findings(reading: Reading) -> dict[str, Any]:
    return {"complete": reading.complete, "findings": [_shape(each) for each in reading.findings]}


def _shape(each: Finding) -> dict[str, str]:
    return {"effect": each.effect, "pointer": each.pointer, "rule": each.rule, "detail": each.detail}


def _tell(reading: Reading) -> None:
    for each in sorted(reading.findings, key=lambda each: _ORDER.index(each.effect))[:SHOWN]:
        acts.say(f"{each.effect}: {each.pointer}: {each.detail} ({each.rule})")
    if len(reading.findings) > SHOWN:
        acts.say(f"and {len(reading.findings) - SHOWN} more, which --report has")
    counted = Counter(each.effect for each in reading.findings)
    words = ", ".join(f"{effect}: {counted[effect]}" for effect in _ORDER if counted[effect])
    api = reading.api
    acts.say(
        f"specgen: functions: {len(api.operations)}, routes: {len(api.allow)}, {words or 'nothing left out'}"
    )
