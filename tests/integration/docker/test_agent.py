"""What the agent does for a run, in real containers under runc and gVisor, heard through the host's frame machine."""

import time
from dataclasses import dataclass, field

import pytest

from plimsoll.contract.requests import File, JavaScript, Project, Python
from plimsoll.contract.results import Artifact, Outcome
from providers.docker.frames import Event, Output, ProjectEnded, SnippetEnded, StepEnded
from tests.integration.docker.conftest import Start

BYTES = bytes(range(256)) + b"\r\n\xef\xbb\xbf\r\n"
MIB = 1 << 20


@dataclass
class Heard:
    """A run's events, sorted."""

    events: list[Event]
    stdout: dict[int, bytes] = field(default_factory=dict)
    stderr: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for event in self.events:
            if isinstance(event, Output):
                stream = self.stdout if event.stream == "stdout" else self.stderr
                stream[event.step] = stream.get(event.step, b"") + event.data

    @property
    def exits(self) -> list[int]:
        return [event.exit_code for event in self.events if isinstance(event, StepEnded | SnippetEnded)]

    @property
    def artifacts(self) -> dict[str, bytes]:
        return {event.path: event.content for event in self.events if isinstance(event, Artifact)}

    @property
    def end(self) -> ProjectEnded:
        assert isinstance(self.events[-1], ProjectEnded)
        return self.events[-1]


def python(start: Start, code: str, **changes: object) -> Heard:
    return Heard(start("python", **changes).run(Python(code)))


def javascript(start: Start, code: str) -> Heard:
    return Heard(start("javascript").run(JavaScript(code)))


def project(
    start: Start,
    *steps: str,
    files: dict[str, bytes] | None = None,
    artifacts: tuple[str, ...] = (),
    **changes: object,
) -> Heard:
    inputs = tuple(File(path, content) for path, content in (files or {}).items())
    return Heard(start(**changes).run(Project(inputs, steps, artifacts)))


