"""Entry of a provider process: `python -I -m providers.main --fd N`, started by the service and by nobody else.

The order matters: protect the process; read the settings; let the provider fork what it must fork while there is neither an
event loop nor a heavy import nor any run; only then become the host.
"""

import asyncio
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.contract.frames import FrameError
from providers.host.process import outlive_parent, protect, set_dumpable
from providers.host.wire import Wire, read_settings
from providers.seam import Factory, Provider, kind_of


def main(providers: Mapping[str, Factory], arguments: Sequence[str] | None = None) -> int:
    """Serve one of `providers` to the peer on `--fd N` until that peer is gone. The exit status is for logs only."""
    protect()
    words = sys.argv[1:] if arguments is None else arguments
    try:
        sock = socket.socket(fileno=_descriptor(words))
    except (ValueError, OSError):
        return _say("usage")
    try:
        settings = read_settings(sock)
        provider = _make(providers, settings)
    except (OSError, FrameError):
        return _say("no_settings")
    except (KeyError, ValueError, TypeError, AttributeError):
        return _say("bad_settings")
    try:
        asyncio.run(_serve(sock, provider, settings))
    except Exception as failure:  # noqa: BLE001  # the log gets what kind of failure it was, never its text
        return _say("crashed", kind=type(failure).__name__)
    return 0


def _descriptor(words: Sequence[str]) -> int:
    option, number = words
    if option != "--fd":
        raise ValueError(option)
    return int(number)


def _make(providers: Mapping[str, Factory], settings: Mapping[str, Any]) -> Provider:
    if settings.get("debug_dumpable") is True:
        set_dumpable(True)
    return providers[kind_of(settings["provider"])](settings)


async def _serve(sock: socket.socket, provider: Provider, settings: Mapping[str, Any]) -> None:
    # Late, so that what the provider forked holds none of it.
    from providers.host.server import Host, slots_of  # noqa: PLC0415
    from providers.host.wall import Wall  # noqa: PLC0415

    asyncio.get_running_loop().set_exception_handler(_unhandled)
    wall = Wall(
        settings["provider"],
        provider,
        interval_s=float(settings.get("evidence_interval_s", 60)),
        allow_dumpable=settings.get("insecure") is True,
    )
    host = Host(provider, wall, slots=slots_of(settings))
    await host.serve(lambda on_frame: Wire(sock, on_frame))


def _unhandled(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    _say("unhandled", kind=type(context.get("exception")).__name__)


def _say(code: str, **more: str) -> int:
    """One log line; only codes, never what was wrong with which value."""
    sys.stderr.write(json.dumps({"event": "provider-failed", "code": code, **more}) + "\n")
    return 1


# Each wall is imported only in the process that serves it.


def docker(settings: Mapping[str, Any]) -> Provider:
    """A container that was made and never started does not end by itself, so this process has to outlive a killed service."""
    from providers.docker.provider import DockerProvider  # noqa: PLC0415  # as above

    outlive_parent()
    return DockerProvider.from_settings(settings)


def wasm(settings: Mapping[str, Any]) -> Provider:
    """All that it has are processes, which end with it."""
    from providers.wasm.provider import WasmProvider  # noqa: PLC0415  # as above

    return WasmProvider.from_settings(settings)


if __name__ == "__main__":
    raise SystemExit(main({"docker": docker, "wasm": wasm}))
