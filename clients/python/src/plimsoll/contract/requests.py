"""What a caller may ask for, after parsing. Values as sent: a default is applied by the service, never here.

Evolution: fields are appended with a default; the digest of a kind (records.md) never changes its field list.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal

from plimsoll.contract.tiers import Tier

PROTOCOL = 4
"""The protocol number of the compatible wire API; a REST request is hashed as if it had sent it."""


class Kind(StrEnum):
    """What is run. The words are wire values."""

    JAVASCRIPT = "javascript"
    PYTHON = "python"
    PROJECT = "project"
    MODULE = "module"
    CELL = "cell"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True)
class File:
    """One input file: a relative path and its exact bytes."""

    path: str
    content: bytes = field(repr=False)
    __pydantic_config__: ClassVar[dict[str, Any]] = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}


@dataclass(frozen=True, slots=True)
class JavaScript:
    """A JavaScript snippet."""

    code: str = field(repr=False)
    grant_profile: str = ""
    kind: Literal[Kind.JAVASCRIPT] = Kind.JAVASCRIPT


@dataclass(frozen=True, slots=True)
class Python:
    """A Python snippet (REST only)."""

    code: str = field(repr=False)
    grant_profile: str = ""
    kind: Literal[Kind.PYTHON] = Kind.PYTHON


@dataclass(frozen=True, slots=True)
class Cell:
    """One piece of code for a session's living interpreter."""

    language: str
    code: str = field(repr=False)
    files: tuple[File, ...] = ()
    kind: Literal[Kind.CELL] = Kind.CELL


@dataclass(frozen=True, slots=True)
class Project:
    """Files, shell steps in order, and the artifacts to bring back."""

    files: tuple[File, ...] = ()
    steps: tuple[str, ...] = field(default=(), repr=False)
    artifacts: tuple[str, ...] = ()
    grant_profile: str = ""
    kind: Literal[Kind.PROJECT] = Kind.PROJECT


@dataclass(frozen=True, slots=True)
class Module:
    """A table of parameter rows for one named model."""

    model: str
    rows: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    end_time: float = 0.0
    step: float = 0.0
    kind: Literal[Kind.MODULE] = Kind.MODULE


Payload = JavaScript | Python | Cell | Project | Module


@dataclass(frozen=True, slots=True)
class SoftwareRule:
    """Which software may run it: exactly one identity, or any of an approved list."""

    mode: Literal["exact", "approved"]
    identities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One request as sent. `timeout_ms` 0 and `minimum_isolation` None mean absent; `trace_id` is in no digest."""

    payload: Payload
    minimum_isolation: Tier | None = None
    timeout_ms: int = 0
    software_rule: SoftwareRule | None = None
    trace_id: str = ""
    protocol: int = PROTOCOL
