"""The link against a host that says what a test wants: which error proves that nothing ran, and which does not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from app.dispatch import channel as channel_module
from app.dispatch.link import WorkerLink
from plimsoll.contract import codec, frames
from plimsoll.contract.refusals import Code, Reason, Refusal
from plimsoll.contract.requests import JavaScript, Kind
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import (
    Accepted,
    Broken,
    Ended,
    Environment,
    Event,
    Health,
    Job,
    NotSent,
    Out,
    Resources,
    RunState,
    Spec,
    Ticket,
    TicketRefused,
    WorkerInfo,
    WorkerLost,
    WorkerSilent,
)

RUN = "a" * 32
BOOT = "b" * 32
INFO = WorkerInfo(
    boot_id=BOOT,
    provider="fake",
    tier=Tier.PROCESS,
    health=Health.SERVING,
    facts=(),
    evidence_sha256="c" * 64,
    checked_unix_ms=1,
    slots=4,
    free=4,
    environments={Kind.JAVASCRIPT: Environment("e", "s", 1000, ("javascript",))},
    policy="p",
    resources=Resources(64),
)
TICKET = Ticket(RUN, "d" * 32, BOOT, "fake", Tier.PROCESS, None, "c" * 64, "e", "s", "p")
SPEC = Spec(RUN, "t", Kind.JAVASCRIPT, None, 100, 1_000)
JOB = Job(RUN, JavaScript("1"), 100, 1_000)
ACCEPTED = Accepted("fake:1", Tier.PROCESS, "c" * 64, 1)
ENDED = Ended(0, tier=Tier.PROCESS)


class Host:
    """The other end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.setblocking(False)
        self._decoder = frames.Decoder()
        self._ready: list[frames.Frame] = []

    async def read(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        while not self._ready:
            data = await asyncio.wait_for(loop.sock_recv(self.sock, 1 << 16), 2)
            assert data, "the link closed"
            self._ready += self._decoder.feed(data)
        return self._ready.pop(0)[0]

    def send(self, header: dict[str, Any], value: object = None, body: bytes = b"") -> None:
        self.sock.sendall(frames.encode(header, body if value is None else codec.dumps(value)))

    def event(self, number: int, shape: str, value: object = None, **more: Any) -> None:
        self.send({"op": "event", "n": number, "shape": shape, **more}, value)

    def close(self) -> None:
        self.sock.close()


@pytest.fixture
async def ends() -> AsyncIterator[tuple[WorkerLink, Host]]:
    ours, theirs = socket.socketpair()
    link, host = WorkerLink(rpc_s=0.2, accept_s=0.2, grace_s=0.1), Host(theirs)
    link.attach(ours)
    host.send({"op": "info"}, INFO)
    while link.latest is None:
        await asyncio.sleep(0)
    yield link, host
    link.detach()
    host.close()


async def all_of(link: WorkerLink, ticket: Ticket = TICKET) -> list[Event]:
    return [event async for event in link.start(ticket, JOB)]


async def playing(
    ends: tuple[WorkerLink, Host], *events: tuple[str, object], then_close: bool = False
) -> list[Event]:
    """Start a run and answer it with these events."""
    link, host = ends
    task = asyncio.create_task(all_of(link))
    number = (await host.read())["n"]
    for shape, value in events:
        if shape == "out":
            header = {"op": "event", "n": number, "shape": "out", "stream": "stdout", "step": 0}
            host.send(header, body=value)  # type: ignore[arg-type]
        elif shape == "ticket_refused":
            host.event(number, shape, cause=value)
        else:
            host.event(number, shape, value)
    if then_close:
        host.close()
    return await task


async def test_it_knows_what_the_host_pushes(ends: tuple[WorkerLink, Host]) -> None:
    link, host = ends
    assert await link.info() == INFO
    host.send({"op": "info"}, replace(INFO, tier=Tier.NONE, health=Health.REFUSING))
    await asyncio.sleep(0.01)
    assert (await link.info()).health is Health.REFUSING


@pytest.mark.parametrize(
    ("answer", "shape"), [(TICKET, "ticket"), (Refusal(Code.CAPACITY, "full", Reason.CAPACITY), "refusal")]
)
async def test_a_reservation_is_a_ticket_or_a_refusal(
    ends: tuple[WorkerLink, Host], answer: object, shape: str
) -> None:
    link, host = ends
    task = asyncio.create_task(link.reserve(SPEC))
    header = await host.read()
    host.send({"op": "answer", "n": header["n"], "shape": shape, "free": 3}, answer)
    assert (header["op"], await task) == ("reserve", answer)
    assert (await link.info()).free == 3


async def test_answers_find_their_questions_in_any_order(ends: tuple[WorkerLink, Host]) -> None:
    link, host = ends
    tasks = [asyncio.create_task(link.query(f"{n:032x}", void=False)) for n in range(3)]
    asked = [await host.read() for _ in range(3)]
    for header in reversed(asked):
        host.send(
            {"op": "answer", "n": header["n"], "shape": "state"}, RunState(header["run"], BOOT, "unknown")
        )
    assert [(await task).run_id for task in tasks] == [f"{n:032x}" for n in range(3)]


async def test_a_runs_events_come_in_order(ends: tuple[WorkerLink, Host]) -> None:
    seen = await playing(ends, ("accepted", ACCEPTED), ("out", b"\xff\x00"), ("ended", ENDED))
    assert seen == [ACCEPTED, Out("stdout", b"\xff\x00"), ENDED]


async def test_a_run_that_broke_says_so(ends: tuple[WorkerLink, Host]) -> None:
    assert await playing(ends, ("broken", Broken("x"))) == [Broken("x")]
    assert await playing(ends, ("accepted", ACCEPTED), ("broken", Broken("x"))) == [ACCEPTED, Broken("x")]


# --- what proves that nothing ran, and what does not ----------------------------------------------------------------------


async def test_without_a_process_nothing_is_sent() -> None:
    with pytest.raises(NotSent):
        await all_of(WorkerLink())


async def test_a_ticket_of_an_earlier_boot_is_not_sent(ends: tuple[WorkerLink, Host]) -> None:
    with pytest.raises(NotSent):
        await all_of(ends[0], replace(TICKET, boot_id="0" * 32))


async def test_a_refused_ticket_is_the_hosts_first_word(ends: tuple[WorkerLink, Host]) -> None:
    with pytest.raises(TicketRefused, match="expired"):
        await playing(ends, ("ticket_refused", "expired"))


async def test_a_refusal_after_acceptance_proves_nothing(ends: tuple[WorkerLink, Host]) -> None:
    with pytest.raises(WorkerLost):
        await playing(ends, ("accepted", ACCEPTED), ("ticket_refused", "expired"))


@pytest.mark.parametrize("events", [(), (("accepted", ACCEPTED),), (("accepted", ACCEPTED), ("out", b"x"))])
async def test_an_end_of_file_after_the_start_proves_nothing(
    ends: tuple[WorkerLink, Host], events: tuple[tuple[str, object], ...]
) -> None:
    with pytest.raises(WorkerLost):
        await playing(ends, *events, then_close=True)


async def test_a_frame_that_never_left_our_buffer_is_not_sent(ends: tuple[WorkerLink, Host]) -> None:
    link, host = ends
    stuffing = asyncio.create_task(all_of(link))
    await host.read()
    big = replace(JOB, payload=JavaScript("x" * 8_000_000))

    async def start_big() -> None:
        async for _ in link.start(TICKET, big):
            pass

    first, second = asyncio.create_task(start_big()), asyncio.create_task(all_of(link))
    await asyncio.sleep(0.05)
    host.close()
    with pytest.raises(WorkerLost):  # some of it left
        await first
    with pytest.raises(NotSent):  # it waited behind the other
        await second
    with pytest.raises(WorkerLost):
        await stuffing


async def test_a_full_buffer_refuses_the_whole_frame(
    ends: tuple[WorkerLink, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "MAX_QUEUED", 10)
    with pytest.raises(NotSent):
        await all_of(ends[0])
    with pytest.raises(WorkerLost):
        await ends[0].query(RUN, void=True)


# --- the moment of the handover -------------------------------------------------------------------------------------------


async def test_the_code_is_handed_over_by_the_call_itself(ends: tuple[WorkerLink, Host]) -> None:
    link, host = ends
    events = link.start(TICKET, JOB)
    assert (await host.read())["op"] == "start"  # and nobody has asked for an event yet
    host.event(1, "accepted", ACCEPTED)
    assert await anext(events) == ACCEPTED


def test_without_a_process_the_call_itself_says_so() -> None:
    with pytest.raises(NotSent):
        WorkerLink().start(TICKET, JOB)


async def test_a_full_buffer_is_said_by_the_call_itself(
    ends: tuple[WorkerLink, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "MAX_QUEUED", 10)
    with pytest.raises(NotSent):
        ends[0].start(TICKET, JOB)


async def test_a_loss_between_the_call_and_the_first_event_proves_nothing(
    ends: tuple[WorkerLink, Host],
) -> None:
    link, host = ends
    events = link.start(TICKET, JOB)
    host.close()
    await asyncio.sleep(0.01)
    with pytest.raises(WorkerLost):
        await anext(events)


async def test_nothing_is_kept_for_a_run_that_nobody_follows(ends: tuple[WorkerLink, Host]) -> None:
    link, host = ends
    link.start(TICKET, JOB)  # never iterated
    assert dict(link._runs) == {}
    events = link.start(TICKET, JOB)
    host.event(2, "accepted", ACCEPTED)
    await anext(events)
    assert list(link._runs) == [2]
    await events.aclose()  # type: ignore[attr-defined]
    del events
    assert dict(link._runs) == {}
    host.event(1, "ended", ENDED)  # for nobody
    host.event(2, "ended", ENDED)
    await asyncio.sleep(0.01)
    assert link.latest


async def test_whether_it_still_answers(ends: tuple[WorkerLink, Host]) -> None:
    link, host = ends
    task = asyncio.create_task(link.answers())
    host.send({"op": "answer", "n": (await host.read())["n"], "shape": "none"})
    assert await task
    assert not await link.answers()
    assert await WorkerLink().answers()  # nobody is there, so nobody need


# --- silence and nonsense -------------------------------------------------------------------------------------------------


async def test_silence_after_the_start_is_lost_in_time(ends: tuple[WorkerLink, Host]) -> None:
    with pytest.raises(WorkerSilent, match="silent"):
        await playing(ends)


async def test_a_runs_own_time_begins_when_it_is_accepted(ends: tuple[WorkerLink, Host]) -> None:
    """Its timeout and the grace, 200 ms, would be over before it is accepted, if they were counted from the start."""
    link, host = ends
    link._accept_s = 20
    task = asyncio.create_task(all_of(link))
    number = (await host.read())["n"]
    await asyncio.sleep(0.4)
    assert not task.done()
    host.event(number, "accepted", ACCEPTED)
    host.event(number, "ended", ENDED)
    assert await task == [ACCEPTED, ENDED]


async def test_silence_after_acceptance_is_lost_after_the_runs_timeout(ends: tuple[WorkerLink, Host]) -> None:
    before = asyncio.get_running_loop().time()
    with pytest.raises(WorkerSilent, match="silent"):
        await playing(ends, ("accepted", ACCEPTED))
    assert asyncio.get_running_loop().time() - before >= 0.2


async def test_an_unanswered_question_is_lost_in_time(ends: tuple[WorkerLink, Host]) -> None:
    for question in (ends[0].reserve(SPEC), ends[0].query(RUN, void=True), ends[0].cancel(RUN)):
        with pytest.raises(WorkerLost, match="no answer"):
            await question


@pytest.mark.parametrize(
    "events",
    [
        (("out", b"early"),),
        (("ended", ENDED),),
        (("accepted", ACCEPTED), ("accepted", ACCEPTED)),
        (("accepted", ACCEPTED), ("out", b"x" * 2_001)),
        (("accepted", ACCEPTED), ("info", None)),
        (("accepted", {"not": "accepted"}),),
    ],
)
async def test_events_out_of_place_are_lost(
    ends: tuple[WorkerLink, Host], events: tuple[tuple[str, object], ...]
) -> None:
    with pytest.raises(WorkerLost):
        await playing(ends, *events)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff\xff\xff\xff\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x06\x00\x00\x00\x02[]",
        frames.encode({"op": "what"}),
        frames.encode({"op": "answer"}),
        frames.encode({"op": "info"}, b"{}"),
    ],
)
async def test_a_host_that_talks_nonsense_is_let_go(ends: tuple[WorkerLink, Host], nonsense: bytes) -> None:
    link, host = ends
    lost = asyncio.Event()
    link.on_lost = lost.set
    host.sock.sendall(nonsense)
    await asyncio.wait_for(lost.wait(), 2)
    with pytest.raises(WorkerLost):
        await link.info()


async def test_an_event_for_nobody_is_dropped(ends: tuple[WorkerLink, Host]) -> None:
    ends[1].event(99, "ended", ENDED)
    ends[1].send({"op": "answer", "n": 99, "shape": "none"})
    await asyncio.sleep(0.01)
    assert (await ends[0].info()).boot_id == BOOT


async def test_another_process_can_be_attached_after_a_loss(ends: tuple[WorkerLink, Host]) -> None:
    link, host = ends
    host.close()
    while link.latest:
        await asyncio.sleep(0.001)
    ours, theirs = socket.socketpair()
    link.attach(ours)
    again = Host(theirs)
    again.send({"op": "info"}, replace(INFO, boot_id="e" * 32))
    await asyncio.sleep(0.01)
    assert (await link.info()).boot_id == "e" * 32
    again.close()
