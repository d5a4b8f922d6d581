"""A stand-in for `plimsolld --private-fd N`: its end of the private protocol, with faults on request (STUB_MODE)."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))


def main() -> None:
    mode = os.environ.get("STUB_MODE", "ok")
    ours = socket.socket(fileno=int(sys.argv[sys.argv.index("--private-fd") + 1]))
    token = ours.makefile("rb").readline().strip().decode()
    if mode == "exit":
        sys.stderr.write("cannot find the moon\n")
        sys.exit(3)
    if mode == "silent":
        time.sleep(60)
    if mode == "late":
        time.sleep(0.5)
    if mode == "garbage":
        ours.sendall(b"hello\n")
        time.sleep(60)
    if mode == "refuse":
        ours.sendall(b'{"ready": false, "errors": ["SANDBOX_PROVIDER: unknown provider"]}\n')
        sys.exit(2)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    path = str(Path(os.environ["PLIMSOLL_DATA_DIR"]) / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    threading.Thread(target=serve, args=(listener, token), daemon=True).start()
    ours.sendall(json.dumps({"ready": True, "socket": path, "version": "0"}).encode() + b"\n")
    ours.recv(1)
    if mode == "stubborn":
        time.sleep(60)


def serve(listener: socket.socket, token: str) -> None:
    from tests.integration.client.stub import Seen, answer  # noqa: PLC0415 - after the path

    with listener:
        number = 0
        while True:
            connection, _ = listener.accept()
            number += 1
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65536)
            head, _, body = data.partition(b"\r\n\r\n")
            seen = Seen(head.decode(), body)
            while len(seen.body) < int(seen.header("content-length")):
                seen.body += connection.recv(65536)
            assert seen.header("authorization") == f"Bearer {token}"
            about = {
                "environment": dict(os.environ),
                "fds": [entry.name for entry in Path("/proc/self/fd").iterdir()],
            }
            output = json.dumps(about).encode()
            connection.sendall(answer(seen, seen.honest(stdout=output, instance=f"wasm-vm:{number:032x}")))
            connection.close()


main()
