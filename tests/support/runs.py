"""Running things on a Worker in tests, and looking at the processes behind it."""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.contract.refusals import Refusal
from plimsoll.contract.requests import JavaScript, Kind, SoftwareRule
from plimsoll.contract.results import Artifact
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Accepted, Broken, Ended, Job, Out, Spec, StepEnded, Ticket, Worker

TENANT = "a" * 32


@dataclass
class Seen:
    """Everything one run said."""

    accepted: Accepted | None = None
    last: Ended | Broken | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    order: list[str] = field(default_factory=list)
    steps: list[StepEnded] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)

    @property
    def ended(self) -> Ended:
        assert isinstance(self.last, Ended), self.last
        return self.last

    @property
    def cause(self) -> str:
        assert isinstance(self.last, Broken), self.last
        return self.last.cause


def new_id() -> str:
    return os.urandom(16).hex()


def spec(
    *,
    run_id: str | None = None,
    tenant: str = TENANT,
    kind: Kind = Kind.JAVASCRIPT,
    floor: Tier | None = None,
    timeout_ms: int = 2_000,
    output_bytes: int = 65_536,
    software_rule: SoftwareRule | None = None,
) -> Spec:
    return Spec(run_id or new_id(), tenant, kind, floor, timeout_ms, output_bytes, software_rule)


def job(of: Spec, code: str) -> Job:
    return Job(of.run_id, JavaScript(code), of.timeout_ms, of.output_bytes)


async def reserved(worker: Worker, wanted: Spec) -> Ticket:
    ticket = await worker.reserve(wanted)
    assert isinstance(ticket, Ticket), ticket
    return ticket


async def refused(worker: Worker, wanted: Spec) -> Refusal:
    refusal = await worker.reserve(wanted)
    assert isinstance(refusal, Refusal), refusal
    return refusal


async def follow(worker: Worker, ticket: Ticket, what: Job, seen: Seen | None = None) -> Seen:
    """Start it and take everything it says. Raises what `start` raises."""
    seen = seen or Seen()
    async for event in worker.start(ticket, what):
        seen.order.append(type(event).__name__)
        match event:
            case Accepted():
                seen.accepted = event
            case Out(stream="stdout", data=data):
                seen.stdout += data
            case Out(data=data):
                seen.stderr += data
            case StepEnded():
                seen.steps.append(event)
            case Artifact():
                seen.artifacts.append(event)
            case Ended() | Broken():
                seen.last = event
    return seen


async def run(worker: Worker, code: str, *, tenant: str = TENANT, timeout_ms: int = 2_000) -> Seen:
    """Reserve, start, follow."""
    wanted = spec(tenant=tenant, timeout_ms=timeout_ms)
    return await follow(worker, await reserved(worker, wanted), job(wanted, code))


# --- processes ------------------------------------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    """The direct children of a process, oldest first."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid: int) -> bool:
    """Whether the process is there, with any of its threads: one that ends later holds open what all of them share."""
    try:
        states = [Path(f"{task}/stat").read_text().rpartition(")")[2].split()[0] for task in _tasks(pid)]
    except OSError:
        return alive(pid) if _tasks(pid) else False
    return any(state not in "ZX" for state in states)


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    return [pid, *(each for child in children(pid) for each in family(child))]


def environment(pid: int) -> bytes:
    """What a process was given when it was exec'd."""
    return Path(f"/proc/{pid}/environ").read_bytes()


def descriptors(pid: int) -> dict[str, str]:
    """What a process has open, by number. Needs root for one that is not dumpable."""
    return {link.name: str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}


def rss_mb(pid: int) -> float:
    """Resident memory of a process, MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


_MEMFD = "/memfd:"


def memory_holds(pid: int, needle: bytes) -> bool:
    """Whether any readable page of a process holds `needle`. Needs root.

    Of memory files that it shares only what is there is read: another look would make pages, and they are charged to it.
    """
    if any(_file_holds(path, needle) for path in _memory_files(pid)):
        return True
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            span, mode, *_ = line.split()
            start, end = (int(word, 16) for word in span.split("-"))
            if (
                "r" not in mode
                or end - start > 1 << 30
                or "[v" in line
                or (mode[3] == "s" and _MEMFD in line)
            ):
                continue
            try:
                memory.seek(start)
                if needle in memory.read(end - start):
                    return True
            except OSError:
                continue
    return False


def _memory_files(pid: int) -> list[Path]:
    found: dict[int, Path] = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if _MEMFD in str(link.readlink()):
                found[link.stat().st_ino] = link
    return list(found.values())


def _file_holds(path: Path, needle: bytes) -> bool:
    """Of a file with holes, piece by piece of what is no hole."""
    with path.open("rb", buffering=0) as file:
        at = 0
        while True:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing behind here
                return False
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            if needle in os.pread(file.fileno(), at - start, start):
                return True
