"""The software identity of an image: the digest of its OCI manifest, computed from what the daemon exports."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any


async def manifest_of(export: AsyncIterator[bytes], image: Mapping[str, Any]) -> str:
    """`oci-manifest:<os>/<arch>@sha256:<digest>` of this image (its inspect answer); empty when it does not add up."""
    raise NotImplementedError


def recall(state_dir: Path, image_id: str) -> str | None:
    """The identity that was computed before for this content id; None when there is none to be trusted."""
    raise NotImplementedError


def remember(state_dir: Path, image_id: str, identity: str) -> None:
    """Keep it for `recall`."""
    raise NotImplementedError
