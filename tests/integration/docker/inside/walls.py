"""Runs inside a sandbox as the guest: where it can write, how much, and whom it can reach. Output: JSON."""

import errno
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path


def attempt(work: Callable[[], object]) -> str:
    try:
        work()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "done"


def folders() -> list[Path]:
    """Every folder that can be seen, but for the kernel's own file systems."""
    found = []
    for name, below, _ in os.walk("/"):
        below[:] = [one for one in below if Path(name, one) not in {Path("/proc"), Path("/sys")}]
        found.append(Path(name))
    return found


def writable() -> list[str]:
    """The topmost folders in which a file can be made."""
    able = []
    for folder in folders():
        if attempt(partial((folder / ".try").write_bytes, b"")) == "done":
            (folder / ".try").unlink()
            able.append(str(folder))
    return [name for name in able if not any(name.startswith(other + "/") for other in able)]


def fill(folder: str) -> str:
    """Until it is full; nothing stays."""
    target = Path(folder, "filler")
    with target.open("wb", buffering=0) as file:
        try:
            for _ in range(256):
                file.write(bytes(1 << 20))
            return "never full"
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        finally:
            target.unlink()


def execute(folder: str) -> str:
    program = Path(folder, "true")
    shutil.copy("/bin/true", program)
    program.chmod(0o755)
    return attempt(lambda: subprocess.run([program], check=True))


def reach(family: int, address: tuple[str, int]) -> str:
    def connect() -> None:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.settimeout(3)
            one.connect(address)

    return attempt(connect)


def send(address: tuple[str, int]) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return attempt(lambda: one.sendto(b"x", address))


able = writable()
devices = Path("/proc/net/dev").read_text().splitlines()
print(
    json.dumps(
        {
            "writable": able,
            "full": {folder: fill(folder) for folder in able},
            "execute": {folder: execute(folder) for folder in ("/workspace", "/tmp")},
            "metadata": reach(socket.AF_INET, ("169.254.169.254", 80)),
            "outside": reach(socket.AF_INET, ("192.0.2.1", 80)),
            "outside6": reach(socket.AF_INET6, ("2001:db8::1", 80)),
            "datagram": send(("192.0.2.1", 53)),
            "names": attempt(lambda: socket.getaddrinfo("example.org", 80)),
            "interfaces": [line.split(":")[0].strip() for line in devices[2:]],
        }
    )
)
