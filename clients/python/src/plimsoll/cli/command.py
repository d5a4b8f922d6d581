"""The command line. `plimsoll run FILE|-`, `project DIR`, `wait ID`, `cancel ID`, `describe`, `grants`: see `acts`.

`specgen FILE` asks no service: what it does and its own exit status are in `specs`. Of the others:

The guest's output goes to stdout and stderr, one summary line to stderr. Exit status:

    the program's own     it ran (its low 8 bits; `--json` has the number itself)
    64                    the command, its options or the request are wrong; nothing ran
    66                    a file cannot be read; nothing ran
    69                    no result, and it is proven that nothing ran
    70                    no result that can be believed, or none yet; the code may have run
    71                    `wait` and `cancel`: no answer about this run (an unknown id, nobody there); nothing is known of it
    73                    an artifact cannot be written where it was asked for; the last line says whether it ran
    130                   interrupted; the code may have run

A program may end with the same numbers: scripts that care read `--json`, or the last line of stderr, which begins with
`ran`, `nothing ran`, `may have run` or `no answer about this run`.
"""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from typing_extensions import override

import plimsoll
from plimsoll.cli import acts, projects, show, specs, terminal, trees
from plimsoll.client import Client, errors

USAGE, NO_INPUT, REFUSED, MAY_HAVE_RUN, NO_ANSWER, INTERRUPTED = 64, 66, 69, 70, 71, 130


_QUESTIONS = frozenset({"wait", "cancel"})
_READS = frozenset({"describe", "grants"})


