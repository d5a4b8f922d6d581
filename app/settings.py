"""Every setting of the service: one frozen object, read once from the environment, all faults reported together.

`SETTINGS` is the table that `plimsolld --help`, docs/settings.md and the parser share, so none can leave one
out. A name that starts like ours and is not in the table is a fault: a misspelt limit must not be silently no
limit.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app import readers, shares
from app.readers import Address, BadValue
from plimsoll.contract.bounds import OUTPUT_CAP_BYTES

DOCKER = "docker"
MEMORY_MB = {"wasm": 64, DOCKER: 512}
"""Memory of one run when no setting says otherwise, by kind of provider."""
MEMORY_BOUNDS_MB = {"wasm": (8, 1024), DOCKER: (64, 65536)}
"""What one run can work with, by kind: less does not even hold a container's agent and an interpreter."""

FOREIGN = frozenset({"PLIMSOLL_URL", "PLIMSOLL_TOKEN", "PLIMSOLL_DAEMON", "PLIMSOLL_REQUIRE"})
"""Names of ours that other programs read."""


class SettingsError(Exception):
    """The environment holds malformed settings; `faults` lists every one as `NAME: rule`."""

    def __init__(self, faults: list[str]) -> None:
        """Keep all faults; the message is one a line."""
        super().__init__("\n".join(faults))
        self.faults = faults


