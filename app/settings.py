"""Every setting of the service: one frozen object, read once from the environment, all faults reported together.

`SETTINGS` is the table that `plimsolld --help`, docs/settings.md and the parser share, so none can leave one
out. A name that starts like ours and is not in the table is a fault: a misspelt limit must not be silently no
limit.
"""

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.contract.bounds import OUTPUT_CAP_BYTES

PROVIDERS = ("wasm",)
"""Providers this version can serve, by name."""

FOREIGN = frozenset({"PLIMSOLL_URL", "PLIMSOLL_TOKEN", "PLIMSOLL_DAEMON", "PLIMSOLL_REQUIRE"})
"""Names of ours that other programs read."""


class SettingsError(Exception):
    """The environment holds malformed settings; `faults` lists every one as `NAME: rule`."""

    def __init__(self, faults: list[str]) -> None:
        """Keep all faults; the message is one a line."""
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: `host` and `port`, or a Unix socket `path`."""

    host: str = "127.0.0.1"
    port: int = 8746
    path: Path | None = None

    @property
    def wildcard(self) -> bool:
        """Whether it means every interface."""
        return self.path is None and self.host in {"0.0.0.0", "::"}  # noqa: S104  # compared, not bound

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return (
            self.path is not None or self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, defaults applied. Paths are absolute."""

    providers: tuple[str, ...] = ()
    memory_mb: int = 64
    max_concurrent: int = 64
    per_caller_concurrent: int = 32
    rate_per_min: int = 6000
    total_memory_mb: int = 4096
    output_bytes: int = 65536
    evidence_interval_s: int = 60
    address: Address = Address()
    data_dir: Path = Path()
    database_url: str = field(default="", repr=False)
    cache_dir: Path = Path()
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    insecure: bool = False
    debug_dumpable: bool = False
    drain_grace_s: int = 10
    retention_days: int = 30
    kept_caller_mb: int = 64
    kept_total_mb: int = 1024

    @property
    def wasm_slots(self) -> int:
        """Runner processes at most: 32, or what the total memory allows."""
        return max(1, min(32, self.total_memory_mb // self.memory_mb))

    def provider_frame(self) -> dict[str, Any]:
        """What a provider process is told: limits and its cache; no key, no database, no token."""
        return {
            "memory_mb": self.memory_mb,
            "slots": self.wasm_slots,
            "cache_dir": str(self.cache_dir),
            "output_bytes": self.output_bytes,
            "evidence_interval_s": self.evidence_interval_s,
            "insecure": self.insecure,
            "debug_dumpable": self.debug_dumpable,
        }


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: the variable, its field, how it is read, its default in words, what it does."""

    name: str
    field: str
    read: Callable[[str], Any]
    default: str
    help: str


class _Bad(ValueError):
    """A setting's rule was broken; the message is the rule without the value."""


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not low <= int(text) <= high:
            raise _Bad(f"must be a whole number from {low} to {high}")
        return int(text)

    return read


def _flag(text: str) -> bool:
    if text not in {"0", "1"}:
        raise _Bad("must be 0 or 1")
    return text == "1"


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in PROVIDERS:
            raise _Bad(f"names an unknown provider; known: {', '.join(PROVIDERS)}")
    if len(set(names)) != len(names):
        raise _Bad("must not name a provider twice")
    return names


def _path(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise _Bad("must be an absolute path")
    return path


def _database(text: str) -> str:
    if not text.startswith(("sqlite+aiosqlite:///", "postgresql+asyncpg://")):
        raise _Bad("must start with sqlite+aiosqlite:/// or postgresql+asyncpg://")
    return text


def _address(text: str) -> Address:
    if text.startswith("unix:"):
        return Address(path=_path(text.removeprefix("unix:")))
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        if host != "localhost":
            ipaddress.ip_address(host)
    except ValueError:
        raise _Bad("must be IP:PORT, localhost:PORT or unix:/PATH") from None
    return Address(host, _whole(0, 65535)(port))


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(part.strip().lower() for part in text.split(","))
    if not all(
        host and host.isascii() and host.isprintable() and not set(host) & set(" /@*?#") for host in hosts
    ):
        raise _Bad("must be a comma-separated list of exact host names, port optional")
    return hosts


def _addresses(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_address(part.strip())) for part in text.split(","))
    except ValueError:
        raise _Bad("must be a comma-separated list of IP addresses") from None


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "SANDBOX_PROVIDER", "providers", _names, "unset: nothing runs", "Providers in order of preference."
    ),
    Setting("SANDBOX_MEMORY_MB", "memory_mb", _whole(8, 1024), "64", "Memory of one wasm run, MiB."),
    Setting(
        "SANDBOX_MAX_CONCURRENT", "max_concurrent", _whole(1, 4096), "64", "Runs at once in this service."
    ),
    Setting(
        "SANDBOX_PER_CALLER_CONCURRENT",
        "per_caller_concurrent",
        _whole(1, 4096),
        "32",
        "Runs at once of one caller.",
    ),
    Setting(
        "SANDBOX_RATE_PER_MIN",
        "rate_per_min",
        _whole(0, 10_000_000),
        "6000",
        "Runs a minute of one caller, and ten times as many requests (600 at least); 0 is no limit.",
    ),
    Setting(
        "SANDBOX_TOTAL_MEMORY_MB",
        "total_memory_mb",
        _whole(64, 1 << 20),
        "4096",
        "Memory of all runs together, MiB.",
    ),
    Setting(
        "SANDBOX_OUTPUT_BYTES",
        "output_bytes",
        _whole(1024, OUTPUT_CAP_BYTES),
        "65536",
        "Output kept of each stream, bytes.",
    ),
    Setting(
        "SANDBOX_EVIDENCE_INTERVAL_S",
        "evidence_interval_s",
        _whole(1, 3600),
        "60",
        "Seconds between looks at the wall.",
    ),
    Setting("PLIMSOLL_ADDR", "address", _address, "127.0.0.1:8746", "IP:PORT or unix:/PATH to listen on."),
    Setting(
        "PLIMSOLL_DATA_DIR",
        "data_dir",
        _path,
        "$XDG_DATA_HOME/plimsoll or ~/.local/share/plimsoll",
        "Database and locks; 0700.",
    ),
    Setting(
        "PLIMSOLL_DATABASE_URL",
        "database_url",
        _database,
        "SQLite in the data directory",
        "SQLite or Postgres.",
    ),
    Setting(
        "PLIMSOLL_CACHE_DIR",
        "cache_dir",
        _path,
        "$XDG_CACHE_HOME/plimsoll or ~/.cache/plimsoll",
        "Compiled guests; 0700.",
    ),
    Setting(
        "PLIMSOLL_ALLOWED_HOSTS",
        "allowed_hosts",
        _hosts,
        "the bound address and localhost",
        "Host headers accepted.",
    ),
    Setting(
        "PLIMSOLL_TRUSTED_PROXIES",
        "trusted_proxies",
        _addresses,
        "none",
        "Addresses without a per-address connection cap.",
    ),
    Setting("PLIMSOLL_INSECURE", "insecure", _flag, "0", "1: no tokens, loopback only, for trying it out."),
    Setting(
        "PLIMSOLL_DEBUG_DUMPABLE",
        "debug_dumpable",
        _flag,
        "0",
        "1: debuggers may attach; serves in insecure mode only.",
    ),
    Setting(
        "PLIMSOLL_DRAIN_GRACE_S",
        "drain_grace_s",
        _whole(0, 600),
        "10",
        "Seconds running runs get after SIGTERM.",
    ),
    Setting(
        "PLIMSOLL_KEPT_CALLER_MB",
        "kept_caller_mb",
        _whole(1, 1 << 20),
        "64",
        "Answers kept for keys and async runs of one caller, MiB.",
    ),
    Setting(
        "PLIMSOLL_KEPT_TOTAL_MB",
        "kept_total_mb",
        _whole(1, 1 << 20),
        "1024",
        "Answers kept for keys and async runs, all callers, MiB.",
    ),
    Setting(
        "PLIMSOLL_RETENTION_DAYS",
        "retention_days",
        _whole(1, 3650),
        "30",
        "Days that runs, records and audit rows are kept.",
    ),
)


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings in `environ`. Raises SettingsError with every fault; an empty value counts as unset."""
    faults, values = [], {}
    for row in SETTINGS:
        if text := environ.get(row.name, ""):
            try:
                values[row.field] = row.read(text)
            except _Bad as bad:
                faults.append(f"{row.name}: {bad}")
    faults += _unknown(environ)
    settings = Settings(**_with_places(values, environ))
    faults += _together(settings)
    if faults:
        raise SettingsError(faults)
    return settings


def _unknown(environ: Mapping[str, str]) -> list[str]:
    known = {row.name for row in SETTINGS} | FOREIGN
    ours = sorted(name for name in environ if name.startswith(("SANDBOX_", "PLIMSOLL_")))
    return [
        f"{name}: is no setting of this version (plimsolld --help lists them)"
        for name in ours
        if name not in known
    ]


def _with_places(values: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    home = Path(environ.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111  # Path.expanduser raises without a home
    values.setdefault("data_dir", Path(environ.get("XDG_DATA_HOME") or home / ".local/share") / "plimsoll")
    values.setdefault("cache_dir", Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "plimsoll")
    values.setdefault("database_url", f"sqlite+aiosqlite:///{values['data_dir'] / 'plimsoll.db'}")
    return values


def _together(settings: Settings) -> list[str]:
    """Rules between settings."""
    faults = []
    if settings.address.wildcard and not settings.allowed_hosts:
        faults.append("PLIMSOLL_ALLOWED_HOSTS: is required when PLIMSOLL_ADDR is a wildcard address")
    if settings.insecure and not settings.address.loopback:
        faults.append("PLIMSOLL_INSECURE: is allowed on a loopback address only")
    if settings.memory_mb > settings.total_memory_mb:
        faults.append("SANDBOX_MEMORY_MB: must not be over SANDBOX_TOTAL_MEMORY_MB")
    return faults


def settings_help() -> str:
    """The table as text for `plimsolld --help`."""
    return "\n".join(f"  {row.name}\n      {row.help} Default: {row.default}." for row in SETTINGS)