class _Version(argparse.Action):
    """Says the version, which is looked up only when it is asked for."""

    def __init__(self, **how: Any) -> None:
        super().__init__(nargs=0, **how)

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        sys.stdout.write(f"plimsoll {plimsoll.__version__}\n")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    def __init__(self, **how: Any) -> None:
        # No abbreviations: `--token SECRET` must be an error, not the path of a token file that is then named.
        super().__init__(allow_abbrev=False, **how)

    @override
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {terminal.escaped(message)}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `plimsoll`; the exit status."""
    parser = _parser()
    asked, unknown = parser.parse_known_args(arguments)
    if unknown:
        # By its name alone: its value may be a secret that was never meant to be an argument.
        parser.error(f"unknown argument {unknown[0].partition('=')[0]}")
    try:
        return asked.alone(asked) if asked.command == "specgen" else _with_client(asked)
    except trees.Unreadable as error:
        return _fail(asked, NO_INPUT, {"detail": str(error), "ran": False})
    except trees.Unwritable as error:
        return _fail(asked, acts.NO_OUTPUT, {"detail": str(error), "ran": False})
    except errors.PlimsollError as error:
        return _failed(asked, error)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the code may have run\n")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="plimsoll", description="Run untrusted code behind a wall that says how strong it is."
    )
    parser.add_argument("--version", action=_Version, help="show the library's version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run one program", description=_EXITS, formatter_class=_Raw)
    run.add_argument("file", metavar="FILE", help="the program; - reads stdin")
    run.add_argument(
        "--lang",
        "--language",
        choices=["javascript", "python"],
        help="default: by the file's extension; stdin is javascript",
    )
    run.set_defaults(act=acts.run)
    project = commands.add_parser(
        "project", help="run steps over a folder's files", description=_PROJECT, formatter_class=_Raw
    )
    project.add_argument(
        "folder", metavar="DIR", help="its files are sent; a link or a device in it is refused"
    )
    project.add_argument(
        "--step",
        action="append",
        required=True,
        metavar="COMMAND",
        help="a shell command; once for each, in order",
    )
    project.add_argument(
        "--artifact", action="append", default=[], metavar="PATH", help="a file to bring back; once for each"
    )
    project.set_defaults(act=projects.project)
    for command in (run, project):
        _how(command)
    wait = commands.add_parser(
        "wait", help="wait for a run's end, and show it like run does", description=_ASKING
    )
    wait.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="how long to wait (default: 360)")
    wait.set_defaults(act=acts.wait)
    cancel = commands.add_parser(
        "cancel", help="ask a run to end, and print what came of it", description=_ASKING
    )
    cancel.set_defaults(act=acts.cancel)
    describe = commands.add_parser("describe", help="what the service serves, and behind which wall")
    describe.set_defaults(act=acts.describe)
    grants = commands.add_parser("grants", help="which APIs a run may call for you, and by which routes")
    grants.set_defaults(act=acts.grants)
    specs.add(commands)
    for command in (project, wait):
        command.add_argument("-o", "--output", metavar="DIR", help="write the artifacts below this folder")
        command.add_argument("--force", action="store_true", help="replace files that are there already")
    for command in (wait, cancel):
        command.add_argument("id", metavar="ID", help="the run's id")
    for command in (run, project, wait):
        command.add_argument("--raw", action="store_true", help="write the exact bytes to a terminal too")
    for command in (run, project, wait, cancel, describe, grants):
        command.add_argument("--json", action="store_true", help="one JSON object on stdout")
        command.add_argument("--url", help="the service (default: PLIMSOLL_URL)")
        command.add_argument(
            "--token-file", metavar="PATH", help="file with the token (default: PLIMSOLL_TOKEN)"
        )
        command.add_argument("--unix-socket", metavar="PATH", help="the service's socket")
    return parser


def _how(command: argparse.ArgumentParser) -> None:
    """What may stand beside the code."""
    command.add_argument(
        "--floor", choices=["process", "container", "kernel", "vm"], help="weakest wall accepted"
    )
    command.add_argument("--timeout", type=float, metavar="SECONDS", help="the program's own time")
    command.add_argument(
        "--key", metavar="KEY", help="run it at most once under this key, however often it is sent"
    )
    command.add_argument(
        "--grant", metavar="NAME", help="let it call an API by this profile (plimsoll grants lists them)"
    )
    way = command.add_mutually_exclusive_group()
    way.add_argument(
        "--stream", action="store_true", help="show output as it comes; with --json a line per event"
    )
    way.add_argument("--later", action="store_true", help="do not wait: print the run's id")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError
    return seconds


_Raw = argparse.RawDescriptionHelpFormatter
_EXITS = """\
Run one program in the sandbox. Exit status: the program's own; 64 wrong request, 66 unreadable file, 69 refused (all three:
nothing ran); 70 no result that can be believed, or none yet (it may have run); 130 interrupted."""
_PROJECT = """\
Send the files below DIR, run the steps in order until one fails, bring the artifacts back. Output is shown as it comes. Exit
status: that of the last step begun, 1 if none tells of the failure; 73 an artifact cannot be written; else as of run."""
_ASKING = """\
Ask about a run that was started before. Exit status as of run (cancel: 0 when it was asked), and 71: no answer about this run,
such as for an unknown id; that says nothing about the run."""


def _with_client(asked: argparse.Namespace) -> int:
    token = acts.text(asked.token_file).strip() if asked.token_file else None
    act: Callable[[argparse.Namespace, Client], int] = asked.act
    with Client(asked.url, token, unix_socket=asked.unix_socket) as client:
        return act(asked, client)


def _status(error: errors.PlimsollError, *, running: bool) -> int:
    if isinstance(error, errors.InvalidOption | errors.InvalidRequest) and error.not_dispatched is not None:
        return USAGE
    return MAY_HAVE_RUN if running and error.not_dispatched is None else REFUSED


def _failed(asked: argparse.Namespace, error: errors.PlimsollError) -> int:
    running, question = asked.command not in _READS, asked.command in _QUESTIONS
    status = NO_ANSWER if question and show.unanswered(error) else _status(error, running=running)
    return _fail(asked, status, show.failure(error, running=running, question=question))


def _fail(asked: argparse.Namespace, status: int, failure: dict[str, object]) -> int:
    if asked.json:
        sys.stdout.write(show.to_json(failure))
    sys.stderr.write(terminal.escaped(show.failure_text(failure)) + "\n")
    return status
