"""`Client`: the blocking shell."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx2
from typing_extensions import override

from plimsoll.client import core
from plimsoll.client.answers import Received, check_head
from plimsoll.client.core import Core, Prepared, project, snippet
from plimsoll.client.errors import PlimsollError
from plimsoll.client.exchange import FAILURES, Collected, failure, head_of, http_request, unix_ms
from plimsoll.client.handles import RunHandle, until_final
from plimsoll.client.inputs import Files
from plimsoll.client.kept import Patience
from plimsoll.client.options import ClientOptions, options
from plimsoll.client.progress import Progress
from plimsoll.client.requests import RunOptions
from plimsoll.client.results import ProjectRun, Run
from plimsoll.client.streams import RunStream
from plimsoll.client.transport import DEADLINE, SyncTransport
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import JavaScript, Python
from plimsoll.contract.rest import DescribeBody, EvidenceBody, GrantBody, RunPage, RunView

T = TypeVar("T")


class Client:
    """One service, spoken to over checked exchanges. Safe to share between threads; close it, or use it in `with`.

    `base_url` and `token` default to PLIMSOLL_URL and PLIMSOLL_TOKEN; the other options are `ClientOptions`. Raises
    InvalidOption.

    Nothing is ever sent twice: no method retries, and errors say by `not_dispatched` whether a caller safely may.
    """

    def __init__(
        self, base_url: str | None = None, token: str | None = None, **how: Unpack[ClientOptions]
    ) -> None:
        self._options = options(base_url, token, **how)
        self._core = Core(self._options)
        self._transport: httpx2.BaseTransport = SyncTransport(self._options)

    @override
    def __repr__(self) -> str:
        return f"Client({self._options.origin!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Runs that are under way elsewhere fail without a mark."""
        self._transport.close()

    def run_javascript(self, code: str, **how: Unpack[RunOptions]) -> Run:
        """Run JavaScript once and return its checked result; a non-zero exit is a result, not an error.

        `floor` is the weakest wall accepted (`process`, `container`, `kernel`, `vm`; None: any), `timeout` the program's
        own seconds. Under an `idempotency_key` it runs at most once however often this is called; while that run has no final
        word the error is RunPending. Raises Refusal's kinds, TransportError's and DataLoss's.
        """
        return self._send(self._core.run(snippet(JavaScript(code), **how)))

    def run_python(self, code: str, **how: Unpack[RunOptions]) -> Run:
        """Run Python once; as `run_javascript`. A service without Python answers Unsupported, marked."""
        return self._send(self._core.run(snippet(Python(code), **how)))

    def start_javascript(self, code: str, **how: Unpack[RunOptions]) -> RunHandle[Run]:
        """Start JavaScript and return at once; options and errors as `run_javascript`. The handle's `wait` gives the run."""
        return RunHandle(
            self._send(self._core.start(snippet(JavaScript(code), **how))), self._core, self._send
        )

    def start_python(self, code: str, **how: Unpack[RunOptions]) -> RunHandle[Run]:
        """As `start_javascript`."""
        return RunHandle(self._send(self._core.start(snippet(Python(code), **how))), self._core, self._send)

    def stream_javascript(self, code: str, **how: Unpack[RunOptions]) -> RunStream[Run]:
        """Run JavaScript and see its output as it comes: to be used in `with`, which sends it. Options as `run_javascript`.

        Raises, beside its errors, StreamCut when the stream ends without a result.
        """
        return RunStream(self._transport, self._options, self._core.stream(snippet(JavaScript(code), **how)))

    def stream_python(self, code: str, **how: Unpack[RunOptions]) -> RunStream[Run]:
        """As `stream_javascript`."""
        return RunStream(self._transport, self._options, self._core.stream(snippet(Python(code), **how)))

    def run_project(
        self, files: Files, steps: Sequence[str], artifacts: Sequence[str] = (), **how: Unpack[RunOptions]
    ) -> ProjectRun:
        """Run shell `steps` in order over `files`, up to the first that fails, and bring the `artifacts` back.

        `files` maps relative paths to their content: text, bytes, or a `pathlib.Path` of a file here that is read now. What a
        step printed, how it ended and the artifacts are in the result. Options and errors as `run_javascript`.
        """
        return self._send(self._core.run(project(files, steps, artifacts, **how)))

    def start_project(
        self, files: Files, steps: Sequence[str], artifacts: Sequence[str] = (), **how: Unpack[RunOptions]
    ) -> RunHandle[ProjectRun]:
        """Start a project and return at once; as `run_project` and `start_javascript`."""
        started = self._send(self._core.start(project(files, steps, artifacts, **how)))
        return RunHandle(started, self._core, self._send)

    def stream_project(
        self, files: Files, steps: Sequence[str], artifacts: Sequence[str] = (), **how: Unpack[RunOptions]
    ) -> RunStream[ProjectRun]:
        """Run a project and see its output and steps as they come; as `run_project` and `stream_javascript`."""
        streaming = self._core.stream(project(files, steps, artifacts, **how))
        return RunStream(self._transport, self._options, streaming)

    def cancel(self, run_id: str) -> str:
        """Ask a run to end: `cancelled`, `already_finished`, `not_dispatched`, `may_have_run`, or `requested`."""
        return self._send(self._core.cancel(run_id))

    def describe(self) -> DescribeBody:
        """What the service serves and behind which wall. Raises ProtocolMismatch."""
        return self._send(self._core.describe())

    def grants(self) -> list[GrantBody]:
        """The profiles that a request may name as `grant_profile`: names, routes, budgets; never an address or a secret."""
        return self._send(self._core.grants())

    def get_run(self, run_id: str, *, wait: int = 0) -> RunView:
        """One run as it stands, after at most `wait` (0 to 60) seconds. Raises NotFound."""
        return self._send(self._core.get_run(run_id, wait))

    def wait_run(self, run_id: str, timeout: float | None = None) -> RunView:
        """A run's final state, waited for at most `timeout` seconds (the client's deadline); errors as `RunHandle.wait`.

        For a run whose handle is gone: the answer is checked against its own record, not against what was sent.
        """
        patience = Patience(timeout, self._options.deadline_s, time.monotonic())
        return until_final(run_id, lambda wait: self._send(self._core.settled(run_id, wait)), patience)

    def record(self, run_id: str) -> RunRecord:
        """A finished run's record, its own digest recomputed. Raises NotFound."""
        return self._send(self._core.record(run_id))

    def runs(self, *, limit: int | None = None, cursor: str | None = None) -> RunPage:
        """A page of the caller's runs, newest first; `cursor` is the page before's `next_cursor`."""
        return self._send(self._core.runs(limit, cursor))

    def evidence(self, sha256: str) -> EvidenceBody:
        """The facts behind an `evidence_sha256`, the digest recomputed. Raises NotFound, EvidenceMismatch."""
        return self._send(self._core.evidence(sha256))

    def _send(self, prepared: Prepared[T]) -> T:
        progress = Progress()
        token = DEADLINE.set(time.monotonic() + self._options.deadline_s)
        try:
            received = self._exchange(prepared, progress)
        except PlimsollError as error:
            error.request_id = prepared.request_id
            raise
        except FAILURES as error:
            raise failure(error, progress, prepared, self._options) from None
        finally:
            DEADLINE.reset(token)
        return core.check(prepared, received)

    def _exchange(self, prepared: Prepared[Any], progress: Progress) -> Received:
        request = http_request(prepared, self._options, lambda name, _: progress.event(name))
        sent = unix_ms()
        progress.handed_over()
        response = self._transport.handle_request(request)
        try:
            head, collected = head_of(response), Collected()
            check_head(head, prepared.statuses)
            for part in response.iter_raw():
                collected.add(part)
        finally:
            response.close()
        return Received(head, collected.body(), sent, unix_ms())
