"""What one docker provider is told at its start; read once, checked, never changed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from plimsoll.contract.bounds import OUTPUT_CAP_BYTES

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SHAPES: Final = {
    "provider": re.compile(r"docker(@[A-Za-z0-9_.-]{1,64})?"),
    "host": re.compile(r"unix:///[^\s\x00-\x1f]{1,100}|tcp://[A-Za-z0-9.:\[\]_-]{1,255}"),
    "runtime": re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"),
    "image": re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,254}"),
    "state_dir": re.compile(r"/[^\x00]{1,1000}"),
}
_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "cpus": (0.01, 1024),
    "pids": (16, 512),  # from the agent and an engine's threads to what leaves room for gVisor's own
    "disk_mb": (1, 16_384),
    "pool": (0, 64),
    "memory_mb": (64, 65_536),  # from what the agent and an idle engine take
    "slots": (1, 1024),
    "output_bytes": (1, OUTPUT_CAP_BYTES),
}


@dataclass(frozen=True)
class DockerSettings:
    """`docker@X` fixes the runtime X; a bare `docker` uses the setting for it, else runc."""

    provider: str
    state_dir: str
    host: str = "unix:///var/run/docker.sock"
    runtime: str = "runc"
    image: str = "plimsoll-sandbox"
    cpus: float = 1.0
    pids: int = 128
    disk_mb: int = 64
    """Of /workspace, and again of /tmp. Under runc what they hold counts as the container's memory."""
    pool: int = 2
    """Containers that wait for code, for each language."""
    runsc_sha256: frozenset[str] = frozenset()
    memory_mb: int = 512
    slots: int = 8
    """Containers at once: waiting, running and going."""
    output_bytes: int = OUTPUT_CAP_BYTES

    def __post_init__(self) -> None:
        """Raise ValueError naming the field that is out of bounds, never its value."""
        for name, (low, high) in _BOUNDS.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(name)
        for name, rule in _SHAPES.items():
            if not rule.fullmatch(getattr(self, name)):
                raise ValueError(name)
        if not all(_SHA256.fullmatch(digest) for digest in self.runsc_sha256):
            raise ValueError("runsc_sha256")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Of what the service sends. Raises KeyError, ValueError, TypeError for bad settings."""
        provider = str(settings["provider"])
        _, fixed, runtime = provider.partition("@")
        return cls(
            provider=provider,
            state_dir=str(settings["state_dir"]),
            host=str(settings.get("docker_host", cls.host)),
            runtime=runtime if fixed else str(settings.get("docker_runtime", cls.runtime)),
            image=str(settings.get("docker_image", cls.image)),
            cpus=float(settings.get("docker_cpus", cls.cpus)),
            pids=int(settings.get("docker_pids", cls.pids)),
            disk_mb=int(settings.get("docker_disk_mb", cls.disk_mb)),
            pool=int(settings.get("docker_pool", cls.pool)),
            runsc_sha256=frozenset(map(str, settings.get("runsc_sha256", ()))),
            memory_mb=int(settings.get("memory_mb", cls.memory_mb)),
            slots=int(settings.get("slots", cls.slots)),
            output_bytes=int(settings.get("output_bytes", cls.output_bytes)),
        )
