"""What a guest's call is measured against, in a process of its own: `python -m tests.bench.call_servers SOCKET`.

An API that answers at once, on the port that is printed, and an echo: a Unix socket that takes what a broker takes and gives
back as many bytes as a broker does, without policy, credential or API.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

BODY = json.dumps({"employees": [{"id": number, "name": f"n{number}"} for number in range(10)]}).encode()
API = (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY)) + BODY
_SAID = json.dumps(
    {"status": 200, "headers": {"content-type": "application/json"}, "body": BODY.decode()}
).encode()
ECHO = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_SAID)
) + _SAID


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def serving(answer: bytes) -> Serve:
    """Answers every request on a connection with the same bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                for line in head.lower().splitlines():
                    if line.startswith(b"content-length:"):
                        await reader.readexactly(int(line.partition(b":")[2]))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    return serve


async def main(path: str) -> None:
    api = await asyncio.start_server(serving(API), "127.0.0.1", 0)
    echo = await asyncio.start_unix_server(serving(ECHO), path)
    print(api.sockets[0].getsockname()[1], flush=True)
    async with api, echo:
        await asyncio.get_running_loop().run_in_executor(
            None, sys.stdin.read
        )  # until whoever started it goes


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
