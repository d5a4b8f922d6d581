"""A broker's process without a service: keys, a socket, and what is said to it."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from app.dispatch.broker import BrokerProcess, BrokerSupervisor, User, spawn_broker
from app.dispatch.brokerlink import BrokerLink
from app.vault import keys
from app.vault.seal import binding_of, seal
from plimsoll.contract.leases import Registration
from plimsoll.contract.profiles import Profile

WORKER = "effect/b0"


class Place:
    """Keys, a socket, and brokers on it."""

    def __init__(self, folder: Path, user: User | None = None) -> None:
        self.folder, self.user = folder, user
        self.private, self.public = folder / "key" / "private", folder / "public"
        (folder / "key").mkdir(mode=0o700)
        keys.make_pair(self.private, self.public)
        if user:
            for path in (self.private.parent, self.private):
                os.chown(path, user.uid, user.gid)
        self.control = secrets.token_hex(32)
        self.path = folder / "door" / "socket"
        self.path.parent.mkdir(mode=0o700)
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(self.path))
        self.listening.listen(1024)
        self.url = f"unix://{self.path}"

    def spawn(self, **more: object) -> BrokerProcess:
        told = {
            "key": str(self.private),
            "control": self.control,
            "networks": "127.0.0.0/8",
            "peers": [os.geteuid()],
        }
        return spawn_broker(told | more, self.listening, self.user)

    def registration(self, profile: Profile, secret: bytes, run_id: str = "a" * 32) -> Registration:
        sealed = seal(secret, binding_of(profile), keys.read_public(self.public))
        return Registration(run_id, profile, sealed, "caller-7", "reporting", WORKER, 30.0)

    def worker(self, secret: str, run_id: str = "a" * 32) -> dict[str, str]:
        return {"authorization": f"Bearer {secret}", "plimsoll-run": run_id, "plimsoll-worker": WORKER}


@contextmanager
def placed(user: User | None = None) -> Iterator[Place]:
    # Directly under /tmp, whose parents everybody may enter: only what is tested is left to refuse.
    with TemporaryDirectory(prefix="pb-") as folder:
        Path(folder).chmod(0o755)
        place = Place(Path(folder), user)
        with place.listening:
            yield place


@asynccontextmanager
async def serving(place: Place, **more: object) -> AsyncIterator[tuple[BrokerLink, BrokerSupervisor]]:
    async with BrokerSupervisor(place.spawn(**more)) as broker, BrokerLink(place.url, place.control) as link:
        async with asyncio.timeout(60):
            await broker.serving.wait()
        yield link, broker
