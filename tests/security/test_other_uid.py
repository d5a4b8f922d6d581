"""Another user of the same machine, even one whom the file system lets through, is refused by the Unix listener."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.service import DAEMON, end, environment

NOBODY = 65534
ASK = b"GET /v1/describe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CONNECT = """
import os, socket, sys
os.setgid({nobody}); os.setuid({nobody})
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(10)
peer.connect(sys.argv[1])
try:
    peer.sendall({ask!r})
    data = peer.recv(65536)
except OSError:
    data = b""
os.write(1, data)
"""


def asked(path: Path, *command: str) -> bytes:
    return subprocess.run([*command, str(path)], capture_output=True, timeout=30, check=True).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_unix_listener_answers_its_own_user_and_nobody_else(tmp_path: Path) -> None:
    # Directly under /tmp, whose parents everybody may enter: only the listener's own check is left to refuse.
    door = Path("/tmp") / f"plimsoll-door-{os.getpid()}"
    door.mkdir(mode=0o700)
    path = door / "api.sock"
    environ = environment(tmp_path / "data", PLIMSOLL_ADDR=f"unix:{path}", PLIMSOLL_INSECURE="1")
    process = subprocess.Popen([DAEMON], env=environ, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while not _listens(path):
            assert time.monotonic() < until
            time.sleep(0.05)
        door.chmod(0o755)
        path.chmod(0o666)
        # The plain interpreter: a virtual environment's may lie where another user cannot go, a child that drops to it can.
        program = CONNECT.format(nobody=NOBODY, ask=ASK)
        refused = asked(path, sys.executable, "-I", "-c", program)
        assert refused.startswith(b"HTTP/1.1 403")
        assert b'"not_dispatched":{"reason":"permission"}' in refused
        same = program.replace(f"os.setgid({NOBODY}); os.setuid({NOBODY})", "pass")
        assert asked(path, sys.executable, "-I", "-c", same).startswith(b"HTTP/1.1 200")
    finally:
        end(process)
        path.unlink(missing_ok=True)
        door.rmdir()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        return peer.connect_ex(str(path)) == 0
