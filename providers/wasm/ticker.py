"""The deadline thread: interrupts a run at its deadline or its cancel, within a tick, and a watched run now and then before.

Idle costs nothing: a ticker that has seen no run for a while sleeps until the next one. It compares clocks instead of counting
ticks, so ticks that come late do not add up. Start it after the last fork; a fork leaves it behind.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

TICK_SECONDS: Final = 0.005
_IDLE_TICKS: Final = 20


class Ticker:
    """Calls `interrupt` once every tick from the deadline of the armed run until it is disarmed, and before if asked to."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._deadline: int | None = None
        self._cancelled: Callable[[], bool] | None = None
        self._every = 0
        self._next = 0
        self._parked = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self._pid = 0

    @property
    def running(self) -> bool:
        """Whether there is a ticker thread in this process (a fork copies the object, not the thread)."""
        return self._pid == os.getpid()

    def start(self) -> None:
        if self.running:
            return
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop, name="wasm-ticker", daemon=True)
        self._thread.start()

    def arm(self, deadline_ns: int, every_ns: int = 0, cancelled: Callable[[], bool] | None = None) -> None:
        """Interrupt at `deadline_ns` on `time.monotonic_ns`; before it at least `every_ns` apart, never if that is 0.

        `cancelled` is asked at every tick until it is true: then it is as if the deadline had come. It must not wait or raise.
        The store's own deadline must be the next epoch.
        """
        with self._lock:
            self._deadline, self._every, self._cancelled = deadline_ns, every_ns, cancelled
            self._next = time.monotonic_ns() + every_ns if every_ns else deadline_ns
            if self._parked:
                self._parked = False
                self._wake.set()

    def disarm(self) -> None:
        """After this no interrupt of the armed run can reach a later one."""
        with self._lock:
            self._deadline = None

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        self._wake.set()
        if self._thread is not None and self.running:
            self._thread.join()
        self._pid = 0

    def _loop(self) -> None:
        idle = 0
        while not self._closing:
            idle = self._tick(idle)
            if self._parked:
                self._wake.wait()
                self._wake.clear()
            else:
                time.sleep(TICK_SECONDS)

    def _tick(self, idle: int) -> int:
        with self._lock:
            if self._deadline is None:
                self._parked = idle >= _IDLE_TICKS and not self._closing
                return 0 if self._parked else idle + 1
            now = time.monotonic_ns()
            if self._cancelled is not None and self._cancelled():
                self._deadline, self._cancelled = now, None
            if now >= self._next or now >= self._deadline:
                self._next = now + self._every
                self._interrupt()
            return 0
