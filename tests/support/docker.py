"""A docker daemon of the tests' own, the sandbox image in it, and one container spoken to as a provider speaks to it.

Raw and small on purpose: HTTP over the daemon's socket and a hijacked stream, so that what is measured is the container.
"""

import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import re
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from plimsoll.contract import frames
from providers.docker import manifest
from providers.docker.frames import Event, Runnable, Talk
from providers.docker.names import uid_of
from providers.docker.recipe import recipe
from providers.docker.settings import DockerSettings

ROOT = Path(__file__).resolve().parents[2]
MAX_FRAME = 1 << 20
MANIFEST = ROOT / "build" / "images" / "plimsoll-sandbox.json"
"""Where a build says what is in the image; a copy is in the data of every daemon that has the image."""
API = "/v1.41"

Answer = tuple[bool, str]


def available() -> Answer:
    """Whether this machine can have a daemon of ours."""
    missing = [tool for tool in ("docker", "dockerd", "mmdebstrap") if not shutil.which(tool)]
    if missing:
        return False, f"not installed: {', '.join(missing)}"
    return os.geteuid() == 0, "starting a docker daemon takes root"


def runsc_available() -> Answer:
    """Whether there is a gVisor to give that daemon."""
    found, why = available()
    return (shutil.which("runsc") is not None, "runsc is not installed") if found else (found, why)


