"""Runs inside a sandbox: what ordinary Python programs use. Prints `ok` at the end."""

import asyncio
import concurrent.futures
import ctypes
import hashlib
import json
import lzma
import mmap
import multiprocessing
import os
import pathlib
import queue
import random
import secrets
import select
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import zoneinfo


def files() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        (place / "a").write_bytes(bytes(range(256)))
        shutil.copy2(place / "a", place / "b")
        shutil.copytree(place, place.with_suffix(".copy"))
        (place / "link").symlink_to("a")
        os.link(place / "a", place / "hard")
        (place / "b").rename(place / "c")
        assert (place / "c").read_bytes() == (place / "link").read_bytes()
        with (place / "map").open("w+b") as file:
            file.truncate(8192)
            with mmap.mmap(file.fileno(), 0) as mapped:
                mapped[:2] = b"ok"
                mapped.flush()
        shutil.make_archive(str(place / "packed"), "gztar", place.with_suffix(".copy"))
        with sqlite3.connect(place / "db") as database:
            database.execute("create table t (a)")
            database.execute("insert into t values (1)")
        assert shutil.disk_usage(place).total > 0


def threads() -> None:
    done: queue.Queue[int] = queue.Queue()
    workers = [threading.Thread(target=done.put, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert done.qsize() == 8
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(len, ["a", "bb"])) == 3


def processes() -> None:
    assert subprocess.run(["/bin/echo", "hi"], capture_output=True, check=True).stdout == b"hi\n"
    piped = subprocess.run("seq 3 | sort -r | head -1", shell=True, capture_output=True, check=True)
    assert piped.stdout == b"3\n"
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
    slow = subprocess.Popen(["sleep", "60"])
    slow.terminate()
    assert slow.wait(10) == -signal.SIGTERM


async def loop() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hi\n")
        assert await reader.read() == b"HI\n"
        writer.close()
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    assert (await child.communicate(b"x"))[0] == b"x"
    await asyncio.wait_for(asyncio.sleep(0.01), 1)


def sockets() -> None:
    left, right = socket.socketpair()
    left.sendall(b"x")
    assert select.select([right], [], [], 1)[0]
    assert socket.getaddrinfo("localhost", 80)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.sendto(b"y", one.getsockname())
        assert one.recv(9) == b"y"


def rest() -> None:
    ssl.create_default_context()
    assert hashlib.sha256(secrets.token_bytes(9)).digest()
    assert lzma.decompress(lzma.compress(b"z")) == b"z"
    assert json.loads(json.dumps({"a": [1.5, None]}))
    assert zoneinfo.available_timezones() is not None
    assert ctypes.CDLL(None).getpid() == os.getpid()
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.pause()
    time.sleep(0.001)
    random.random()
    assert os.sched_getaffinity(0)
    assert os.uname().sysname == "Linux"


files()
threads()
processes()
asyncio.run(loop())
sockets()
rest()
print("ok", file=sys.stdout)