def kind_of(provider: str) -> str:
    """The kind of a provider from its name, which is its entry in SANDBOX_PROVIDER: `docker@runsc` is a `docker`."""
    return provider.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, defaults applied. Paths are absolute."""

    providers: tuple[str, ...] = ()
    memory_mb: int | None = None
    docker_host: str = "unix:///var/run/docker.sock"
    docker_runtime: str = "runc"
    docker_image: str = "plimsoll-sandbox"
    docker_cpus: float = 1.0
    docker_pids: int = 128
    docker_disk_mb: int = 64
    docker_pool: int = 2
    runsc_sha256: tuple[str, ...] = ()
    max_concurrent: int = 64
    per_caller_concurrent: int = 32
    rate_per_min: int = 6000
    total_memory_mb: int = 4096
    output_bytes: int = 65536
    evidence_interval_s: int = 60
    address: Address = readers.DEFAULT_ADDRESS
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
    stored_caller_mb: int = 0
    stored_caller_runs: int = 0
    broker_url: str = ""
    broker_secret_file: Path | None = None
    broker_same_user: bool = False
    broker_user: str = ""
    broker_key: Path | None = None
    broker_networks: str = ""
    broker_ca_file: Path | None = None
    broker_minters: Path | None = None

    @property
    def vault_public(self) -> Path:
        """The key that the service seals with."""
        return self.data_dir / "vault.public"

    @property
    def vault_private(self) -> Path:
        """The broker's key."""
        return self.broker_key or self.data_dir / "vault.private"

    @property
    def broker_here(self) -> bool:
        """Whether the service starts a broker itself."""
        return not self.broker_url and (self.broker_same_user or bool(self.broker_user))

    def broker_frame(self, control: str, listeners: Sequence[tuple[str | None, int]]) -> dict[str, Any]:
        """What a broker of ours is told: its key's place, whom it serves, and where it must not call."""
        return {
            "key": str(self.vault_private),
            "control": control,
            "networks": self.broker_networks,
            "ca_file": str(self.broker_ca_file or ""),
            "minters": str(self.broker_minters or ""),
            "listeners": [list(each) for each in listeners],
            "peers": [os.geteuid()],
        }

    def memory_of(self, provider: str) -> int:
        """Memory of one of its runs, MiB."""
        return self.memory_mb or MEMORY_MB[kind_of(provider)]

    @property
    def slots(self) -> dict[str, int]:
        """Sandboxes at once by provider, so that all of them together keep to the total memory."""
        return shares.slots(self.total_memory_mb, {each: self.memory_of(each) for each in self.providers})

    def runtime_of(self, provider: str) -> str:
        """The runtime of a docker provider: its entry may fix one."""
        return provider.partition("@")[2] or self.docker_runtime

    def state_dir(self, provider: str) -> Path:
        """Where a docker provider keeps what it must find again after a crash."""
        return self.data_dir / "providers" / provider.replace("@", "-")

    def provider_frame(self, provider: str) -> dict[str, Any]:
        """What the process of a configured provider is told: limits and places; no key, no database, no token."""
        frame = {
            "provider": provider,
            "memory_mb": self.memory_of(provider),
            "slots": self.slots[provider],
            "output_bytes": self.output_bytes,
            "evidence_interval_s": self.evidence_interval_s,
            "insecure": self.insecure,
            "debug_dumpable": self.debug_dumpable,
        }
        if kind_of(provider) == DOCKER:
            return frame | self._docker_frame(provider)
        return frame | {"cache_dir": str(self.cache_dir)}

    def _docker_frame(self, provider: str) -> dict[str, Any]:
        return {
            "docker_host": self.docker_host,
            "docker_runtime": self.runtime_of(provider),
            "docker_image": self.docker_image,
            "docker_cpus": self.docker_cpus,
            "docker_pids": self.docker_pids,
            "docker_disk_mb": self.docker_disk_mb,
            "docker_pool": self.docker_pool,
            "runsc_sha256": list(self.runsc_sha256),
            "state_dir": str(self.state_dir(provider)),
        }


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: the variable, its field, how it is read, its default in words, what it does."""

    name: str
    field: str
    read: Callable[[str], Any]
    default: str
    help: str


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "SANDBOX_PROVIDER",
        "providers",
        readers.providers,
        "unset: nothing runs",
        "Providers in order of preference.",
    ),
    Setting(
        "SANDBOX_DOCKER_HOST",
        "docker_host",
        readers.docker_host,
        "unix:///var/run/docker.sock",
        "Where the docker daemon listens.",
    ),
    Setting(
        "SANDBOX_DOCKER_RUNTIME",
        "docker_runtime",
        readers.runtime,
        "runc",
        "Runtime of the provider docker; docker@RUNTIME fixes its own.",
    ),
    Setting(
        "SANDBOX_DOCKER_IMAGE",
        "docker_image",
        readers.image,
        "plimsoll-sandbox",
        "Image of the containers.",
    ),
    Setting(
        "SANDBOX_DOCKER_CPUS", "docker_cpus", readers.decimal(0.1, 64), "1.0", "Processors of one container."
    ),
    Setting(
        "SANDBOX_DOCKER_PIDS",
        "docker_pids",
        readers.whole(32, 512),
        "128",
        "Processes and threads of one container.",
    ),
    Setting(
        "SANDBOX_DOCKER_DISK_MB",
        "docker_disk_mb",
        readers.whole(1, 1024),
        "64",
        "Size of /workspace and of /tmp in a container, MiB each; what is in them counts as memory.",
    ),
    Setting(
        "SANDBOX_DOCKER_POOL",
        "docker_pool",
        readers.whole(0, 32),
        "2",
        "Containers kept waiting for each language; 0 is none.",
    ),
    Setting(
        "SANDBOX_RUNSC_SHA256",
        "runsc_sha256",
        readers.digests,
        "the gVisor releases this version knows",
        "SHA-256 of further runsc programs that are gVisor.",
    ),
    Setting(
        "SANDBOX_MEMORY_MB",
        "memory_mb",
        readers.whole(8, 65536),
        "64 for wasm, 512 for docker",
        "Memory of one run, MiB.",
    ),
    Setting(
        "SANDBOX_MAX_CONCURRENT",
        "max_concurrent",
        readers.whole(1, 4096),
        "64",
        "Runs at once in this service.",
    ),
    Setting(
        "SANDBOX_PER_CALLER_CONCURRENT",
        "per_caller_concurrent",
        readers.whole(1, 4096),
        "32",
        "Runs at once of one caller.",
    ),
    Setting(
        "SANDBOX_RATE_PER_MIN",
        "rate_per_min",
        readers.whole(0, 10_000_000),
        "6000",
        "Runs a minute of one caller, and ten times as many requests (600 at least); 0 is no limit.",
    ),
    Setting(
        "SANDBOX_TOTAL_MEMORY_MB",
        "total_memory_mb",
        readers.whole(64, 1 << 20),
        "4096",
        "Memory of all sandboxes together, MiB.",
    ),
    Setting(
        "SANDBOX_OUTPUT_BYTES",
        "output_bytes",
        readers.whole(1024, OUTPUT_CAP_BYTES),
        "65536",
        "Output kept of each stream, bytes.",
    ),
    Setting(
        "SANDBOX_EVIDENCE_INTERVAL_S",
        "evidence_interval_s",
        readers.whole(1, 3600),
        "60",
        "Seconds between looks at the wall.",
    ),
    Setting(
        "PLIMSOLL_ADDR", "address", readers.address, "127.0.0.1:8746", "IP:PORT or unix:/PATH to listen on."
    ),
    Setting(
        "PLIMSOLL_DATA_DIR",
        "data_dir",
        readers.path,
        "$XDG_DATA_HOME/plimsoll or ~/.local/share/plimsoll",
        "Database, locks and the state of docker providers; 0700.",
    ),
    Setting(
        "PLIMSOLL_DATABASE_URL",
        "database_url",
        readers.database,
        "SQLite in the data directory",
        "SQLite or Postgres.",
    ),
    Setting(
        "PLIMSOLL_CACHE_DIR",
        "cache_dir",
        readers.path,
        "$XDG_CACHE_HOME/plimsoll or ~/.cache/plimsoll",
        "Compiled guests; 0700.",
    ),
    Setting(
        "PLIMSOLL_ALLOWED_HOSTS",
        "allowed_hosts",
        readers.hosts,
        "the bound address and localhost",
        "Host headers accepted.",
    ),
    Setting(
        "PLIMSOLL_TRUSTED_PROXIES",
        "trusted_proxies",
        readers.addresses,
        "none",
        "Addresses without a per-address connection cap.",
    ),
    Setting(
        "PLIMSOLL_INSECURE", "insecure", readers.flag, "0", "1: no tokens, loopback only, for trying it out."
    ),
    Setting(
        "PLIMSOLL_DEBUG_DUMPABLE",
        "debug_dumpable",
        readers.flag,
        "0",
        "1: debuggers may attach; serves in insecure mode only.",
    ),
    Setting(
        "PLIMSOLL_DRAIN_GRACE_S",
        "drain_grace_s",
        readers.whole(0, 600),
        "10",
        "Seconds running runs get after SIGTERM.",
    ),
    Setting(
        "PLIMSOLL_KEPT_CALLER_MB",
        "kept_caller_mb",
        readers.whole(1, 1 << 20),
        "64",
        "Answers kept for keys and async runs of one caller, MiB.",
    ),
    Setting(
        "PLIMSOLL_KEPT_TOTAL_MB",
        "kept_total_mb",
        readers.whole(1, 1 << 20),
        "1024",
        "Answers kept for keys and async runs, all callers, MiB.",
    ),
    Setting(
        "PLIMSOLL_STORED_CALLER_MB",
        "stored_caller_mb",
        readers.whole(1, 1 << 20),
        "a quarter of the disk; 16384 on Postgres",
        "What the stored runs of one caller may take, MiB.",
    ),
    Setting(
        "PLIMSOLL_STORED_CALLER_RUNS",
        "stored_caller_runs",
        readers.whole(1, 1_000_000_000),
        "512 for each of these MiB",
        "Stored runs of one caller.",
    ),
    Setting(
        "PLIMSOLL_BROKER_SAME_USER",
        "broker_same_user",
        readers.flag,
        "0",
        "1: start a broker under the service's own user.",
    ),
    Setting(
        "PLIMSOLL_BROKER_USER",
        "broker_user",
        readers.user,
        "unset",
        "Start a broker under this user; the service must be root.",
    ),
    Setting(
        "PLIMSOLL_BROKER_KEY",
        "broker_key",
        readers.path,
        "vault.private in the data directory",
        "The broker's private key; 0600, its own user's.",
    ),
    Setting(
        "PLIMSOLL_BROKER_ALLOW_PRIVATE",
        "broker_networks",
        readers.networks,
        "none",
        "Loopback and private networks in which APIs may be.",
    ),
    Setting(
        "PLIMSOLL_BROKER_CA_FILE",
        "broker_ca_file",
        readers.path,
        "the system's authorities",
        "Certificates that APIs are verified with, instead.",
    ),
    Setting(
        "PLIMSOLL_BROKER_MINTERS",
        "broker_minters",
        readers.path,
        "none",
        "Minters of credentials, as TOML; 0600, the broker's user's.",
    ),
    Setting(
        "PLIMSOLL_BROKER_URL",
        "broker_url",
        readers.broker,
        "a broker of its own, if it has a user",
        "A broker that is started by somebody else.",
    ),
    Setting(
        "PLIMSOLL_BROKER_SECRET_FILE",
        "broker_secret_file",
        readers.path,
        "unset",
        "The control secret of that broker; 0600.",
    ),
    Setting(
        "PLIMSOLL_RETENTION_DAYS",
        "retention_days",
        readers.whole(1, 3650),
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
            except BadValue as bad:
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
    return faults + _of_runtimes(settings) + _of_memory(settings) + _of_broker(settings)


def _of_broker(settings: Settings) -> list[str]:
    faults = []
    if settings.broker_same_user and settings.broker_user:
        faults.append("PLIMSOLL_BROKER_USER: must not be set together with PLIMSOLL_BROKER_SAME_USER")
    if settings.broker_user and settings.broker_key is None:
        faults.append(
            "PLIMSOLL_BROKER_KEY: is required with PLIMSOLL_BROKER_USER, in a folder that it can enter"
        )
    if bool(settings.broker_url) is not (settings.broker_secret_file is not None):
        faults.append("PLIMSOLL_BROKER_SECRET_FILE: goes with PLIMSOLL_BROKER_URL, and it with this")
    if settings.broker_url and (settings.broker_same_user or settings.broker_user):
        faults.append("PLIMSOLL_BROKER_URL: must not be set together with a user for a broker of ours")
    return faults


def _of_runtimes(settings: Settings) -> list[str]:
    """Bare `docker` is the same as `docker@` with the runtime it resolves to."""
    if {DOCKER, f"{DOCKER}@{settings.docker_runtime}"} <= set(settings.providers):
        return [
            "SANDBOX_PROVIDER: must not name a provider twice: docker is docker@ with SANDBOX_DOCKER_RUNTIME"
        ]
    return []


def _of_memory(settings: Settings) -> list[str]:
    if settings.memory_mb is not None and settings.memory_mb > settings.total_memory_mb:
        return ["SANDBOX_MEMORY_MB: must not be over SANDBOX_TOTAL_MEMORY_MB"]
    memory = {each: settings.memory_of(each) for each in settings.providers}
    bounds = {kind_of(name): MEMORY_BOUNDS_MB[kind_of(name)] for name in memory}
    faults = [
        f"SANDBOX_MEMORY_MB: must be from {low} to {high} for {kind}"
        for kind, (low, high) in bounds.items()
        if settings.memory_mb is not None and not low <= settings.memory_mb <= high
    ]
    if memory and not all(settings.slots.values()):
        least = shares.least_total(memory)
        faults.append(
            f"SANDBOX_TOTAL_MEMORY_MB: must be at least {least} for one run of each of these providers"
        )
    return faults


def settings_help() -> str:
    """The table as text for `plimsolld --help`."""
    return "\n".join(f"  {row.name}\n      {row.help} Default: {row.default}." for row in SETTINGS)
