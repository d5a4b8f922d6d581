"""What a program prints leaves line by line, also when there were many lines, and nothing else about it changes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from providers.docker.agent import lines

AGENT = str(Path(lines.__file__).parent)
MANY = f"for i in range({lines.LINES + 1}): print(i)\n"
WAIT = "\nsys.stdin.read()\n"


@contextmanager
def program(code: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python as those of the sandbox, which goes on until it is killed."""
    begin = f"import sys; sys.path.insert(0, {AGENT!r}); import lines; lines.main()\n"
    command = [sys.executable, "-I", *flags, "-c", begin + code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(code: str, last: bytes, *flags: str) -> bytes:
    """What it prints up to its last line, while it goes on."""
    with program(code + WAIT, *flags) as process:
        assert process.stdout is not None
        said = b""
        while not said.endswith(last):
            line = process.stdout.readline()
            assert line, said
            said += line
        return said


def whole(code: str, *flags: str) -> bytes:
    """All that it prints until it ends by itself."""
    with program(code, *flags) as process:
        said, _ = process.communicate(timeout=60)
        return said


@pytest.mark.parametrize(
    "code", ["print('a')", "sys.stdout.write('a\\n')", "sys.stdout.buffer.write(b'a\\n')"]
)
def test_a_line_leaves_while_its_program_goes_on(code: str) -> None:
    assert heard(code, b"a\n") == b"a\n"


def test_the_last_of_many_lines_leaves_too() -> None:
    assert heard(MANY + "print('last')", b"last\n").count(b"\n") == lines.LINES + 2


LOOK = "print(sys.stdout.line_buffering, sys.stdout.write_through, sorted(vars(sys.stdout.buffer)))"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", b"True False ['write']"),
        (MANY, b"False True ['write']"),
        (f"print('x' * {lines.KEPT})\n", b"False False []"),
        (f"for i in range({lines.KEPT // 4}): print(i)\n", b"False False []"),
    ],
    ids=["few", "many", "long", "all"],
)
def test_once_as_much_has_left_as_a_run_keeps_output_is_gathered_as_ever(code: str, said: bytes) -> None:
    assert whole(code + LOOK).splitlines()[-1] == said


def test_a_program_that_ends_itself_has_said_it() -> None:
    assert whole("import os\nprint('a'); os._exit(0)") == b"a\n"
    assert whole("import os\nprint('a'); os.kill(os.getpid(), 9)") == b"a\n"


@pytest.mark.parametrize("before", ["", MANY])
def test_a_forked_child_has_its_lines_leave(before: str) -> None:
    code = f"import os\n{before}sys.stdout.flush()\nif os.fork() == 0: print('child'); os._exit(0)\nos.wait()"
    assert heard(code, b"child\n").count(b"child") == 1


def test_what_threads_print_is_all_there() -> None:
    code = """
import threading
def talk():
    for _ in range(2000): print("abcdef")
threads = [threading.Thread(target=talk) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
print(threading.active_count())
"""
    said = whole(code)
    assert (said.count(b"abcdef"), said.count(b"\n"), said[-3:]) == (8_000, 8_001, b"\n1\n")


def test_a_program_that_waits_for_a_signal_gets_it() -> None:
    code = f"""
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
{MANY}
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1)
"""
    assert whole(code).splitlines()[-1] == b"True"


def test_a_reader_that_is_gone_is_told_to_the_program_alone() -> None:
    code = MANY + "import time\nfor i in range(100): time.sleep(0.01); print('x' * 1000)"
    with program(code) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) in {1, 120}


@pytest.mark.parametrize(
    "code",
    [
        "out = sys.stdout.detach()\nfor i in range(9000): out.write(b'%08d\\n' % i)\nout.flush()",
        "import io; sys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nfor i in range(9000): print(f'{i:08}')",
        "sys.stdout.reconfigure(encoding='utf-16-le')\nfor i in range(9000): print(f'{i:03}'[:3])",
        "for i in range(9000): os.write(1, b'%08d\\n' % i)",
        "for i in range(9000): print(f'{i:08}')\nsys.stdout.close()",
    ],
    ids=["taken out", "wrapped anew", "another encoding", "past it", "closed"],
)
def test_whatever_a_program_does_with_its_stream_comes_to_the_same(code: str) -> None:
    code = f"import os, sys\n{code}"
    plain = subprocess.run(
        [sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, check=False, timeout=60
    )
    with program(code) as process:
        said, _ = process.communicate(timeout=60)
    assert (said, process.returncode) == (plain.stdout, plain.returncode)
    assert len(said) > lines.KEPT


def test_buffering_that_was_chosen_stays() -> None:
    assert whole("print(sys.stdout.line_buffering, sys.stdout.write_through)", "-u") == b"False True\n"


def test_an_end_right_after_many_lines_loses_nothing() -> None:
    for _ in range(5):
        assert whole(MANY + "import atexit; atexit.register(print, 'end')").splitlines()[-1] == b"end"
