"""The host between a spent ticket and the hand-over of the code: what is not so any more starts nothing, and that is proven."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, fields, replace

import pytest

from app.dispatch.link import WorkerLink
from plimsoll.contract.record import RunRecord
from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Environment, Health, Out, Resources, TicketRefused
from providers.host import server
from providers.host.table import Promise
from providers.seam import Begun, Findings, Finish, NotStarted, Order, Step, nothing_sent
from tests.support.hosted import Hosted, hosted
from tests.support.runs import Seen, follow, job, reserved, spec

_SANDBOX = "fake:" + "1" * 32


@dataclass
class Waiting:
    """Every run waits for a sandbox until `comes`; `sent` are the runs whose code left."""

    environments: Mapping[Kind, Environment] = field(
        default_factory=lambda: {
            Kind.JAVASCRIPT: Environment("image:1", "software:1", 300_000, ("javascript",))
        }
    )
    policy: str = "policy:1"
    resources: Resources = field(default_factory=lambda: Resources(64))
    tier: Tier = Tier.CONTAINER
    comes: asyncio.Event = field(default_factory=asyncio.Event)
    waits: asyncio.Event = field(default_factory=asyncio.Event)
    breaks: Exception | None = None
    sent: list[str] = field(default_factory=list)
    drop: Callable[[str], None] = print

    async def open(self, dropped: Callable[[str], None]) -> None:
        self.drop = dropped

    async def collect(self) -> Findings:
        return Findings(self.tier)

    async def run(self, order: Order) -> AsyncIterator[Step]:
        with nothing_sent():
            self.waits.set()
            await self.comes.wait()
            if self.breaks is not None:
                raise self.breaks
            order.confirm()
        self.sent.append(order.run_id)
        yield Begun(_SANDBOX)
        yield Out("stdout", b"42\n")
        yield Finish(0)

    def cancel(self, run_id: str) -> None:
        raise AssertionError(run_id)

    async def close(self) -> None:
        pass


@pytest.fixture
async def one() -> AsyncIterator[tuple[Hosted, Waiting]]:
    provider = Waiting()
    async with hosted(provider, "docker") as made:
        yield made, provider


async def started(
    made: Hosted, provider: Waiting, floor: Tier | None = None
) -> tuple[str, "asyncio.Task[Seen]"]:
    """A run that waits for its sandbox."""
    wanted = spec(floor=floor)
    ticket = await reserved(made.worker, wanted)
    task = asyncio.create_task(follow(made.worker, ticket, job(wanted, "6 * 7")))
    await provider.waits.wait()
    return wanted.run_id, task


async def is_proven(worker: WorkerLink, run_id: str) -> bool:
    return (await worker.query(run_id, void=False)).state == "void"


async def test_a_run_whose_sandbox_comes_runs(one: tuple[Hosted, Waiting]) -> None:
    made, provider = one
    run_id, task = await started(made, provider, Tier.CONTAINER)
    provider.comes.set()
    seen = await task
    assert (seen.stdout, seen.ended.tier, provider.sent) == (b"42\n", Tier.CONTAINER, [run_id])


@pytest.mark.parametrize(("floor", "cause"), [(None, "unavailable"), (Tier.CONTAINER, "isolation")])
async def test_a_wall_that_is_lost_while_a_run_waits_starts_nothing(
    one: tuple[Hosted, Waiting], floor: Tier | None, cause: str
) -> None:
    made, provider = one
    run_id, task = await started(made, provider, floor)
    provider.drop("wall_changed")
    provider.comes.set()
    with pytest.raises(TicketRefused, match=cause):
        await task
    assert provider.sent == []
    assert await is_proven(made.worker, run_id)


async def test_a_run_has_the_wall_of_the_moment_in_which_its_code_left(
    one: tuple[Hosted, Waiting],
) -> None:
    """A wall that was lost and is proven again counts: nothing ran meanwhile."""
    made, provider = one
    _, task = await started(made, provider, Tier.CONTAINER)
    provider.drop("wall_changed")
    await made.until(lambda: made.wall.health is Health.SERVING)
    provider.comes.set()
    assert (await task).ended.tier is Tier.CONTAINER


@pytest.mark.parametrize("failure", [ValueError("x"), OSError(), KeyError("x"), NotStarted()])
async def test_whatever_breaks_before_the_code_leaves_starts_nothing(
    one: tuple[Hosted, Waiting], failure: Exception
) -> None:
    made, provider = one
    provider.breaks = failure
    run_id, task = await started(made, provider)
    provider.comes.set()
    with pytest.raises(TicketRefused, match="not_started"):
        await task
    assert await is_proven(made.worker, run_id)


async def test_a_sandbox_that_does_not_come_in_time_starts_nothing(
    one: tuple[Hosted, Waiting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BEGIN_S", 0.05)
    made, provider = one
    run_id, task = await started(made, provider)
    with pytest.raises(TicketRefused, match="not_started"):
        await task
    assert await is_proven(made.worker, run_id)


async def test_a_provider_that_ends_tells_of_runs_that_wait(one: tuple[Hosted, Waiting]) -> None:
    """Also when it ends because it lost what only a fresh process can have."""
    made, provider = one
    _, task = await started(made, provider)
    for each in made.host._runs:
        each.cancel()
    with pytest.raises(TicketRefused, match="not_started"):
        await task


def another_image(provider: Waiting) -> None:
    provider.environments = {
        kind: replace(each, identity="image:2") for kind, each in provider.environments.items()
    }


def other_software(provider: Waiting) -> None:
    provider.environments = {
        kind: replace(each, software_identity="software:2") for kind, each in provider.environments.items()
    }


def other_rules(provider: Waiting) -> None:
    provider.policy = "policy:2"


def nothing_for_it(provider: Waiting) -> None:
    provider.environments = {}


CHANGES = [another_image, other_software, other_rules, nothing_for_it]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_worker_that_is_not_what_the_ticket_says_starts_nothing(
    one: tuple[Hosted, Waiting], change: Callable[[Waiting], None]
) -> None:
    """Whatever of it a record would state."""
    made, provider = one
    wanted = spec()
    ticket = await reserved(made.worker, wanted)
    change(provider)
    with pytest.raises(TicketRefused, match="changed"):
        await follow(made.worker, ticket, job(wanted, "6 * 7"))
    assert not provider.waits.is_set()
    assert await is_proven(made.worker, wanted.run_id)


@pytest.mark.parametrize("change", CHANGES)
async def test_one_that_is_another_by_the_time_the_sandbox_is_there_starts_nothing(
    one: tuple[Hosted, Waiting], change: Callable[[Waiting], None]
) -> None:
    made, provider = one
    run_id, task = await started(made, provider)
    change(provider)
    provider.comes.set()
    with pytest.raises(TicketRefused, match="changed"):
        await task
    assert provider.sent == []
    assert await is_proven(made.worker, run_id)


def test_all_that_a_record_states_of_the_worker_is_promised_or_told_with_the_run() -> None:
    """Whoever adds a field to records must decide here how it is kept true."""
    of_the_request = {
        "version",
        "request_sha256",
        "software_rule_id",
        "session",
        "sequence",
        "previous_sha256",
    }
    of_the_run = {
        "result_sha256",
        "unanswered",
        "instance",
        "started_unix_ms",
        "ended_unix_ms",
        "record_sha256",
    }
    of_the_wall = {"provider", "isolation"}
    """The one is a constant of the process, the other the weakest there was."""
    stated = {each.name for each in fields(RunRecord)} - of_the_request - of_the_run - of_the_wall
    assert stated == {each.name for each in fields(Promise)}
