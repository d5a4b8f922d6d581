"""What the host makes of a run's words: caps, deadline, cancel, flood, memory, and ends that are none."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
from typing_extensions import override

from plimsoll.contract.requests import File, Module, Project, Python
from plimsoll.contract.results import Artifact, Outcome
from plimsoll.contract.worker import Out, StepEnded
from providers.docker.course import Course
from providers.docker.ending import Stop
from providers.seam import Begun, Break, Finish, Order, Step
from tests.support.sandboxes import FakeDeath, FakeSandbox, FakeUsage, order, steps

SNIPPET = Python("code")
BEGUN = Begun("docker-container:" + "c" * 64, 7)
CAP = 64


def project(count: int = 3, artifacts: tuple[str, ...] = ()) -> Project:
    return Project((), ("true",) * count, artifacts)


def course_of(box: FakeSandbox, what: Order, *, gvisor: bool = False) -> Course:
    return Course(box, what, gvisor=gvisor, start_ms=7)


def without_durations(seen: list[Step]) -> list[Step]:
    return [replace(step, duration_ms=0) if isinstance(step, StepEnded) else step for step in seen]


async def snippet(act: Callable[[FakeSandbox], object], **changes: object) -> list[Step]:
    """A snippet whose agent does `act` once it has the code."""
    box = FakeSandbox()
    box.on["run"] = lambda: act(box)
    return await steps(course_of(box, order(SNIPPET, **changes)))


async def of_project(payload: Project, act: Callable[[FakeSandbox], object], **changes: object) -> list[Step]:
    box = FakeSandbox()
    box.on["go"] = lambda: act(box)
    return without_durations(await steps(course_of(box, order(payload, **changes))))


class TestSnippets:
    @pytest.mark.parametrize("code", [0, 3, 124, 130, 137, 153])
    async def test_a_programs_own_end_is_an_ordinary_end(self, code: int) -> None:
        seen = await snippet(lambda box: box.out(b"x").say("result", exit=code))
        assert seen == [BEGUN, Out("stdout", b"x"), Finish(code)]

    @pytest.mark.parametrize(("size", "cut"), [(CAP - 1, False), (CAP, False), (CAP + 1, True)])
    async def test_output_is_cut_at_the_cap_of_its_stream(self, size: int, cut: object) -> None:
        def act(box: FakeSandbox) -> None:
            box.out(b"e", "stderr")
            for _ in range(size):
                box.out(b"x")
            box.say("result", exit=0)

        seen = await snippet(act)
        assert seen[1:3] == [Out("stdout", b"x" * min(size, CAP)), Out("stderr", b"e")]
        assert seen[-1] == Finish(0, stdout_truncated=bool(cut))

    async def test_a_streamed_run_is_heard_piece_by_piece(self) -> None:
        box = FakeSandbox()
        box.on["run"] = lambda: box.out(b"first")
        course = course_of(box, order(SNIPPET, stream=True)).steps()
        assert [await anext(course), await anext(course)] == [BEGUN, Out("stdout", b"first")]
        box.out(b"second", "stderr")
        assert await anext(course) == Out("stderr", b"second")
        box.say("result", exit=0)
        assert [step async for step in course] == [Finish(0)]

    async def test_a_flood_ends_the_run_and_keeps_the_head(self) -> None:
        def act(box: FakeSandbox) -> None:
            box.out(b"h" * CAP)
            box.out(b"x" * CAP * 16)
            box.out(b"e", "stderr")
            box.on["cancel"] = lambda: box.say("result", exit=137)

        seen = await snippet(act)
        assert seen == [
            BEGUN,
            Out("stdout", b"h" * CAP),
            Out("stderr", b"e"),
            Finish(153, stdout_truncated=True),
        ]

    async def test_16_caps_are_no_flood(self) -> None:
        seen = await snippet(lambda box: box.out(b"x" * CAP * 16).say("result", exit=0))
        assert seen[-1] == Finish(0, stdout_truncated=True)

    async def test_no_code_leaves_before_begun(self) -> None:
        box = FakeSandbox()
        course = course_of(box, order(SNIPPET)).steps()
        assert await anext(course) == BEGUN
        assert box.heard == []
        await course.aclose()

    def test_what_containers_do_not_run_is_refused(self) -> None:
        async def make() -> None:
            course_of(FakeSandbox(), order(Module("m")))

        with pytest.raises(TypeError):
            asyncio.run(make())


class TestStops:
    @pytest.mark.parametrize("streamed", [False, True])
    async def test_a_cancel_is_exactly_a_deadline(self, streamed: object) -> None:
        def act(box: FakeSandbox) -> None:
            box.out(b"before")
            box.on["cancel"] = lambda: box.out(b" and after").say("result", exit=137)

        late = await snippet(act, timeout_ms=50, stream=bool(streamed))
        box = FakeSandbox()
        box.on["run"] = lambda: act(box)
        course = course_of(box, order(SNIPPET, stream=bool(streamed)))
        ended = await steps(
            course, lambda: asyncio.get_running_loop().call_later(0.05, course.stop, Stop.CANCELLED)
        )
        assert ended[:-1] == late[:-1]
        assert b"".join(step.data for step in late if isinstance(step, Out)) == b"before and after"
        assert (late[-1], ended[-1]) == (Finish(124, timed_out=True), Finish(130, cancelled=True))

    async def test_a_stopped_run_whose_guests_may_live_says_that_output_may_be_missing(self) -> None:
        seen = await snippet(lambda box: box.out(b"x"), timeout_ms=50)
        both = Finish(124, timed_out=True, stdout_truncated=True, stderr_truncated=True)
        assert seen == [BEGUN, Out("stdout", b"x"), both]

    async def test_a_guest_that_reads_nothing_ends_at_its_deadline_too(self) -> None:
        box = FakeSandbox(deaf=True)
        files = tuple(File(f"f{n}", bytes(1 << 20)) for n in range(4))
        for payload in (SNIPPET, Project(files, ("true",))):
            began = asyncio.get_running_loop().time()
            box = FakeSandbox(deaf=True)
            seen = await steps(course_of(box, order(payload, timeout_ms=50)))
            assert asyncio.get_running_loop().time() - began < 60
            assert len(seen) == 2
            assert isinstance(seen[1], Finish)
            assert (seen[1].exit_code, seen[1].timed_out) == (124, True)

    async def test_a_run_that_never_stops_talking_ends_at_its_deadline(self) -> None:
        class Endless(FakeSandbox):
            @override
            async def receive(self) -> bytes | None:
                self.out(b"x")
                return await super().receive()

        seen = await steps(course_of(Endless(), order(SNIPPET, timeout_ms=50, output_bytes=65_536)))
        assert isinstance(seen[-1], Finish)
        assert seen[-1].timed_out

    async def test_an_end_that_was_heard_stays_the_end(self) -> None:
        class Late(FakeSandbox):
            """The stop comes together with the result."""

            @override
            async def receive(self) -> bytes | None:
                data = await super().receive()
                course.stop(Stop.CANCELLED)
                return data

        box = Late()
        box.on["run"] = lambda: box.say("result", exit=0)
        course = course_of(box, order(SNIPPET))
        assert await steps(course) == [BEGUN, Finish(0)]

    async def test_the_first_reason_counts(self) -> None:
        box = FakeSandbox()
        course = course_of(box, order(SNIPPET))
        box.on["cancel"] = lambda: box.say("result", exit=137)
        course.stop(Stop.CANCELLED)
        course.stop(Stop.MEMORY)
        assert (await steps(course))[-1] == Finish(130, cancelled=True)

    async def test_leaving_early_leaves_no_task(self) -> None:
        course = course_of(FakeSandbox(), order(SNIPPET)).steps()
        await anext(course)
        running = asyncio.ensure_future(anext(course))
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await course.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}


class TestMemory:
    async def test_a_killed_program_is_out_of_memory_if_the_counter_says_so(self) -> None:
        def act(box: FakeSandbox) -> None:
            box.sight.kills = 1
            box.say("result", exit=137)

        assert (await snippet(act))[-1] == Finish(137, oom_killed=True)

    async def test_an_interpreter_that_never_began_breaks_the_run(self) -> None:
        """What it has written and how it ended is nobody's result."""
        assert await snippet(lambda box: box.say("unbegun")) == [BEGUN, Break("interpreter_failed")]

    async def test_one_that_ended_for_want_of_memory_is_out_of_memory(self) -> None:
        def act(box: FakeSandbox) -> None:
            box.sight.kills += 1
            box.say("unbegun")

        assert await snippet(act) == [BEGUN, Finish(137, oom_killed=True)]

    async def test_a_child_that_was_killed_is_the_programs_own_affair(self) -> None:
        def act(box: FakeSandbox) -> None:
            box.sight.kills = 1
            box.say("result", exit=1)

        assert (await snippet(act))[-1] == Finish(1)

    async def test_a_container_that_dies_of_memory_is_no_broken_run(self) -> None:
        def act(box: FakeSandbox) -> None:
            box.death = FakeDeath(oom=True)
            box.out(b"x")
            box.raw(None)

        flags = Finish(137, oom_killed=True, stdout_truncated=True, stderr_truncated=True)
        assert await snippet(act) == [BEGUN, Out("stdout", b"x"), flags]

    async def test_a_counter_that_goes_with_its_container_was_seen_before(self) -> None:
        """The daemon does not always say why a container was killed."""

        def act(box: FakeSandbox) -> None:
            def gone() -> None:
                box.sight.kills = 0
                box.raw(None)

            box.sight.kills = 1
            asyncio.get_running_loop().call_later(0.3, gone)

        seen = await snippet(act)
        assert isinstance(seen[-1], Finish)
        assert seen[-1].oom_killed

    @pytest.mark.parametrize("limit_ms", [20_000, 600])
    async def test_under_gvisor_a_kill_that_ends_nothing_is_the_end_too(self, limit_ms: int) -> None:
        """The kernel took the process that lends the guest its address space, and gVisor waits for ever; also at a deadline."""
        box = FakeSandbox()
        box.on["run"] = lambda: vars(box.sight).update(kills=1)
        seen = await steps(course_of(box, order(SNIPPET, timeout_ms=limit_ms), gvisor=True))
        assert isinstance(seen[-1], Finish)
        assert (seen[-1].exit_code, seen[-1].oom_killed, seen[-1].timed_out) == (137, True, False)

    async def test_elsewhere_a_child_that_was_killed_ends_nothing(self) -> None:
        box = FakeSandbox()
        box.on["run"] = lambda: vars(box.sight).update(kills=1)
        seen = await steps(course_of(box, order(SNIPPET, timeout_ms=1_500)))
        assert isinstance(seen[-1], Finish)
        assert seen[-1].timed_out

    async def test_a_run_that_stands_still_at_its_limit_is_out_of_memory(self) -> None:
        def act(box: FakeSandbox) -> None:
            box.sight.usage = FakeUsage(100, 100)

        seen = await snippet(act)
        assert isinstance(seen[-1], Finish)
        assert (seen[-1].exit_code, seen[-1].oom_killed, seen[-1].timed_out) == (137, True, False)

    async def test_a_deadline_during_that_is_memory_as_well(self) -> None:
        def act(box: FakeSandbox) -> None:
            box.sight.usage = FakeUsage(100, 100)

        seen = await snippet(act, timeout_ms=800)
        assert isinstance(seen[-1], Finish)
        assert (seen[-1].exit_code, seen[-1].oom_killed, seen[-1].timed_out) == (137, True, False)


