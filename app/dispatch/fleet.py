"""The configured providers as the dispatcher sees them: a supervised process, and what was last known of its worker."""

from app.dispatch.supervisor import ProviderSupervisor
from plimsoll.contract.worker import Worker, WorkerInfo


class FleetMember:
    """One supervised provider. While its process is away, the latest word stays known, and `away` says that it is old."""

    def __init__(self, supervisor: ProviderSupervisor) -> None:
        self._supervisor = supervisor
        self._last: WorkerInfo | None = None

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self._supervisor.name

    @property
    def worker(self) -> Worker:
        """The link; the same object across restarts."""
        return self._supervisor.worker

    @property
    def latest(self) -> WorkerInfo | None:
        """What the worker said last, None before its first word."""
        self._last = self._supervisor.worker.latest or self._last
        return self._last

    @property
    def away(self) -> bool:
        """Whether no process is attached right now."""
        return self._supervisor.worker.latest is None

    @property
    def evidence_ended(self) -> bool:
        """Whether the first look at the wall ended, well or badly."""
        return self._supervisor.evidence_ended
