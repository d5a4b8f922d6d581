"""What `plimsoll project` does: a folder's files, steps in order, the artifacts into another folder."""

import argparse
import sys

from plimsoll.cli import acts, show, terminal, trees
from plimsoll.client import Accepted, Client, Output, ProjectRun, RunStream, StepEnded
from plimsoll.client.streaming import StreamEvent

_LOW_BITS = 0xFF
_SHOWN = 60


def project(asked: argparse.Namespace, client: Client) -> int:
    """`plimsoll project`."""
    files = trees.read(asked.folder)
    if asked.output:
        # Better known before anything runs than after.
        trees.check(asked.output, asked.artifact, force=asked.force)
    how = acts.options(asked)
    if asked.later:
        start = client.start_project
        return acts.later(asked, asked.folder, lambda: start(files, asked.step, asked.artifact, **how))
    with client.stream_project(files, asked.step, asked.artifact, **how) as stream:
        _follow(asked, stream)
    return _ended(asked, stream.result)


def _ended(asked: argparse.Namespace, found: ProjectRun) -> int:
    if asked.json:
        sys.stdout.write(show.to_json(show.run(found)))
    acts.say_end(asked, found.advice, show.summary(found))
    if not acts.write(asked, found.artifacts):
        return acts.NO_OUTPUT
    return found.exit_code & _LOW_BITS


def _follow(asked: argparse.Namespace, stream: RunStream[ProjectRun]) -> None:
    view = _View(asked)
    try:
        for event in stream:
            view.tell(event)
    finally:
        view.close()


class _View:
    """Shows a project as it goes: its output, and on a terminal which step is under way."""

    def __init__(self, asked: argparse.Namespace) -> None:
        streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        self._writers = {name: terminal.GuestWriter(each, raw=asked.raw) for name, each in streams.items()}
        self._line = terminal.Line(sys.stderr)
        self._steps: list[str] = asked.step
        self._events: bool = asked.json and asked.stream
        self._output: bool = not asked.json
        self._at_margin = True

    def tell(self, event: StreamEvent) -> None:
        """Show one event."""
        self._line.hide()
        if self._events:
            sys.stdout.write(show.to_json(show.event(event, project=True)))
            sys.stdout.flush()
        elif isinstance(event, Output) and self._output:
            self._writers[event.stream].write(event.data)
            self._at_margin = event.data.endswith(b"\n")
        if isinstance(event, Accepted):
            self._under_way(0)
        elif isinstance(event, StepEnded) and not (event.exit_code or event.timed_out):
            self._under_way(event.step + 1)

    def _under_way(self, number: int) -> None:
        # The line is taken away by clearing it, which must not take a guest's unfinished line along.
        if number < len(self._steps) and self._at_margin:
            command = " ".join(self._steps[number].split())[:_SHOWN]
            self._line.show(f"step {number + 1} of {len(self._steps)}: {command}")

    def close(self) -> None:
        """The last line ends."""
        self._line.hide()
        for writer in self._writers.values():
            writer.close()
