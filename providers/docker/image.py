"""What an image may ask for. Pure: from the daemon's description of an image, and from a tar of its agent, to faults."""

from collections.abc import Mapping
from typing import Any


def faults_of(inspected: Mapping[str, Any], architecture: str) -> tuple[str, ...]:
    """The code of everything in this inspect answer that is refused; `architecture` is the daemon's own (GET /version)."""
    raise NotImplementedError


def agent_matches(archive: bytes) -> bool:
    """Whether a tar of /usr/lib/plimsoll (GET /containers/{id}/archive) holds our agent, byte for byte, and nothing else."""
    raise NotImplementedError