def runsc_platform() -> str:
    """Systrap where this runsc knows it (from 2023 on), else ptrace."""
    said = subprocess.run(["runsc", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"20\d{6}", said)
    return "systrap" if found and found[0] >= "2023" else "ptrace"


class Unix(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float = 60) -> None:
        super().__init__("docker", timeout=timeout)
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass
class Daemon:
    """A dockerd, running unless it was killed."""

    place: Path
    process: "subprocess.Popen[bytes]" = field(repr=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """Without a word to anybody."""
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> None:
        """In order, with all its containers."""
        self.process.terminate()
        self.process.wait(60)

    def start_again(self) -> None:
        """With all that it had before."""
        _end_of_containerd(self.place)
        self.process = _launched(self.place)
        _wait_for(self)

    @property
    def socket(self) -> str:
        return str(self.place / "docker.sock")

    @property
    def host(self) -> str:
        """As a client is told of it."""
        return f"unix://{self.socket}"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": self.host}

    def settings(self, image: str) -> dict[str, str]:
        """What a service is told to find this daemon and that image."""
        return {"SANDBOX_DOCKER_HOST": self.host, "SANDBOX_DOCKER_IMAGE": image}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request; the answer's JSON. Raises AssertionError with the daemon's words unless it is a success."""
        with contextlib.closing(Unix(self.socket)) as connection:
            data = None if body is None else json.dumps(body)
            connection.request(method, API + path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        assert answer.status < 300, (method, path, answer.status, said)
        return json.loads(said) if said.strip() else None

    def docker(self, *words: str, timeout: float = 120) -> str:
        """The docker command against this daemon; its stdout."""
        done = subprocess.run(
            ["docker", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def daemon(place: Path) -> Iterator[Daemon]:
    """A dockerd with everything it owns below `place`, without any network; ended, with its containers, on the way out."""
    config = {"bridge": "none", "iptables": False, "ip6tables": False, "data-root": str(place / "data")}
    config |= {"exec-root": str(place / "exec"), "pidfile": str(place / "pid")}
    if runsc_available()[0]:
        words = [f"--platform={runsc_platform()}", "--network=none"]
        config["runtimes"] = {"runsc": {"path": shutil.which("runsc"), "runtimeArgs": words}}
    (place / "daemon.json").write_text(json.dumps(config))
    found = Daemon(place, _launched(place))
    try:
        _wait_for(found)
        yield found
        _remove_all(found)
    finally:
        found.process.terminate()
        found.process.wait(30)
        _unmount(place)


def _unmount(place: Path) -> None:
    """What a daemon that was killed left mounted."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed(mounted):
        if Path(point).is_relative_to(place):
            subprocess.run(["umount", "--lazy", point], check=False, timeout=30)


def _end_of_containerd(place: Path) -> None:
    """Of the one that dies with its killed dockerd. A dead one that nobody has reaped yet would be taken for a living one."""
    noted = place / "exec" / "containerd" / "containerd.pid"
    deadline = time.monotonic() + 30
    while noted.exists() and time.monotonic() < deadline:
        try:
            dead = Path(f"/proc/{noted.read_text()}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            dead = True
        if dead:
            noted.unlink()
        time.sleep(0.02)


def _launched(place: Path) -> "subprocess.Popen[bytes]":
    with (place / "log").open("ab") as log:
        return subprocess.Popen(
            ["dockerd", "--config-file", place / "daemon.json", "-H", f"unix://{place / 'docker.sock'}"],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def _wait_for(found: Daemon) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert found.process.poll() is None, (found.place / "log").read_text()
        with contextlib.suppress(OSError):
            found.call("GET", "/version")
            return
        time.sleep(0.05)
    raise TimeoutError((found.place / "log").read_text())


def _remove_all(found: Daemon) -> None:
    for container in found.call("GET", "/containers/json?all=1"):
        _remove(found, container["Id"])


def _remove(found: Daemon, container: str) -> None:
    """By force; one that is gone or going is fine."""
    with contextlib.closing(Unix(found.socket)) as connection:
        connection.request("DELETE", f"{API}/containers/{container}?force=1&v=1")
        assert connection.getresponse().status in {204, 404, 409}


def prepare(place: Path) -> str:
    """Put what a daemon with the sandbox image keeps below `place`; the image's content id.

    The first that asks builds the image as `make images` does, and what its daemon kept stays in the cache under the digest of
    what the image is made of: every other daemon starts with a copy. So does its software identity, which takes seconds of a
    processor to compute: see `state_knowing`.
    """
    cache = Path(os.environ.get("PLIMSOLL_CACHE_DIR") or Path.home() / ".cache" / "plimsoll") / "tests"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = cache / _inputs()
        if not (kept / "plimsoll-identity").exists():
            for older in cache.iterdir():
                if older.is_dir():
                    shutil.rmtree(older)
            with tempfile.TemporaryDirectory(prefix="pd-") as first:
                with daemon(Path(first)) as found:
                    image = build_image(found)
                    identity = identity_of(found, image)
                making = cache / "making"
                subprocess.run(["cp", "-a", Path(first) / "data", making], check=True, timeout=300)
                (making / "plimsoll-image").write_text(image)
                (making / "plimsoll-identity").write_text(identity)
                shutil.copy(MANIFEST, making)
                making.rename(kept)
        subprocess.run(["cp", "-a", kept, place / "data"], check=True, timeout=300)
    image = (place / "data" / "plimsoll-image").read_text()
    _IDENTITIES[image] = (place / "data" / "plimsoll-identity").read_text()
    return image


_IDENTITIES: dict[str, str] = {}
"""By content id, of the images that `prepare` made."""


def identity_of(found: Daemon, image: str) -> str:
    """By the program that shares nothing with the service."""
    with subprocess.Popen(["docker", "save", image], env=found.environment, stdout=subprocess.PIPE) as saved:
        program = [sys.executable, str(ROOT / "deploy" / "images" / "identity.py"), image]
        done = subprocess.run(program, stdin=saved.stdout, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def state_knowing(image: str, place: Path) -> str:
    """A provider's state directory that has the image's identity, as if one had looked before.

    What it would compute is the same: tests/integration/docker/test_manifest.py.
    """
    if image in _IDENTITIES:
        for each in (*reversed(place.parents), place):  # `parents=True` would leave them open to others
            each.mkdir(mode=0o700, exist_ok=True)
        manifest.remember(place, image, _IDENTITIES[image])
    return str(place)


def _inputs() -> str:
    """The digest of everything that decides what the image is, but for the base's packages, which are kept by their recipe."""
    found = hashlib.sha256()
    for place in ("deploy/images", "providers/docker/agent"):
        for file in sorted((ROOT / place).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(f"{file.relative_to(ROOT)} {file.stat().st_size}\n".encode())
                found.update(file.read_bytes())
    return found.hexdigest()[:16]


def build_image(found: Daemon) -> str:
    """The sandbox image as `make images` builds it where there is no registry; its content id."""
    done = subprocess.run(
        [ROOT / "deploy" / "images" / "build.sh", "--from-packages"],
        env=found.environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        check=True,
    )
    return done.stdout.strip()


def body(image: str, runtime: str, warm: Sequence[str], **changes: Any) -> dict[str, Any]:
    """The product's recipe, with any interpreters warm and uids of its own; `changes` replaces entries of HostConfig.

    In their file systems `{guest}` is the guest's uid.
    """
    settings = DockerSettings(provider=f"docker@{runtime}", state_dir="/nonexistent", runtime=runtime)
    made = recipe(settings, image, None, uid_of(secrets.token_hex(16)), gvisor=runtime != "runc")
    guest = int(made["Cmd"][0]) + 1
    if "Tmpfs" in changes:
        changes["Tmpfs"] = {place: words.format(guest=guest) for place, words in changes["Tmpfs"].items()}
    return made | {"Cmd": [*made["Cmd"], *warm], "HostConfig": made["HostConfig"] | changes}


@dataclass
class Sandbox:
    """One container, attached before it was started."""

    daemon: Daemon
    id: str
    stream: socket.socket
    runtime: str
    uid: int
    """The agent's; the guest's is the next one."""
    _rest: bytearray = field(default_factory=bytearray)
    _decoder: frames.Decoder = field(default_factory=lambda: frames.Decoder(MAX_FRAME))
    _ready: list[frames.Frame] = field(default_factory=list)
    complaints: bytearray = field(default_factory=bytearray)

    @classmethod
    def start(cls, found: Daemon, image: str, runtime: str, *warm: str, **changes: Any) -> Self:
        asked = body(image, runtime, warm, **changes)
        made = found.call("POST", "/containers/create", asked)
        stream, rest = _attach(found, made["Id"])
        try:
            found.call("POST", f"/containers/{made['Id']}/start")
        except AssertionError:
            stream.close()
            raise
        return cls(found, made["Id"], stream, runtime, int(asked["Cmd"][0]), rest)

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        self.stream.sendall(frames.encode(header, body, limit=MAX_FRAME))

    def receive(self) -> frames.Frame:
        """The agent's next frame. Raises EOFError."""
        while not self._ready:
            self._ready += self._decoder.feed(self._demultiplexed())
        return self._ready.pop(0)

    def until(self, word: str) -> list[frames.Frame]:
        """The frames up to and with the first of that type."""
        seen = [self.receive()]
        while seen[-1][0]["t"] != word:
            seen.append(self.receive())
        return seen

    def _demultiplexed(self) -> bytes:
        """The next piece of stdout; what comes on stderr is kept apart."""
        kind, length = struct.unpack(">BxxxI", self._take(8))
        data = self._take(length)
        if kind == 1:
            return data
        self.complaints += data
        return b""

    def _take(self, count: int) -> bytes:
        while len(self._rest) < count:
            data = self.stream.recv(1 << 20)
            if not data:
                raise EOFError(bytes(self.complaints))
            self._rest += data
        taken = bytes(self._rest[:count])
        del self._rest[:count]
        return taken

    def run(self, payload: Runnable, talk: Talk | None = None) -> list[Event]:
        """One whole run, heard by the machine that providers use."""
        talk = talk or Talk()
        for frame in talk.begin(payload):
            self.stream.sendall(frame)
        events: list[Event] = []
        while not talk.over:
            events += self.feed(talk)
        return events

    def feed(self, talk: Talk) -> list[Event]:
        """What the next piece of the stream means."""
        return list(talk.feed(self._demultiplexed()))

    def gone(self, timeout: float = 20) -> float:
        """Wait until the daemon knows it no more; seconds that took."""
        began = time.monotonic()
        while time.monotonic() < began + timeout:
            if not any(one["Id"] == self.id for one in self.daemon.call("GET", "/containers/json?all=1")):
                return time.monotonic() - began
            time.sleep(0.01)
        raise TimeoutError(self.id)

    def destroy(self) -> None:
        """Cut the stream first: unread output holds a kill up."""
        self.stream.close()
        _remove(self.daemon, self.id)

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.daemon.call("GET", f"/containers/{self.id}/json")["State"]
        return found


def _attach(found: Daemon, container: str) -> tuple[socket.socket, bytearray]:
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(60)
    stream.connect(found.socket)
    target = f"{API}/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1"
    stream.sendall(
        f"POST {target} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode()
    )
    got = bytearray()
    while b"\r\n\r\n" not in got:
        got += stream.recv(1 << 16)
    head, _, rest = bytes(got).partition(b"\r\n\r\n")
    assert b" 101 " in head.splitlines()[0], head
    return stream, bytearray(rest)
