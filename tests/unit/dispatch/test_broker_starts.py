"""What is learned of one start of the broker ends that start and its leases, and never the next."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import cast

import pytest
from typing_extensions import override

from app.dispatch.broker import BrokerProcess, BrokerStart, BrokerSupervisor
from app.dispatch.brokerlink import MISSES, BrokerDown, BrokerLink
from app.dispatch.leases import Grants, Held
from app.store.values import StoredGrant
from plimsoll.contract.leases import Closed, Registered, Registration
from plimsoll.contract.profiles import CredentialTerms, CredentialType, Profile
from plimsoll.contract.refusals import Refused
from plimsoll.contract.worker import Lease
from tests.support.fakes import CALLER, FakeBroker, FakeProfiles

PROFILE = Profile(
    "hr-read",
    "https://hr.example.com",
    ("GET /v1/x",),
    (CALLER.name,),
    CredentialTerms(CredentialType.STATIC),
)
GRANT = StoredGrant(PROFILE, b"box")


class Process(BrokerProcess):
    """A process that is only noted to be killed."""

    killed = 0

    @override
    def kill(self) -> None:
        self.killed += 1


@dataclass
class Starts:
    """A supervisor without processes: `again` is the broker's end and its next start."""

    listening: socket.socket
    supervisor: BrokerSupervisor = field(init=False)

    def __post_init__(self) -> None:
        self.supervisor = BrokerSupervisor(self._process())
        self.supervisor.serving.set()

    def _process(self) -> Process:
        return Process({}, self.listening, None, cast("subprocess.Popen[bytes]", None), self.listening)

    @property
    def present(self) -> BrokerStart:
        return self.supervisor.start

    def again(self, *, serving: bool = True) -> None:
        self.supervisor.serving.clear()
        self.supervisor.start = BrokerStart(self.supervisor, self._process())
        if serving:
            self.supervisor.serving.set()


def killed(start: BrokerStart) -> int:
    return cast("Process", start.process).killed


@pytest.fixture
def starts() -> Iterator[Starts]:
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        yield Starts(listening)


class Scripted(BrokerLink):
    """A link whose questions are answered by a script, and which ends behind it."""

    def __init__(self, *script: bool, starts: Starts, again_before: frozenset[int] = frozenset()) -> None:
        super().__init__("http://nowhere", "control")
        self.script, self.starts, self.again_before, self.questions = script, starts, again_before, 0

    @override
    async def answers(self) -> bool:
        if self.questions == len(self.script):
            raise asyncio.CancelledError
        if self.questions in self.again_before:
            self.starts.again()
        self.questions += 1
        return self.script[self.questions - 1]

    async def watched(self) -> None:
        with pytest.raises(asyncio.CancelledError):
            await self.watch(lambda: self.starts.present, ping_s=0)


async def test_a_start_that_stays_silent_is_ended(starts: Starts) -> None:
    await Scripted(*[False] * MISSES, starts=starts).watched()
    assert killed(starts.present) == 1
    assert not starts.present.present()


async def test_two_questions_without_an_answer_cost_nothing(starts: Starts) -> None:
    await Scripted(False, False, starts=starts).watched()
    assert starts.present.present()


async def test_an_answer_makes_up_for_the_misses_before_it(starts: Starts) -> None:
    few = [False] * (MISSES - 1)
    await Scripted(*few, True, *few, starts=starts).watched()
    assert starts.present.present()


async def test_misses_of_a_start_that_is_gone_do_not_count_for_the_next(starts: Starts) -> None:
    few = [False] * (MISSES - 1)
    # The last question was for the first start, and the second came meanwhile.
    await Scripted(*few, False, *few, starts=starts, again_before=frozenset({MISSES - 1})).watched()
    assert (starts.present.present(), killed(starts.present)) == (True, 0)


async def test_a_start_that_does_not_serve_yet_is_left_alone(starts: Starts) -> None:
    starts.again(serving=False)
    await Scripted(*[False] * 3 * MISSES, starts=starts).watched()
    assert killed(starts.present) == 0


class Down(FakeBroker):
    """Whoever asks it to close a lease hears nothing, after its next start if `meanwhile` makes one."""

    starts: Starts | None = None

    @override
    async def close(self, run_id: str) -> Closed:
        if self.starts:
            self.starts.again()
        raise BrokerDown("down")


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_a_lease_that_cannot_be_closed_ends_its_own_start_alone(
    starts: Starts, *, meanwhile: bool
) -> None:
    broker, mine = Down(), starts.present
    broker.starts = starts if meanwhile else None
    await Held("a" * 32, "hr-read", Lease("unix:///x", "w", "s"), broker, mine).close()
    assert (starts.present is mine, starts.present.present()) == (not meanwhile, meanwhile)
    assert killed(starts.present) == (not meanwhile)


async def test_a_lease_of_a_start_that_is_gone_is_not_closed_at_the_next(starts: Starts) -> None:
    broker, mine = FakeBroker(), starts.present
    starts.again()
    await Held("a" * 32, "hr-read", Lease("unix:///x", "w", "s"), broker, mine).close()
    assert broker.log == []
    assert starts.present.present()


async def test_a_lease_that_another_start_gave_is_closed_and_refused(starts: Starts) -> None:
    class Restarted(FakeBroker):
        @override
        async def register(self, asked: Registration) -> Registered:
            starts.again()
            return await super().register(asked)

    broker = Restarted()
    grants = Grants(FakeProfiles(), broker, start=lambda: starts.present)
    with pytest.raises(Refused):
        await grants.lease(GRANT, CALLER, "a" * 32, "wasm/1", 30.0)
    assert (broker.log, broker.open) == (["register", "close"], {})
    assert starts.present.present()
