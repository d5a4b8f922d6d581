"""A process that is unkind to a listener: `python -m tests.integration.http.attacker KIND PORT CONNECTIONS`.

Prints a line once all its connections are up, and works until it is ended. Connections come from 127.0.0.2 and up, 250 each.
"""

import asyncio
import contextlib
import sys

from app.identity import mint_token
from tests.integration.http.wire import RUN, head, with_body

PER_ADDRESS = 250
PACE_S = 0.02


async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One byte of a header a second."""
    for byte in head("GET", "/v1/runs", "X: " + "a" * 1000):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1)


async def headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Headers over every limit, as fast as they are refused."""
    writer.write(b"GET /v1/runs HTTP/1.1\r\n" + b"X: a\r\n" * 4000)
    await reader.read()


async def tokens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Requests with a token that is well-formed and unknown."""
    unknown = with_body(RUN, token=mint_token(lambda size: b"u" * size))
    while True:
        writer.write(unknown)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        await asyncio.sleep(PACE_S)


async def hammer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Requests with garbage for a token on a kept connection, as fast as they are answered."""
    garbage = head("GET", "/v1/describe", token="x")
    while True:
        writer.write(garbage)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)


async def attack(kind: str, port: int, number: int, up: asyncio.Semaphore) -> None:
    act = {"slow": slow, "headers": headers, "tokens": tokens, "hammer": hammer}[kind]
    source = f"127.0.0.{2 + number // PER_ADDRESS}"
    first = True
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            if first:
                first = False
                up.release()
            try:
                await act(reader, writer)
            finally:
                writer.close()
        await asyncio.sleep(PACE_S)


async def main(kind: str, port: int, connections: int) -> None:
    up = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(attack(kind, port, number, up))
            if number % 50 == 0:
                await asyncio.sleep(0.02)
        for _ in range(connections):
            await up.acquire()
        print("up", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