class TestSnippets:
    def test_python_runs_as_a_script(self, start: Start) -> None:
        heard = python(
            start, "import sys\nprint(__name__, sys.argv)\nprint('\\n\\nx', end='', file=sys.stderr)"
        )
        assert (heard.stdout[0], heard.stderr[0]) == (b"__main__ ['main.py']\n", b"\n\nx")
        assert heard.exits == [0]

    def test_a_traceback_shows_the_snippet_and_nothing_of_ours(self, start: Start) -> None:
        heard = python(start, "def f():\n    return 1 / 0\nf()")
        assert heard.exits == [1]
        text = heard.stderr[0].decode()
        assert 'File "/workspace/main.py", line 2, in f\n    return 1 / 0' in text
        assert "snippet.py" not in text

    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            ("raise SystemExit(7)", 7),
            ("import os; os._exit(124)", 124),
            ("import os; os.kill(os.getpid(), 9)", 137),
            ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
            ("def f(:", 1),
            ("import sys; sys.exit('words')", 1),
        ],
    )
    def test_a_programs_own_end_is_its_exit_code(self, start: Start, code: str, expected: int) -> None:
        assert python(start, code).exits == [expected]

    def test_javascript_with_require_await_and_import(self, start: Start) -> None:
        for code in (
            "console.log(require('os').platform())",
            "console.log((await Promise.resolve(require('os'))).platform())",
            "console.log((await import('node:os')).platform())",
            """require('fs').writeFileSync('own.mjs', 'export { platform } from "os"');
            import('./own.mjs').then((own) => console.log(own.platform()))""",
            "import { platform } from 'node:os'; console.log(platform())",
        ):
            heard = javascript(start, code)
            assert (heard.stdout, heard.stderr) == ({0: b"linux\n"}, {})

    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            ("process.exit(5)", 5),
            ("throw new Error('x')", 1),
            ("}{", 1),
            ("await Promise.reject(1)", 1),
            ("setTimeout(() => {}, 1)", 0),
        ],
    )
    def test_javascript_ends_as_in_node(self, start: Start, code: str, expected: int) -> None:
        assert javascript(start, code).exits == [expected]

    def test_what_python_does_at_its_end_is_done(self, start: Start) -> None:
        """Threads are waited for, then what was registered, then what objects do when they go, then the streams' rest."""
        heard = python(
            start,
            "import atexit, os, threading, time\n"
            "class Goes:\n    def __del__(self): print('gone')\n"
            "kept, file = Goes(), open('/tmp/f', 'w')\nfile.write('x')\n"
            "atexit.register(print, 'registered')\n"
            "threading.Thread(target=lambda: (time.sleep(.2), print('thread'))).start()\n"
            "print('last line', end=' ')",
        )
        assert (heard.stdout[0], heard.exits) == (b"last line thread\nregistered\ngone\n", [0])

    def test_a_forked_child_at_its_end_is_not_the_end(self, start: Start) -> None:
        wait = "if pid: os.waitpid(pid, 0); time.sleep(.2)"
        code = f"import os, time\npid = os.fork()\n{wait}\nprint('parent' if pid else 'child')"
        heard = python(start, code)
        assert (heard.stdout[0].split(), heard.exits) == ([b"child", b"parent"], [0])

    def test_javascript_at_its_end_is_listened_to(self, start: Start) -> None:
        code = (
            "process.on('exit', (code) => { console.log('exit', code); process.exitCode = 4; });"
            "process.once('beforeExit', () => setTimeout(() => console.log('more'), 50))"
        )
        heard = javascript(start, code)
        assert (heard.stdout[0], heard.exits) == (b"more\nexit 0\n", [4])

    def test_a_language_that_was_not_warm_runs_too(self, start: Start) -> None:
        assert Heard(start().run(Python("print(1)"))).stdout == {0: b"1\n"}

    def test_it_ends_with_its_first_process_and_takes_the_others_along(self, start: Start) -> None:
        """A child that holds the output open, and one that has left its session twice."""
        daemon = (
            "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  time.sleep(60)\n"
            " os._exit(0)\nprint('done', flush=True)"
        )
        began = time.monotonic()
        heard = python(start, daemon)
        assert (heard.stdout[0], heard.exits) == (b"done\n", [0])
        assert time.monotonic() - began < 20

    def test_output_of_every_kind_arrives_whole(self, start: Start) -> None:
        code = f"import os\nfor _ in range(200): os.write(1, {BYTES!r} * 20)\nos.write(2, {BYTES!r})"
        heard = python(start, code)
        assert heard.stdout[0] == BYTES * 4000
        assert heard.stderr[0] == BYTES

    def test_our_own_frames_are_plain_output(self, start: Start) -> None:
        forged = b'\x00\x00\x00\x18\x00\x00\x00\x14{"t":"result","exit":9}'
        heard = python(start, f"import os; os.write(1, {forged!r})")
        assert (heard.stdout[0], heard.exits) == (forged, [0])

    def test_hundreds_of_children_leave_nothing(self, start: Start) -> None:
        code = (
            "import os, time\nfor _ in range(250):\n if os.fork() == 0:\n  if os.fork() == 0: os._exit(0)\n"
            "  os._exit(0)\n os.wait()\ntime.sleep(.5)\nprint(len([n for n in os.listdir('/proc') if n.isdigit()]))"
        )
        assert int(python(start, code).stdout[0]) <= 3