class TestProjects:
    async def test_steps_then_artifacts_then_the_end(self) -> None:
        def act(box: FakeSandbox) -> None:
            for number, code in enumerate((0, 4)):
                box.out(b"%d" % number, step=number)
                box.say("step", step=number, exit=code)
            box.say("artifact", b"abc", path="a", size=3)
            box.say("result", outcome="completed", detail="", truncated=True)

        assert await of_project(project(3, ("a",)), act) == [
            BEGUN,
            Out("stdout", b"0", 0),
            StepEnded(0, 0),
            Out("stdout", b"1", 1),
            StepEnded(1, 4),
            Artifact("a", b"abc"),
            Finish(4, outcome=Outcome.COMPLETED, artifacts_truncated=True),
        ]

    async def test_every_step_has_its_own_cap(self) -> None:
        def act(box: FakeSandbox) -> None:
            for number in range(2):
                box.out(b"x" * (CAP + 1 - number), step=number)
                box.say("step", step=number, exit=0)
            box.say("result", outcome="completed", detail="", truncated=False)

        seen = await of_project(project(2), act)
        assert [step for step in seen if isinstance(step, StepEnded)] == [
            StepEnded(0, 0, stdout_truncated=True),
            StepEnded(1, 0),
        ]

    @pytest.mark.parametrize(
        ("stop", "step", "end"),
        [
            (Stop.DEADLINE, (124, True), Finish(124, timed_out=True, outcome=Outcome.TIMED_OUT)),
            (
                Stop.CANCELLED,
                (130, False),
                Finish(130, cancelled=True, outcome=Outcome.RUNNER_FAILED, outcome_detail="cancelled"),
            ),
            (
                Stop.MEMORY,
                (137, False),
                Finish(137, oom_killed=True, outcome=Outcome.RUNNER_FAILED, outcome_detail="out_of_memory"),
            ),
            (
                Stop.FLOOD,
                (153, False),
                Finish(153, outcome=Outcome.RUNNER_FAILED, outcome_detail="output_flood"),
            ),
        ],
    )
    async def test_the_step_under_way_ends_with_the_stop_and_later_ones_never_began(
        self, stop: Stop, step: tuple[int, bool], end: Finish
    ) -> None:
        box = FakeSandbox()
        course = course_of(box, order(project(3, ("a",))))

        def act() -> None:
            box.say("step", step=0, exit=0)
            box.out(b"x", step=1)
            asyncio.get_running_loop().call_later(0.05, course.stop, stop)

        def killed() -> None:
            box.say("step", step=1, exit=137)
            box.say("result", outcome="completed", detail="", truncated=False)

        box.on |= {"go": act, "cancel": killed}
        assert without_durations(await steps(course)) == [
            BEGUN,
            StepEnded(0, 0),
            Out("stdout", b"x", 1),
            StepEnded(1, step[0], timed_out=step[1]),
            end,
        ]

    async def test_artifacts_are_absent_when_the_deadline_comes_among_them(self) -> None:
        def act(box: FakeSandbox) -> None:
            box.say("step", step=0, exit=0)
            box.say("artifact", b"abc", path="a", size=3)

        assert await of_project(project(1, ("a", "b")), act, timeout_ms=50) == [
            BEGUN,
            StepEnded(0, 0),
            Finish(0, timed_out=True, outcome=Outcome.TIMED_OUT),
        ]

    async def test_a_step_that_the_kernel_kills_is_memory(self) -> None:
        def act(box: FakeSandbox) -> None:
            box.sight.kills = 1
            box.say("step", step=0, exit=137)

        assert await of_project(project(2), act) == [
            BEGUN,
            StepEnded(0, 137),
            Finish(137, oom_killed=True, outcome=Outcome.RUNNER_FAILED, outcome_detail="out_of_memory"),
        ]

    async def test_a_failed_setup_has_no_steps(self) -> None:
        def act(box: FakeSandbox) -> None:
            box.say("result", outcome="setup_failed", detail="disk_full", truncated=False)

        end = Finish(1, outcome=Outcome.SETUP_FAILED, outcome_detail="disk_full")
        assert await of_project(project(2), act) == [BEGUN, end]

    async def test_durations_are_measured_here(self) -> None:
        def act(box: FakeSandbox) -> None:
            later = asyncio.get_running_loop().call_later
            later(0.1, lambda: box.say("step", step=0, exit=0))
            later(0.1, lambda: box.say("step", step=1, exit=0))
            later(0.15, lambda: box.say("result", outcome="completed", detail="", truncated=False))

        box = FakeSandbox()
        box.on["go"] = lambda: act(box)
        first, second = (
            s for s in await steps(course_of(box, order(project(2)))) if isinstance(s, StepEnded)
        )
        assert first.duration_ms >= 80
        assert second.duration_ms < first.duration_ms


