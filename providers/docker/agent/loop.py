"""The agent's one loop: frames in, guests started, their output and endings out."""

import _thread
import os
import select
import selectors
import signal
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from providers.docker.agent import files, guests, wire, workers
from providers.docker.agent.channel import Channel

_READ = 1 << 16


class Agent:
    """One container's agent: `ready`, one run, its result."""

    def __init__(self, source: int, sink: int, warm: list[workers.Worker]) -> None:
        self._source, self._sink, self._warm = source, sink, warm
        self._decoder = wire.Decoder()
        self._selector = selectors.DefaultSelector()
        self._files: dict[str, list[bytes]] = {}
        self._steps: deque[bytes] = deque()
        self._wanted: list[str] = []
        self._project = False
        self._guest: guests.Guest | None = None
        self._worker: workers.Worker | None = None
        self._step = 0
        self._begun = self._cancelled = False
        self._channel: Channel | None = None
        self._orders: dict[str, Callable[[dict[str, Any], bytes], None]] = {
            "ping": self._ping,
            "put": self._put,
            "step": self._add_step,
            "want": self._want,
            "calls": self._calls,
            "reply": self._reply,
            "run": self._run,
            "go": self._go,
            "cancel": self._cancel,
        }

    def serve(self) -> None:
        """Until the host is gone. Raises WireError, KeyError, TypeError when it talks nonsense: nothing can go on then."""
        _thread.start_new_thread(_end_with, (self._source,))
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._watch(self._source, self._hear)
        self._watch(woken, lambda: self._reap(woken))
        self._send({"t": "ready", "warm": [worker.language for worker in self._warm]})
        self._reap_now()
        while self._source in self._selector.get_map():
            for key, _ in self._selector.select():
                # An earlier one of this round may have closed it, and something else may have its number since.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()

    # --- what the host says ---------------------------------------------------------------------------------------

    def _hear(self) -> None:
        data = os.read(self._source, _READ * 16)
        if not data:
            self._selector.unregister(self._source)
        for header, body in self._decoder.feed(data):
            self._orders[header["t"]](header, body)

    def _ping(self, header: dict[str, Any], _body: bytes) -> None:
        self._send({"t": "pong", "n": header["n"]})

    def _put(self, header: dict[str, Any], body: bytes) -> None:
        self._files.setdefault(header["path"], []).append(body)

    def _add_step(self, _header: dict[str, Any], body: bytes) -> None:
        self._steps.append(body)

    def _want(self, header: dict[str, Any], _body: bytes) -> None:
        self._wanted.append(header["path"])

    def _calls(self, _header: dict[str, Any], _body: bytes) -> None:
        if self._begun or self._channel is not None:
            raise wire.WireError("calls of a run that has begun")
        self._channel = Channel(self._selector, self._send)

    def _reply(self, header: dict[str, Any], body: bytes) -> None:
        if self._channel is not None:
            self._channel.answered(header["n"], header["size"], body)

    def _run(self, header: dict[str, Any], body: bytes) -> None:
        worker = self._take(header["language"])
        if worker is None:
            self._send({"t": "unbegun"})
            return
        self._worker = worker
        self._follow(worker.guest)
        worker.give(body)
        self._watch(worker.channel.fileno(), lambda: self._listen(worker))

    def _listen(self, worker: workers.Worker) -> None:
        """The snippet begins, or is through, or its process ends without a word and is soon reaped."""
        if worker.hear() and worker.code is None:
            return
        self._selector.unregister(worker.channel.fileno())
        worker.channel.close()
        if worker.code is not None and self._guest is not None:
            self._guest = None
            self._answer(worker.guest, worker.code)
            for _ in guests.kill_all():
                pass  # it has nothing more to say, nor have its children

    def _go(self, _header: dict[str, Any], _body: bytes) -> None:
        self._project = True
        self._take(None)
        pid, _ = guests.helper(lambda _write: files.put_all(guests.WORKSPACE, self._files))
        status = guests.exit_code(os.waitpid(pid, 0)[1])
        self._files.clear()
        if status != files.DONE:
            detail = {files.DISK_FULL: "disk_full", files.PATH_REFUSED: "path_refused"}.get(status, "files")
            self._finish("setup_failed", detail)
        else:
            self._next_step()

    def _cancel(self, _header: dict[str, Any], _body: bytes) -> None:
        self._cancelled = True
        self._hang_up()
        self._reap_now(guests.kill_all())

    # --- guests ---------------------------------------------------------------------------------------------------

    def _take(self, language: str | None) -> workers.Worker | None:
        """Begin the one run: the warm worker for `language`, or one started now; the others are ended."""
        if self._begun:
            raise wire.WireError("a second run")
        self._begun, taken = True, None
        for worker in self._warm:
            if worker.language == language and taken is None:
                taken = worker
            else:
                workers.dismiss(worker)
        self._warm = []
        if taken is None and language is not None:
            taken = workers.started(language)
            if taken is not None and not taken.ready():
                taken = None
        return taken

    def _next_step(self) -> None:
        if not self._steps or self._cancelled:
            self._finish_project()
            return
        try:
            self._follow(guests.start(["/bin/bash", "-c", os.fsdecode(self._steps.popleft())]))
        except OSError:
            self._finish("runner_failed", "no_process")

    def _follow(self, guest: guests.Guest) -> None:
        self._guest = guest
        self._watch(guest.stdout, lambda: self._forward(guest.stdout, "stdout"))
        self._watch(guest.stderr, lambda: self._forward(guest.stderr, "stderr"))

    def _forward(self, descriptor: int, stream: str, most: int = _READ) -> None:
        data = self._read(descriptor, most)
        if data:
            self._send({"t": "out", "step": self._step, "stream": stream}, data)

    def _read(self, descriptor: int, most: int) -> bytes:
        """What is there; a pipe at its end is let go of."""
        try:
            data = os.read(descriptor, most)
        except BlockingIOError:
            return b""
        if not data:
            self._drop(descriptor)
        return data

    def _reap(self, woken: int) -> None:
        os.read(woken, _READ)
        self._reap_now()

    def _reap_now(self, more: Iterator[tuple[int, int]] | None = None) -> None:
        """Reap what has ended; when the run's own process is among it, the step is over."""
        for pid, status in more or guests.reap():
            if self._guest and pid == self._guest.pid:
                guest, self._guest = self._guest, None
                self._over(guest, guests.exit_code(status))
            else:
                # One that waited and was ended from outside: a run gets a new one, and nobody else's number is killed for it.
                self._warm = [worker for worker in self._warm if worker.guest.pid != pid]

    def _over(self, guest: guests.Guest, code: int) -> None:
        if not self._project:
            for _ in guests.kill_all():
                pass  # its children end with it
            self._answer(guest, code)
            return
        self._settle(guest.stdout, "stdout")
        self._settle(guest.stderr, "stderr")
        if code != 0 or not self._steps:
            self._hang_up()
        self._send({"t": "step", "step": self._step, "exit": code})
        self._step += 1
        if code != 0:
            self._steps.clear()
        self._next_step()

    def _answer(self, guest: guests.Guest, code: int) -> None:
        """The end of a snippet: what it has written, and its exit code. An interpreter's own end is none."""
        self._hang_up()
        if self._worker and not self._worker.begun and not self._worker.hear():
            self._send({"t": "unbegun"})
            return
        self._settle(guest.stdout, "stdout")
        self._settle(guest.stderr, "stderr")
        self._send({"t": "result", "exit": code})

    def _settle(self, descriptor: int, stream: str) -> None:
        """Send what the ended step has written; what its children write from now on belongs to no step and is thrown away."""
        waiting = guests.unread(descriptor) if self._open(descriptor) else 0
        while waiting > 0 and self._open(descriptor):
            before = min(waiting, _READ)
            self._forward(descriptor, stream, before)
            waiting -= before
        if self._open(descriptor):
            self._selector.modify(descriptor, selectors.EVENT_READ, lambda: self._read(descriptor, _READ))

    # --- the end --------------------------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        """The run is over, as far as calls go: the host hears of none from here on."""
        if self._channel is not None:
            self._channel.close()

    def _finish_project(self) -> None:
        for _ in guests.kill_all():
            pass  # nothing of the guest's may run while its files are read
        if self._cancelled or not self._wanted:
            self._finish("completed", "")
            return
        pid, read = guests.helper(lambda write: files.collect(guests.WORKSPACE, self._wanted, write))
        while data := os.read(read, _READ * 16):
            wire.send(self._sink, data)
        os.close(read)
        status = guests.exit_code(os.waitpid(pid, 0)[1])
        if status in {files.DONE, files.TRUNCATED}:
            self._finish("completed", "", truncated=status == files.TRUNCATED)
        else:
            self._finish("runner_failed", "artifacts")

    def _finish(self, outcome: str, detail: str, *, truncated: bool = False) -> None:
        self._hang_up()
        self._send({"t": "result", "outcome": outcome, "detail": detail, "truncated": truncated})

    def _send(self, header: dict[str, Any], body: bytes = b"") -> None:
        wire.send(self._sink, wire.encode(header, body))

    def _watch(self, descriptor: int, act: Callable[[], object]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, act)

    def _open(self, descriptor: int) -> bool:
        return descriptor in self._selector.get_map()

    def _drop(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)


def _end_with(source: int) -> None:
    """When the host is gone, be gone too: a guest may have found a way to make the loop wait."""
    watched = select.poll()
    watched.register(source, 0)  # its end is told without being asked for
    watched.poll()
    os._exit(1)