class TestProjects:
    def test_steps_in_order_in_the_workspace(self, start: Start) -> None:
        heard = project(start, "pwd; cat a/b.txt; echo x >c", "cat c >&2", files={"a/b.txt": BYTES})
        assert heard.stdout[0] == b"/workspace\n" + BYTES
        assert (heard.stderr[1], heard.exits) == (b"x\n", [0, 0])
        assert (heard.end.outcome, heard.end.detail) == (Outcome.COMPLETED, "")

    def test_it_stops_at_the_first_failure_and_still_brings_artifacts(self, start: Start) -> None:
        heard = project(start, "echo 1 >a", "exit 3", "echo 2 >a", artifacts=("a",))
        assert (heard.exits, heard.artifacts) == ([0, 3], {"a": b"1\n"})
        assert heard.end.outcome is Outcome.COMPLETED

    def test_bytes_and_names_survive_the_round_trip(self, start: Start) -> None:
        names = [
            "sp ace",
            "q'uo\"te",
            "$(id)",
            "-rf",
            "ünï\u4f60",
            "x" * 255,
            "d/" * 20 + "e",
            "empty",
            "big",
        ]
        contents = dict.fromkeys(names, BYTES) | {"empty": b"", "big": BYTES * 12000}
        heard = project(start, "true", files=contents, artifacts=tuple(names))
        assert heard.artifacts == contents

    def test_only_regular_files_come_back(self, start: Start) -> None:
        """Links, FIFOs, folders, sockets: neither followed nor waited on."""
        make = (
            "ln -s /etc/passwd link; ln -s /etc folder; mkfifo fifo; mkdir dir; ln -s dir/.. up; echo 1 >real; "
            "ln -s real inner; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\""
        )
        asked = ("link", "folder/passwd", "fifo", "dir", "up/real", "inner", "sock", "none", "real/x", "real")
        assert project(start, make, artifacts=asked).artifacts == {"real": b"1\n"}

    def test_a_folder_turned_into_a_link_is_not_followed(self, start: Start) -> None:
        heard = project(start, "rm -r d; ln -s /etc d", files={"d/passwd": b"x"}, artifacts=("d/passwd",))
        assert heard.artifacts == {}

    def test_what_does_not_fit_is_left_out_whole(self, start: Start) -> None:
        heard = project(
            start, "truncate -s 1T sparse || truncate -s 60M sparse; echo 1 >a", artifacts=("sparse", "a")
        )
        assert heard.artifacts == {"a": b"1\n"}
        assert heard.end.artifacts_truncated

    def test_artifacts_up_to_the_bound_arrive(self, start: Start) -> None:
        heard = project(start, f"head -c {8 * MIB} /dev/zero >a; : >b; echo >c", artifacts=("a", "b", "c"))
        assert {path: len(content) for path, content in heard.artifacts.items()} == {"a": 8 * MIB, "b": 0}
        assert heard.end.artifacts_truncated

    def test_a_step_ends_with_its_shell_and_late_output_is_nobodys(self, start: Start) -> None:
        began = time.monotonic()
        heard = project(start, "(sleep 0.5; echo late) & (sleep 60) & echo one", "sleep 1; echo two")
        assert heard.stdout == {0: b"one\n", 1: b"two\n"}
        assert time.monotonic() - began < 30

    def test_a_server_of_one_step_serves_the_next(self, start: Start) -> None:
        serve = "python3 -m http.server -b 127.0.0.1 8000 >/dev/null 2>&1 & echo $!"
        fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/f').read())"
        ask = f'for i in $(seq 50); do python3 -c "{fetch}" 2>/dev/null && exit; sleep .1; done; exit 1'
        assert project(start, serve, ask, files={"f": b"x"}).stdout[1] == b"b'x'\n"

    def test_writers_are_dead_before_artifacts_are_read(self, start: Start) -> None:
        writer = "(while :; do echo more >>a; done) & sleep 0.2"
        heard = project(start, writer, artifacts=("a",))
        assert heard.artifacts["a"].replace(b"more\n", b"") in {b"", b"m", b"mo", b"mor", b"more"}

    @pytest.mark.parametrize("files", [{"a": b"", "a/b": b""}, {"a/b": b"", "a": b""}, {"x" * 256: b""}])
    def test_files_that_cannot_be_are_a_failed_setup(self, start: Start, files: dict[str, bytes]) -> None:
        heard = project(start, "echo never", files=files)
        assert (heard.end.outcome, heard.end.detail) == (Outcome.SETUP_FAILED, "path_refused")
        assert heard.exits == []

    def test_files_that_do_not_fit_are_a_failed_setup(self, start: Start) -> None:
        small = "rw,noexec,nosuid,nodev,size=1m,uid={guest},gid={guest},mode=0700"
        heard = project(
            start, "true", files={"a": bytes(2 * MIB)}, Tmpfs={"/workspace": small, "/tmp": small}
        )
        assert (heard.end.outcome, heard.end.detail) == (Outcome.SETUP_FAILED, "disk_full")


