"""A private service for this process alone: `with plimsoll.local() as sandbox: sandbox.run_javascript("...")`.

The library runs `plimsolld --private-fd N --private-data` with an environment that holds only what is passed
here, a data directory of its own, and one inherited socket. On that socket the library writes a random token,
one line; the service answers one line of JSON: `{"ready": true, "socket": PATH, "version": ...}` when it
accepts connections, or `{"ready": false, "errors": [...]}` and ends. The socket's end of file ends the
service, whatever becomes of this process.
"""

import asyncio
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Never, Self, TypeGuard

from plimsoll.client import administer
from plimsoll.client.aio import AsyncClient
from plimsoll.client.errors import InvalidOption, LocalServiceError
from plimsoll.client.options import LOCALHOST, PrivateSocket
from plimsoll.client.private import PrivateService, find_daemon, start
from plimsoll.client.sync import Client

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_OURS = frozenset({"PLIMSOLL_DATA_DIR", "SANDBOX_PROVIDER"})
_CACHE = "PLIMSOLL_CACHE_DIR"


class LocalService:
    """One private service. `with` gives a `Client` bound to it, `async with` an `AsyncClient`; both end it.

    Or by hand: `start()`, then `client()` and `async_client()` as often as wanted, then `close()`.
    """

    def __init__(
        self,
        provider: str = "wasm",
        daemon: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str] | None = None,
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        self._environment = _environment(provider, {} if settings is None else settings)
        self._daemon = daemon
        self._log = _log_path(log)
        self._service: PrivateService | None = None
        self._client: Client | None = None
        self._async_client: AsyncClient | None = None

    def start(self) -> Self:
        """Start the service and wait until it accepts connections. Raises LocalServiceError after at most three minutes."""
        if self._service is None:
            self._service = start(find_daemon(self._daemon), self._environment, self._log)
        return self

    def client(self) -> Client:
        """A new client; the caller closes it. Raises InvalidOption when the service is not running."""
        service = self._running()
        return Client(LOCALHOST, service.token, unix_socket=PrivateSocket(service.socket))

    def async_client(self) -> AsyncClient:
        """As `client`, for asyncio."""
        service = self._running()
        return AsyncClient(LOCALHOST, service.token, unix_socket=PrivateSocket(service.socket))

    def apply_grants(self, profiles: str, secrets: Mapping[str, str] | None = None) -> None:
        """Add or replace grant profiles: TOML as `plimsoll-admin grants apply` reads it, for runs that start from now on.

        The service needs a broker: `settings={"PLIMSOLL_BROKER_SAME_USER": "1"}`. Its one caller is `local`.
        `secrets` holds the variables that profiles name by `env`; nobody keeps it here. All profiles are applied or none.
        Raises InvalidOption, LocalServiceError with every fault.
        """
        service = self._running()
        environment = {**self._environment, "PLIMSOLL_DATA_DIR": service.directory}
        administer.apply_grants(service.program, environment, profiles, {} if secrets is None else secrets)

    @property
    def data_dir(self) -> str:
        """Where the service keeps its data until it ends. Raises InvalidOption when it is not running."""
        return self._running().directory

    @property
    def pid(self) -> int:
        """The service's process; its provider and its broker are children of that. Raises InvalidOption as `data_dir`."""
        return self._running().pid

    def close(self) -> None:
        """End the service and remove everything it left. Takes at most a few seconds."""
        service, self._service = self._service, None
        if service is not None:
            service.close()

    def _running(self) -> PrivateService:
        if self._service is None:
            raise InvalidOption("the private service is not running")
        return self._service

    def __enter__(self) -> Client:
        self.start()
        self._client = self.client()
        return self._client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._client is not None:
                self._client.close()
        finally:
            self.close()

    async def __aenter__(self) -> AsyncClient:
        await self._start_in_thread()
        self._async_client = self.async_client()
        return self._async_client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._async_client is not None:
                await self._async_client.close()
        finally:
            await asyncio.shield(asyncio.to_thread(self.close))

    if not TYPE_CHECKING:  # a type checker knows the names

        def __getattr__(self, name: str) -> Never:
            if name.startswith("_") or not hasattr(Client, name):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(
                f"this private service gives a client, it is none: `with plimsoll.local() as sandbox:"
                f" sandbox.{name}(...)`"
            )

    async def _start_in_thread(self) -> None:
        starting = asyncio.create_task(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be stopped: wait for what it starts, and end that.
            with suppress(LocalServiceError):
                await starting
            await asyncio.to_thread(self.close)
            raise


def _environment(provider: object, settings: object) -> dict[str, str]:
    if not _is_value(provider):
        raise InvalidOption("provider must be text")
    if not isinstance(settings, Mapping):
        raise InvalidOption("settings must be a mapping of names to text")
    for name, value in settings.items():
        if not isinstance(name, str) or name in _OURS or not _NAME.fullmatch(name):
            raise InvalidOption(f"settings: {name!r} is not a setting that can be given here")
        if not _is_value(value):
            raise InvalidOption(f"settings: the value of {name} must be text")
    inherited = {_CACHE: os.environ[_CACHE]} if _CACHE in os.environ else {}
    return {**inherited, **settings, "SANDBOX_PROVIDER": provider}


def _log_path(log: object) -> str:
    path = os.fspath(log) if isinstance(log, os.PathLike) else log
    if path is None:
        return ""
    if not _is_value(path) or not path:
        raise InvalidOption("log must be a path")
    return path


def _is_value(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and "\0" not in value


def local(
    provider: str = "wasm",
    daemon: str | os.PathLike[str] | None = None,
    settings: Mapping[str, str] | None = None,
    log: str | os.PathLike[str] | None = None,
) -> LocalService:
    """A private service, not started yet: use it in `with` or `async with`.

    `provider` is an entry of SANDBOX_PROVIDER (`wasm`, `docker`, `docker@runsc`), or several with commas, preferred first.
    `daemon` is the service's program (default: PLIMSOLL_DAEMON, beside this Python, PATH), `settings` the
    only environment it gets, for example `{"SANDBOX_MEMORY_MB": "128"}`; PLIMSOLL_CACHE_DIR is handed on when
    it is set here. `log` is a file that its log is appended to.
    """
    return LocalService(provider, daemon, settings, log)
