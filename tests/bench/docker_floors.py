"""The same snippets in the same file system without this project: `docker run`, the bare runtime, bubblewrap."""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.docker import Daemon, runsc_platform

SNIPPETS: Final = {"python": "print(6*7)", "javascript": "console.log(6*7)"}
ANSWER: Final = b"42\n"
_COMMANDS: Final = {"python": ("/usr/bin/python3", "-c"), "javascript": ("/usr/bin/node", "-e")}
_PATIENCE_S: Final = 60.0


def available() -> tuple[bool, str]:
    """Whether there is a bubblewrap."""
    return shutil.which("bwrap") is not None, "bubblewrap is not installed (Debian package bubblewrap)"


def command(language: str) -> tuple[str, ...]:
    """An interpreter that runs the snippet from its command line."""
    return (*_COMMANDS[language], SNIPPETS[language])


def took(words: Sequence[str | Path], environ: dict[str, str] | None = None) -> float:
    """Milliseconds of a command that prints the snippet's answer."""
    began = time.perf_counter()
    done = subprocess.run(words, env=environ, capture_output=True, timeout=_PATIENCE_S, check=False)
    spent = 1000 * (time.perf_counter() - began)
    if done.returncode or done.stdout != ANSWER:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return spent


@dataclass(frozen=True, slots=True)
class Floors:
    """An image, and its file system unpacked in `place`."""

    daemon: Daemon
    image: str
    place: Path

    def docker_run(self, runtime: str, language: str) -> float:
        """The docker command with a new container."""
        entry, *words = command(language)
        options = ("--rm", "--network", "none", "--runtime", runtime, "--entrypoint", entry)
        return took(("docker", "run", *options, self.image, *words), self.daemon.environment)

    def raw(self, runtime: str, language: str) -> float:
        """The runtime itself, which a docker daemon and its containerd would call."""
        flags = (f"--platform={runsc_platform()}", "--network=none") if runtime == "runsc" else ()
        name = f"bench-{secrets.token_hex(8)}"
        return took(
            (runtime, "--root", self.place / "state", *flags, "run", "--bundle", self.place / language, name)
        )

    def bubblewrap(self, language: str) -> float:
        """Namespaces and nothing else: the host's kernel, no limits, no seccomp profile."""
        mounts = (
            "--ro-bind",
            self.place / "rootfs",
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
        )
        return took(("bwrap", "--unshare-all", "--die-with-parent", *mounts, *command(language)))


@contextlib.contextmanager
def unpacked(daemon: Daemon, image: str, place: Path) -> Iterator[Floors]:
    """The image's file system, and a bundle for each snippet."""
    root = place / "rootfs"
    root.mkdir(parents=True)
    container = daemon.docker("create", "--network", "none", image).strip()
    try:
        with subprocess.Popen(
            ["docker", "export", container], env=daemon.environment, stdout=subprocess.PIPE
        ) as sent:
            subprocess.run(["tar", "-x", "-C", root], stdin=sent.stdout, timeout=_PATIENCE_S, check=True)
    finally:
        daemon.docker("rm", container)
    for language in SNIPPETS:
        bundle = place / language
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(_bundle(root, command(language))))
    yield Floors(daemon, image, place)


def _bundle(root: Path, words: Sequence[str]) -> dict[str, Any]:
    """The least that runs: own namespaces, nothing writable but memory, no capability."""
    spaces = ("pid", "network", "ipc", "uts", "mount")
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(words),
            "env": [f"PATH={os.defpath}"],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "hostname": "sandbox",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            *({"destination": each, "type": "tmpfs", "source": "tmpfs"} for each in ("/dev", "/tmp")),
        ],
        "linux": {"namespaces": [{"type": each} for each in spaces]},
    }