class TestTheAgentItself:
    def test_it_answers_pings_while_a_guest_runs(self, start: Start) -> None:
        sandbox = start("python")
        sandbox.receive()
        sandbox.send({"t": "run", "language": "python"}, b"while True: pass")
        for number in range(3):
            sandbox.send({"t": "ping", "n": number})
            assert sandbox.receive() == ({"t": "pong", "n": number}, b"")

    def test_a_cancel_kills_whatever_runs(self, start: Start) -> None:
        """Also what ignores signals, and what is stopped."""
        sandbox = start()
        sandbox.receive()
        sandbox.send(
            {"t": "step"}, b"trap '' TERM INT; sleep 60 & kill -STOP $!; echo up; while :; do sleep 60; done"
        )
        sandbox.send({"t": "step"}, b"echo never")
        sandbox.send({"t": "go"})
        assert sandbox.receive()[1] == b"up\n"
        sandbox.send({"t": "cancel"})
        assert [header for header, _ in sandbox.until("result")] == [
            {"t": "step", "step": 0, "exit": 137},
            {"t": "result", "outcome": "completed", "detail": "", "truncated": False},
        ]

    def test_a_cancel_ends_a_fork_bomb(self, start: Start, runtime: str) -> None:
        """A gVisor of 2022 needs a host thread for every task and may come to its own limit first: then the sandbox is gone."""
        sandbox = start()
        sandbox.receive()
        sandbox.send({"t": "step"}, b"f() { f | f & }; f 2>/dev/null; sleep 60")
        sandbox.send({"t": "go"})
        time.sleep(1)
        try:
            sandbox.send({"t": "cancel"})
            assert sandbox.until("result")[-1][0]["outcome"] == "completed"
        except (EOFError, OSError):
            assert runtime == "runsc"
            sandbox.gone()

    def test_it_is_gone_when_the_host_is_gone(self, start: Start) -> None:
        sandbox = start("python")
        sandbox.receive()
        sandbox.send({"t": "run", "language": "python"}, b"import signal\nwhile True: signal.pause()")
        sandbox.stream.close()
        assert sandbox.gone() < 5

    @pytest.mark.parametrize(
        "said",
        [
            {"t": "shell"},
            {"t": "run"},
            {"x": 1},
            {"t": "put", "path": "../x"},
            {"t": "run", "language": "perl"},
        ],
    )
    def test_nonsense_ends_it(self, start: Start, said: dict[str, object]) -> None:
        sandbox = start()
        sandbox.receive()
        sandbox.send(said)
        if said["t" if "t" in said else "x"] == "put":
            sandbox.send({"t": "go"})
            assert sandbox.receive()[0] == {
                "t": "result",
                "outcome": "setup_failed",
                "detail": "path_refused",
                "truncated": False,
            }
            return
        with pytest.raises(EOFError):
            sandbox.receive()
        sandbox.gone()

    def test_it_serves_one_run(self, start: Start) -> None:
        sandbox = start("python")
        sandbox.run(Python("1"))
        sandbox.send({"t": "run", "language": "python"}, b"print(1)")
        with pytest.raises(EOFError):
            sandbox.receive()
