"""A provider is a process: started with nothing, missed when it dies, started again afresh, and surely ended."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.dispatch.link import WorkerLink
from app.dispatch.supervisor import PING_S, ProviderSupervisor, spawn
from plimsoll.contract.refusals import Code, Reason
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Accepted, Ended, Health, NotSent, TicketRefused, WorkerLost
from tests.integration.providers.conftest import Subject
from tests.support.runs import (
    Seen,
    alive,
    descriptors,
    environment,
    family,
    follow,
    job,
    new_id,
    refused,
    reserved,
    run,
    spec,
)

EFFECT = "tests.support.effect_provider"


@asynccontextmanager
async def running(
    subject: Subject, settings: dict[str, Any], **more: Any
) -> AsyncIterator[ProviderSupervisor]:
    process = spawn(subject.name, {**settings, **more}, module=subject.module)
    async with ProviderSupervisor(process) as supervisor:
        assert await supervisor.wait_first_evidence(timeout_s=subject.patience_s)
        yield supervisor


async def eventually(check: Any, *, within_s: float = 5.0) -> None:
    end = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.01)


async def test_nothing_is_left_after_the_end(subject: Subject, settings: dict[str, Any]) -> None:
    async with running(subject, settings) as supervisor:
        wanted = spec(timeout_ms=60_000)
        events = supervisor.worker.start(
            await reserved(supervisor.worker, wanted), job(wanted, subject.endless)
        )
        await anext(events)
        await eventually(lambda: all(alive(pid) for pid in family(supervisor.pid)))
        processes = family(supervisor.pid)
    await eventually(lambda: not any(alive(pid) for pid in processes), within_s=2)
    with pytest.raises(WorkerLost):
        await anext(events)


async def test_a_killed_provider_loses_its_runs_and_comes_back_as_another_boot(
    subject: Subject, settings: dict[str, Any]
) -> None:
    async with running(subject, settings) as supervisor:
        worker, before = supervisor.worker, await supervisor.worker.info()
        wanted = spec(timeout_ms=60_000)
        events = worker.start(await reserved(worker, wanted), job(wanted, subject.endless))
        await anext(events)
        unspent = spec()
        ticket = await reserved(worker, unspent)
        processes = family(supervisor.pid)
        os.kill(supervisor.pid, signal.SIGKILL)
        with pytest.raises(WorkerLost):
            await anext(events)
        with pytest.raises(NotSent):
            await follow(worker, ticket, job(unspent, subject.hello))
        with pytest.raises(WorkerLost):
            await worker.query(wanted.run_id, void=True)
        assert supervisor.away
        assert supervisor.latest
        await eventually(lambda: not supervisor.away, within_s=20)
        after = await worker.info()
        assert (after.boot_id == before.boot_id, after.health) == (False, Health.SERVING)
        with pytest.raises(NotSent, match="earlier boot"):
            await follow(worker, ticket, job(unspent, subject.hello))
        assert (await worker.query(wanted.run_id, void=True)).boot_id == after.boot_id
        assert (await run(worker, subject.hello)).ended.exit_code == 0
        assert not any(alive(pid) for pid in processes)


async def test_draining_takes_no_new_run_and_keeps_its_promises(
    subject: Subject, settings: dict[str, Any]
) -> None:
    async with running(subject, settings) as supervisor:
        wanted = spec()
        ticket = await reserved(supervisor.worker, wanted)
        await supervisor.worker.drain()
        refusal = await refused(supervisor.worker, spec())
        assert (refusal.code, refusal.reason) == (Code.DRAINING, Reason.ENVIRONMENT)
        assert (await supervisor.worker.info()).health is Health.DRAINING
        assert (await follow(supervisor.worker, ticket, job(wanted, subject.hello))).ended.exit_code == 0


async def test_a_debuggable_process_serves_only_in_insecure_mode(
    subject: Subject, settings: dict[str, Any]
) -> None:
    async with running(subject, settings, debug_dumpable=True) as supervisor:
        info = await supervisor.worker.info()
        assert (info.health, info.tier, info.faults) == (Health.REFUSING, Tier.NONE, ("host_dumpable",))
        assert (await refused(supervisor.worker, spec())).code is Code.UNAVAILABLE
        assert (await refused(supervisor.worker, spec(floor=Tier.PROCESS))).reason is Reason.ISOLATION
    async with running(subject, settings, debug_dumpable=True, insecure=True) as supervisor:
        assert (await supervisor.worker.info()).health is Health.SERVING
        assert (await run(supervisor.worker, subject.hello)).ended.exit_code == 0


SERVICE = """
import asyncio, json, sys
from app.dispatch.supervisor import PING_S, ProviderSupervisor, spawn

