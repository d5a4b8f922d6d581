"""A process that holds a pool of containers until it is killed: `hold_pool.py SOCKET IMAGE RUNTIME STATE_DIR`.

It says `held` when two wait for each language and one is taken.
"""

import asyncio
import sys

from providers.docker.container import Container
from providers.docker.daemon import Daemon
from providers.docker.names import Names
from providers.docker.pool import Pool
from providers.docker.settings import DockerSettings


async def hold(socket: str, image: str, runtime: str, state_dir: str) -> None:
    settings = DockerSettings("docker", state_dir, host=f"unix://{socket}", runtime=runtime)
    with Names(state_dir, settings.host) as names:
        async with (
            Daemon(settings.host) as daemon,
            Pool(daemon, settings, image, runtime != "runc", names, examine, print) as pool,
        ):
            await pool.take("python")
            while pool.waiting() < 2 * settings.pool:
                await asyncio.sleep(0.02)
            print("held", flush=True)
            await asyncio.Event().wait()


async def examine(_: Container) -> None:
    """Anything will do."""


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:]))
