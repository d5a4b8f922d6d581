"""Credentials from minters of the operator's own: a program, or an HTTP service.

Both are defined in the broker's own settings, and a profile may only name one: whoever can write profiles must not choose
what is started or asked, nor to which API the result goes: each lists the `origins` it mints for. Both are told for whom as
one JSON object, and have a deadline and a bound on what they say.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker.addresses import AddressFault
from broker.credential import Credential, CredentialFault, Place, attach
from broker.message import Answered, Pairs
from broker.mint import MintFault, Order
from broker.upstream import Sending, Upstream, UpstreamFault
from plimsoll.contract.grants import Origin, parse_route

HOOK_S: Final = 3.0
"""The service waits four seconds for a lease, and a credential that comes later is of no use to anybody."""
OUTPUT_BYTES: Final = 32 << 10
_ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_BOUND: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("bound.py")))
"""What a program is started by, so that it does not outlive a broker that is killed."""
_OK: Final = 200


def _told(order: Order, audience: str) -> bytes:
    told: dict[str, Any] = {
        "profile": order.profile,
        "caller": order.caller,
        "run_id": order.run_id,
        "audience": audience,
        "budget_s": order.budget_s,
    }
    return json.dumps(told).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class ExecHook:
    """A program. It reads the order on stdin, and writes the credential on stdout, as one line, and exits with 0.

    Its environment is a PATH, a LANG and what is listed here; its stderr goes nowhere, because it could hold secrets.
    """

    command: tuple[str, ...]
    origins: frozenset[str]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = HOOK_S

    def __post_init__(self) -> None:
        """Refuse a program that a search path would choose."""
        if not self.command or not self.command[0].startswith("/"):
            raise CredentialFault("a hook's command must start with an absolute path")


class ExecMinter:
    """Starts the program for each run."""

    def __init__(self, hook: ExecHook, audience: str, place: Place) -> None:
        """Credentials for `audience`, attached at `place`."""
        self._hook, self._audience, self._place = hook, audience, place

    async def mint(self, order: Order) -> Credential | MintFault:
        if not os.access(self._hook.command[0], os.X_OK):
            return MintFault.HOOK_UNAVAILABLE
        try:
            process = await asyncio.create_subprocess_exec(
                *_BOUND,
                str(os.getpid()),
                *self._hook.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=_ENVIRONMENT | dict(self._hook.environment),
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            return MintFault.HOOK_UNAVAILABLE
        try:
            async with asyncio.timeout(self._hook.timeout_s):
                output = await _talk(process, _told(order, self._audience))
        except TimeoutError:
            return MintFault.HOOK_TIMEOUT
        finally:
            await _end(process)
        return output if isinstance(output, MintFault) else _attached(output, self._place)


async def _talk(process: asyncio.subprocess.Process, told: bytes) -> bytes | MintFault:
    assert process.stdin is not None  # noqa: S101 - it was asked for
    assert process.stdout is not None  # noqa: S101 - as above
    with suppress(ConnectionError):  # it need not read
        process.stdin.write(told)
        await process.stdin.drain()
    process.stdin.close()
    output = bytearray()
    while part := await process.stdout.read(OUTPUT_BYTES):
        output += part
        if len(output) > OUTPUT_BYTES:
            return MintFault.HOOK_OUTPUT
    return bytes(output) if await process.wait() == 0 else MintFault.HOOK_FAILED


async def _end(process: asyncio.subprocess.Process) -> None:
    """The program is over, and whatever it left in its process group.

    A group that is empty by now has no id; that it is given anew in this moment needs every other id to be used up first.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # Its end is told when its pipes have ended too, and one that is full is not read on, nor does it end while others hold it.
    # Only that one is closed: the transport of all would ask for the exit status itself, and take it from who waits for it.
    output = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way
    output.close()
    await process.wait()


def _attached(output: bytes, place: Place) -> Credential | MintFault:
    try:
        return attach(output.removesuffix(b"\n"), place)
    except CredentialFault:
        return MintFault.HOOK_OUTPUT


@dataclass(frozen=True, slots=True)
class HttpHook:
    """A service at `url` that is asked with a POST of the order to `path`, and answers 200 and `{"credential": "…"}`."""

    url: Origin
    path: str
    origins: frozenset[str]
    headers: Pairs = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Raises GrantFault for a path that is not plain."""
        parse_route(f"POST {self.path}")


class HttpMinter:
    """Asks the service for each run, through the same one function as every other request."""

    def __init__(
        self,
        hook: HttpHook,
        connect: Callable[[], Awaitable[Upstream | AddressFault]],
        audience: str,
        place: Place,
    ) -> None:
        """`connect` makes the connections to the service; its limits are the deadline."""
        self._hook, self._connect, self._audience, self._place = hook, connect, audience, place

    async def mint(self, order: Order) -> Credential | MintFault:
        upstream = await self._connect()
        if isinstance(upstream, AddressFault):
            return MintFault.HOOK_UNAVAILABLE
        headers = (("content-type", "application/json"), *self._hook.headers)
        async with upstream:
            answer = await upstream.send(
                Sending("POST", self._hook.path, headers, _told(order, self._audience))
            )
        if isinstance(answer, UpstreamFault):
            return _FAULTS.get(answer, MintFault.HOOK_FAILED)
        return _from_answer(answer, self._place) if answer.status == _OK else MintFault.HOOK_FAILED


_FAULTS: Final = {
    UpstreamFault.UNREACHABLE: MintFault.HOOK_UNAVAILABLE,
    UpstreamFault.PEER: MintFault.HOOK_UNAVAILABLE,
    UpstreamFault.TLS: MintFault.HOOK_UNAVAILABLE,
    UpstreamFault.TIMEOUT: MintFault.HOOK_TIMEOUT,
    UpstreamFault.ANSWER_TOO_LARGE: MintFault.HOOK_OUTPUT,
}


def _from_answer(answer: Answered, place: Place) -> Credential | MintFault:
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return MintFault.HOOK_OUTPUT
    credential = value.get("credential") if isinstance(value, dict) else None
    if not isinstance(credential, str):
        return MintFault.HOOK_OUTPUT
    return _attached(credential.encode("utf-8", "replace"), place)
