"""What each command does with a client; the exit status comes back, errors go up."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from plimsoll.cli import show, terminal, trees
from plimsoll.cli.trees import Unreadable
from plimsoll.client import Client, Output, Run, RunHandle, RunStream, errors
from plimsoll.contract.advice import Advice
from plimsoll.contract.rest import AdviceBody
from plimsoll.contract.results import Artifact

_LANGUAGES = {".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".py": "python"}
NO_OUTPUT = 73
"""Exit status where an artifact cannot be written."""
_LOW_BITS = 0xFF


def text(path: str) -> str:
    """The file's text (`-`: stdin). Raises Unreadable."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unreadable(f"{path}: not UTF-8 text") from None


def run(asked: argparse.Namespace, client: Client) -> int:
    """`plimsoll run`."""
    code = text(asked.file)
    python = (asked.lang or _language(asked.file)) == "python"
    how = options(asked)
    if asked.later:
        begin = client.start_python if python else client.start_javascript
        return later(asked, asked.file, lambda: begin(code, **how))
    if asked.stream:
        return _stream(asked, client.stream_python if python else client.stream_javascript, code, how)
    send = client.run_python if python else client.run_javascript
    with terminal.progress(sys.stderr, f"running {asked.file} ..."):
        found = send(code, **how)
    _print_run(asked, found)
    return found.exit_code & _LOW_BITS


def options(asked: argparse.Namespace) -> dict[str, Any]:
    """What stands beside the code."""
    return {
        "floor": asked.floor,
        "timeout": asked.timeout,
        "idempotency_key": asked.key,
        "grant_profile": asked.grant,
    }


def _language(file: str) -> str:
    language = "javascript" if file == "-" else _LANGUAGES.get(Path(file).suffix.lower())
    if language is None:
        raise errors.InvalidOption(f"{file}: its extension names no language, give --lang")
    return language


def _print_run(asked: argparse.Namespace, found: Run) -> None:
    if asked.json:
        sys.stdout.write(show.to_json(show.run(found)))
    else:
        terminal.write_guest(sys.stdout, found.stdout, raw=asked.raw)
        terminal.write_guest(sys.stderr, found.stderr, raw=asked.raw)
    say_end(asked, found.advice, show.summary(found))


def say_end(asked: argparse.Namespace, advice: Sequence[Advice | AdviceBody], summary: str) -> None:
    """What is said of a run that ended: for people its advice too, and last how it ended."""
    for line in [] if asked.json else show.advice(advice):
        say(line)
    say(summary)


def say(line: str) -> None:
    """One line of ours on stderr."""
    sys.stderr.write(terminal.escaped(line) + "\n")


def write(asked: argparse.Namespace, artifacts: Iterable[Artifact]) -> bool:
    """Write a finished run's artifacts, where that was asked for; whether all of them are there now."""
    try:
        if asked.output:
            trees.write(asked.output, artifacts, force=asked.force)
    except trees.Unwritable as error:
        say(f"ran, but not every artifact was written: {error}")
        return False
    return True


def later(asked: argparse.Namespace, what: str, start: Callable[[], RunHandle[Any]]) -> int:
    """Start it, and print where it can be asked for."""
    with terminal.progress(sys.stderr, f"starting {what} ..."):
        handle = start()
    sys.stdout.write(show.to_json({"id": handle.id}) if asked.json else f"{handle.id}\n")
    say(f"started {handle.id}: it goes on by itself, see plimsoll wait")
    return 0


def _stream(
    asked: argparse.Namespace, begin: Callable[..., RunStream[Run]], code: str, how: dict[str, Any]
) -> int:
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    writers = {name: terminal.GuestWriter(stream, raw=asked.raw) for name, stream in streams.items()}
    try:
        with begin(code, **how) as stream:
            for event in stream:
                if asked.json:
                    sys.stdout.write(show.to_json(show.event(event)))
                    sys.stdout.flush()
                elif isinstance(event, Output):
                    writers[event.stream].write(event.data)
    finally:
        for writer in writers.values():
            writer.close()
    if asked.json:
        sys.stdout.write(show.to_json(show.run(stream.result)))
    say_end(asked, stream.result.advice, show.summary(stream.result))
    return stream.result.exit_code & _LOW_BITS


def wait(asked: argparse.Namespace, client: Client) -> int:
    """`plimsoll wait`."""
    with terminal.progress(sys.stderr, f"waiting for {asked.id} ..."):
        found = client.wait_run(asked.id, asked.timeout)
    if asked.json:
        sys.stdout.write(show.to_json(show.view(found)))
    else:
        stdout, stderr = show.view_output(found)
        terminal.write_guest(sys.stdout, stdout, raw=asked.raw)
        terminal.write_guest(sys.stderr, stderr, raw=asked.raw)
    say_end(asked, found.advice or (), show.view_summary(found))
    if not write(asked, show.view_artifacts(found)):
        return NO_OUTPUT
    return (found.exit_code or 0) & _LOW_BITS


def cancel(asked: argparse.Namespace, client: Client) -> int:
    """`plimsoll cancel`."""
    with terminal.progress(sys.stderr, f"cancelling {asked.id} ..."):
        outcome = client.cancel(asked.id)
    sys.stdout.write(show.to_json({"id": asked.id, "outcome": outcome}) if asked.json else f"{outcome}\n")
    return 0


def grants(asked: argparse.Namespace, client: Client) -> int:
    """`plimsoll grants`."""
    with terminal.progress(sys.stderr, "asking ..."):
        found = client.grants()
    if asked.json:
        sys.stdout.write(show.to_json({"grants": [each.model_dump(mode="json") for each in found]}))
    else:
        sys.stdout.write(terminal.escaped(show.grants(found)))
    return 0


def describe(asked: argparse.Namespace, client: Client) -> int:
    """`plimsoll describe`."""
    with terminal.progress(sys.stderr, "asking ..."):
        found = client.describe()
    if asked.json:
        sys.stdout.write(show.to_json(found.model_dump(mode="json")))
    else:
        sys.stdout.write(terminal.escaped(show.description(found)))
    return 0