async def main(process):
    async with ProviderSupervisor(process) as supervisor:
        await supervisor.wait_first_evidence(timeout_s=240)
        print(supervisor.pid, flush=True)
        await asyncio.sleep(60)

name, settings, module = sys.argv[1:]
asyncio.run(main(spawn(name, json.loads(settings), module=module)))
"""


def test_nothing_outlives_a_service_that_is_killed(subject: Subject, settings: dict[str, Any]) -> None:
    words = [subject.name, json.dumps(settings), subject.module]
    service = subprocess.Popen([sys.executable, "-c", SERVICE, *words], stdout=subprocess.PIPE)
    with service:
        assert service.stdout
        processes = family(int(service.stdout.readline()))
        service.kill()
    end = time.monotonic() + 5
    while any(alive(pid) for pid in processes):
        assert time.monotonic() < end
        time.sleep(0.01)


# --- what only the test provider can do at will ---------------------------------------------------------------------------


@asynccontextmanager
async def effects(
    place: Path, link: WorkerLink | None = None, *, ping_s: float = PING_S, **settings: Any
) -> AsyncIterator[Any]:
    path = place / f"effects-{new_id()}"
    process = spawn("effect", {"effects": str(path), "slots": 4, **settings}, module=EFFECT)
    async with ProviderSupervisor(process, link=link, ping_s=ping_s) as supervisor:
        assert await supervisor.wait_first_evidence(timeout_s=20)
        yield supervisor, lambda: path.read_text().split() if path.exists() else [], path


async def test_a_start_that_the_provider_never_began_is_refused(place: Path) -> None:
    async with effects(place) as (supervisor, seen, _):
        wanted = spec()
        ticket = await reserved(supervisor.worker, wanted)
        with pytest.raises(TicketRefused, match="not_started"):
            await follow(supervisor.worker, ticket, job(wanted, "refuse effect"))
        assert (await supervisor.worker.query(wanted.run_id, void=True)).state == "void"
        assert seen() == []


@pytest.mark.parametrize(
    ("code", "order"),
    [
        ("effect die", []),
        ("begin effect die", ["Accepted"]),
        ("effect out:x die", ["Accepted", "Out"]),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_death_after_the_start_is_lost_wherever_it_happens(
    place: Path, code: str, order: list[str], *, stream: bool
) -> None:
    async with effects(place) as (supervisor, effects_seen, _):
        wanted, seen = spec(), Seen()
        ticket = await reserved(supervisor.worker, wanted)
        with pytest.raises(WorkerLost):
            await follow(supervisor.worker, ticket, replace(job(wanted, code), stream=stream), seen)
        # What nobody follows live may still have been on its way.
        assert seen.order == (order if stream else order[: len(seen.order)])
        assert effects_seen() == [wanted.run_id]


@pytest.mark.parametrize(
    "code", ["effect raise", "begin effect raise", "effect uncalled", "begin effect uncalled", "effect break"]
)
async def test_a_provider_that_fails_breaks_only_the_run(place: Path, code: str) -> None:
    async with effects(place) as (supervisor, _, _):
        wanted = spec()
        ticket = await reserved(supervisor.worker, wanted)
        seen = await follow(supervisor.worker, ticket, job(wanted, code))
        assert seen.cause in {"provider_failed", "effect"}
        assert (await supervisor.worker.query(wanted.run_id, void=True)).state == "broken"
        assert (await run(supervisor.worker, "out:on")).stdout == b"on"


async def test_a_provider_that_falls_silent_is_lost_within_the_deadline(place: Path) -> None:
    link = WorkerLink(rpc_s=0.3, accept_s=0.5, grace_s=0.3)
    async with effects(place, link) as (supervisor, _, _):
        wanted = spec()
        ticket = await reserved(supervisor.worker, wanted)
        with pytest.raises(WorkerLost, match="silent"):
            await follow(supervisor.worker, ticket, job(wanted, "freeze"))
        with pytest.raises(WorkerLost, match="no answer"):
            await supervisor.worker.query(wanted.run_id, void=True)
        with pytest.raises(WorkerLost, match="no answer"):
            await supervisor.worker.reserve(spec())


async def test_a_provider_that_stays_silent_is_killed_and_comes_back_by_itself(place: Path) -> None:
    link = WorkerLink(rpc_s=0.3, accept_s=20)
    async with effects(place, link, ping_s=0.2) as (supervisor, _, _):
        before, processes = await supervisor.worker.info(), family(supervisor.pid)
        wanted = spec()
        ticket = await reserved(supervisor.worker, wanted)
        with pytest.raises(WorkerLost, match="closed"):
            await follow(supervisor.worker, ticket, job(wanted, "freeze"))
        await eventually(lambda: not supervisor.away, within_s=20)
        assert (await supervisor.worker.info()).boot_id != before.boot_id
        assert (await run(supervisor.worker, "out:on")).stdout == b"on"
        assert not any(alive(pid) for pid in processes)


async def test_a_provider_that_answers_is_left_alone(place: Path) -> None:
    async with effects(place, ping_s=0.02) as (supervisor, _, _):
        before = supervisor.pid
        assert (await run(supervisor.worker, "begin sleep:500 out:on")).stdout == b"on"
        assert (supervisor.pid, supervisor.restarts) == (before, 0)


async def test_a_missing_fact_stops_service_and_its_return_resumes_it(place: Path) -> None:
    async with effects(place, evidence_interval_s=0.1) as (supervisor, _, path):
        before = await supervisor.worker.info()
        fault = path.with_name(path.name + ".fault")
        fault.write_text("effect_gone")
        await eventually(lambda: supervisor.latest.health is Health.REFUSING)
        during = await supervisor.worker.info()
        assert (during.tier, during.faults) == (Tier.NONE, ("effect_gone",))
        assert (await refused(supervisor.worker, spec(floor=Tier.PROCESS))).code is Code.ISOLATION_UNMET
        fault.unlink()
        await eventually(lambda: supervisor.latest.health is Health.SERVING)
        assert (await supervisor.worker.info()).evidence_sha256 == before.evidence_sha256


async def test_a_run_ends_with_the_weakest_wall_it_had_though_that_was_mended_before_its_end(
    place: Path,
) -> None:
    async with effects(place, evidence_interval_s=0.1) as (supervisor, _, path):
        wanted = spec(timeout_ms=10_000)
        events = supervisor.worker.start(await reserved(supervisor.worker, wanted), job(wanted, "begin hang"))
        accepted = await anext(events)
        fault = path.with_name(path.name + ".fault")
        fault.write_text("effect_gone")
        await eventually(lambda: supervisor.latest.health is Health.REFUSING)
        during = await supervisor.worker.info()
        fault.unlink()
        await eventually(lambda: supervisor.latest.health is Health.SERVING)
        await supervisor.worker.cancel(wanted.run_id)
        ended = await anext(events)
        assert isinstance(accepted, Accepted)
        assert isinstance(ended, Ended)
        assert accepted.tier is Tier.PROCESS
        assert (ended.tier, ended.evidence_sha256) == (Tier.NONE, during.evidence_sha256)
        assert (await run(supervisor.worker, "out:on")).ended.tier is Tier.PROCESS


async def test_a_drop_between_reservation_and_start_refuses_the_ticket(place: Path) -> None:
    async with effects(place, evidence_interval_s=0.1) as (supervisor, _, path):
        wanted = spec(floor=Tier.PROCESS)
        ticket = await reserved(supervisor.worker, wanted)
        path.with_name(path.name + ".fault").write_text("effect_gone")
        await eventually(lambda: supervisor.latest.health is Health.REFUSING)
        with pytest.raises(TicketRefused, match="isolation"):
            await follow(supervisor.worker, ticket, job(wanted, "effect"))


@pytest.mark.parametrize("settings", [{"slots": 0}, {"slots": "many"}])
async def test_a_provider_that_cannot_start_is_tried_again_and_away_meanwhile(
    place: Path, settings: dict[str, Any]
) -> None:
    process = spawn("effect", {"effects": str(place / "none"), **settings}, module=EFFECT)
    async with ProviderSupervisor(process) as supervisor:
        assert await supervisor.wait_first_evidence(timeout_s=20) is None
        assert supervisor.evidence_ended
        assert supervisor.away
        await eventually(lambda: supervisor.restarts >= 1)


def test_a_process_can_be_ended_before_there_is_a_loop(place: Path) -> None:
    process = spawn("effect", {"effects": str(place / "none")}, module=EFFECT)
    process.end()
    assert not alive(process.pid)


def test_a_process_that_was_waited_for_is_not_killed_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = spawn("effect", {"effects": str(place / "none")}, module=EFFECT)
    process.end()
    killed: list[int] = []  # by now the id may be another's
    monkeypatch.setattr(os, "killpg", lambda pid, _: killed.append(pid))
    process.end()
    process.kill_group()
    assert killed == []


async def test_a_provider_has_an_empty_environment_and_only_its_socket(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_DATABASE_URL", "canary")
    async with effects(place) as (supervisor, _, _):
        assert environment(supervisor.pid) == b""
        links = descriptors(supervisor.pid)
        assert links["0"] == links["1"] == os.devnull
        rest = [word.partition(":")[0] for name, word in links.items() if name not in {"0", "1", "2"}]
        # Its socket to the service; the event loop adds its selector and its own wake-up pair.
        assert sorted(rest) == ["anon_inode", "socket", "socket", "socket"]