class TestLies:
    @pytest.mark.parametrize(
        "raw",
        [
            b"\xff" * 64,
            b'\0\0\0\x10\0\0\0\x0c{"t":"none"}',
        ],
    )
    async def test_a_broken_talk_breaks_the_run(self, raw: bytes) -> None:
        seen = await snippet(lambda box: box.raw(raw))
        assert isinstance(seen[-1], Break)
        assert seen[-1].cause in {"bad_frame", "unknown_frame"}

    async def test_the_streams_end_without_a_result_breaks_the_run_and_keeps_the_output(self) -> None:
        seen = await snippet(lambda box: box.out(b"x").raw(None))
        assert seen == [BEGUN, Out("stdout", b"x"), Break("sandbox_died")]

    async def test_nothing_after_begun_is_a_proof_that_nothing_ran(self) -> None:
        """Every word, in every order of two, after the code was handed over: an end or a break, never NotStarted."""
        words: list[Callable[[FakeSandbox], object]] = [
            lambda box: box.say("ready", warm=[]),
            lambda box: box.say("pong", n=1),
            lambda box: box.out(b"x"),
            lambda box: box.out(b"x", step=1),
            lambda box: box.say("step", step=0, exit=0),
            lambda box: box.say("artifact", b"x", path="a", size=1),
            lambda box: box.say("result", exit=300),
            lambda box: box.say("result", exit=0),
            lambda box: box.say("result", outcome="completed", detail="", truncated=False),
            lambda box: box.raw(None),
        ]
        for first in words:
            for second in words:
                seen = await snippet(partial(_both, first, second))
                assert seen[0] == BEGUN
                assert isinstance(seen[-1], Finish | Break)


