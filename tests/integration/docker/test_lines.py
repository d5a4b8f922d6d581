"""Every Python of a sandbox has its lines leave as they are printed: nobody has to flush for a stream or for a deadline."""

import pytest

from tests.integration.docker.conftest import Start

PROGRAM = "print('a'); import time; time.sleep(600)"
MANY = "for i in range(5000): print(i)\nprint('a'); import time; time.sleep(600)"


@pytest.mark.parametrize("code", [PROGRAM, MANY], ids=["one line", "many lines"])
def test_a_line_of_a_snippet_that_goes_on(start: Start, code: str) -> None:
    sandbox = start("python")
    sandbox.receive()
    sandbox.send({"t": "run", "language": "python"}, code.encode())
    said = b""
    while not said.endswith(b"a\n"):
        said += sandbox.until("out")[-1][1]


@pytest.mark.parametrize(
    "command", ["python3 main.py", 'python3 -c "$(cat main.py)"', "python3 main.py | cat"]
)
def test_a_line_of_a_step_that_goes_on(start: Start, command: str) -> None:
    sandbox = start()
    sandbox.receive()
    sandbox.send({"t": "put", "path": "main.py"}, PROGRAM.encode())
    sandbox.send({"t": "step"}, command.encode())
    sandbox.send({"t": "go"})
    assert sandbox.until("out")[-1][1] == b"a\n"
