"""Memory of the service under slow readers: `python -m tests.soak.slow_streams [STREAMS]` prints the figure (500 unless told).

Each stream is a run that fills both outputs to their caps, for a reader that takes 2 KiB now and then. One address may hold 256
connections, so the service is told to trust ours.
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.integration.service.stand import Stand
from tests.integration.service.wire import Line, drain, stream
from tests.support.runs import rss_mb

FULL = 65_536


def measure(streams: int, folder: Path) -> tuple[float, float, float]:
    """Resident MiB of the service process: before, at most while all stream, after the last was read to its end."""
    wide = {name: str(streams + 8) for name in ("SANDBOX_MAX_CONCURRENT", "SANDBOX_PER_CALLER_CONCURRENT")}
    with Stand(folder).service(more=wide | {"TEST_SLOTS": str(streams + 8)}) as served, ExitStack() as held:
        served.post(f"fill:{FULL}")
        process = served.running.process.pid
        before = most = rss_mb(process)
        url = served.running.url
        lines = [held.enter_context(stream(url, f"fill:{FULL}", buffer=4096)) for _ in range(streams)]
        end = time.monotonic() + 6
        while time.monotonic() < end:
            trickle(lines)
            most = max(most, rss_mb(process))
        drain(lines)
        assert all(line.events()[-1][0] == "result" for line in lines)
        return before, most, rss_mb(process)


def trickle(lines: list[Line]) -> None:
    """Take a little of each, so that nobody is cut as stalled."""
    for line in lines:
        line.read(2048)
    time.sleep(0.2)


if __name__ == "__main__":
    count = int([*sys.argv[1:], "500"][0])
    with tempfile.TemporaryDirectory() as place:
        start, peak, after = measure(count, Path(place))
    print(
        f"{count} slow streams of 2 x {FULL} bytes: {start:.0f} MiB before, {peak:.0f} at most, {after:.0f} after;",
        end=" ",
    )
    print(f"{(peak - start) / count * 1024:.0f} KiB each")