def _both(
    first: Callable[[FakeSandbox], object], second: Callable[[FakeSandbox], object], box: FakeSandbox
) -> None:
    first(box)
    second(box)
    box.raw(None)


class TestCalls:
    """A run that may make them: beside its talk, and never beyond its end."""

    async def test_a_call_is_answered_while_the_run_goes_on(self) -> None:
        box = FakeSandbox()
        box.on["run"] = lambda: box.say("call", b"message", n=1, size=7)
        box.on["reply"] = lambda: box.say("result", exit=0)

        @asynccontextmanager
        async def call(message: bytes) -> AsyncIterator[bytes]:
            yield message + b"!"

        assert await steps(course_of(box, order(SNIPPET, call=call))) == [BEGUN, Finish(0)]
        assert box.heard == ["calls", "run", "reply"]

    @pytest.mark.parametrize(
        ("end", "last"), [("result", Finish(0)), ("nothing", Finish(124, timed_out=True))]
    )
    async def test_a_call_under_way_ends_with_the_run(self, end: str, last: Finish) -> None:
        box, ended = FakeSandbox(), asyncio.Event()

        @asynccontextmanager
        async def call(_message: bytes) -> AsyncIterator[bytes]:
            if end == "result":
                box.say("result", exit=0)
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            yield b""

        box.on["run"] = lambda: box.say("call", b"message", n=1, size=7)
        box.on["cancel"] = lambda: box.say("call", b"message", n=2, size=7).say("result", exit=137)
        seen = await steps(course_of(box, order(SNIPPET, call=call, timeout_ms=200)))
        assert seen[-1] == last
        assert ended.is_set()
        assert "reply" not in box.heard

    async def test_an_agent_that_asks_again_at_each_answer_is_never_counted_as_asking_too_much(self) -> None:
        """However many of its answers are under way: one goes, and is counted as gone before the next."""
        asked, going, most = 16, 0, 0

        class Slow(FakeSandbox):
            @override
            async def send(self, data: bytes) -> None:
                nonlocal going, most, asked
                await super().send(data)  # the agent has it at once, and whoever sent it hears that late
                if self.heard[-1] == "reply":
                    going, most = going + 1, max(most, going + 1)
                    if asked < 100:
                        asked += 1
                        self.say("call", b"message", n=asked, size=7)
                    for _ in range(50):
                        await asyncio.sleep(0)
                    going -= 1
                    if self.heard.count("reply") == 100:
                        self.say("result", exit=0)

        @asynccontextmanager
        async def call(_message: bytes) -> AsyncIterator[bytes]:
            yield b"answer"

        box = Slow()

        def begin() -> None:
            for number in range(1, 17):
                box.say("call", b"message", n=number, size=7)

        box.on["run"] = begin
        assert await steps(course_of(box, order(SNIPPET, call=call))) == [BEGUN, Finish(0)]
        assert most == 1

    async def test_a_call_without_a_grant_breaks_the_run(self) -> None:
        seen = await snippet(lambda box: box.say("call", b"message", n=1, size=7))
        assert seen[-1] == Break("call_without_grant")
