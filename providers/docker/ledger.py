"""What a run has said so far, as the seam's steps: caps, step numbers and durations, all counted on the host. Pure.

Every step of a project has its own caps. A streamed run's output is given piece by piece, any other's when its step ends.
"""

from typing import Final

from plimsoll.contract.worker import Out, StepEnded
from providers.docker.frames import Output
from providers.seam import Meter, Stream

STREAMS: Final[tuple[Stream, ...]] = ("stdout", "stderr")


class Ledger:
    """One run's output and steps. `now` is a monotonic time in seconds, passed in."""

    def __init__(self, cap: int, now: float) -> None:
        """The first step, or the only one, begins at `now`."""
        self._cap = cap
        self._meter = Meter(cap)
        self._kept: dict[Stream, bytearray] = {stream: bytearray() for stream in STREAMS}
        self._began = now
        self._cut = False
        self.step = 0
        self.last_exit: int | None = None
        """Of the latest step that ended."""

    def begin(self, now: float) -> None:
        """Nothing of the first step can have run before `now`."""
        self._began = now

    def output(self, event: Output) -> bool:
        """Count and keep it; whether the step has flooded."""
        self._kept[event.stream] += self._meter.take(event.stream, event.data)
        return self._meter.flooded

    def cut(self) -> None:
        """Output of this step may have been lost with its sandbox."""
        self._cut = True

    def truncated(self, stream: Stream) -> bool:
        """Whether more came, or may have come, than is given."""
        return self._cut or self._meter.truncated(stream)

    def flush(self) -> list[Out]:
        """The output that is kept and was not given yet."""
        given = [
            Out(stream, bytes(self._kept[stream]), self.step) for stream in STREAMS if self._kept[stream]
        ]
        for stream in STREAMS:
            self._kept[stream].clear()
        return given

    def end_step(self, exit_code: int, now: float, *, timed_out: bool = False) -> list[Out | StepEnded]:
        """The step's last output and its end; the next begins now."""
        ended = StepEnded(
            self.step,
            exit_code,
            timed_out=timed_out,
            stdout_truncated=self.truncated("stdout"),
            stderr_truncated=self.truncated("stderr"),
            duration_ms=max(0, int((now - self._began) * 1000)),
        )
        given: list[Out | StepEnded] = [*self.flush(), ended]
        self.last_exit, self._began, self._meter, self._cut = exit_code, now, Meter(self._cap), False
        self.step += 1
        return given
