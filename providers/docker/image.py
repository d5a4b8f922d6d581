"""What an image may ask for. Pure: from the daemon's description of an image, and from a tar of its agent, to faults.

What is set for every container (command, user, environment, working directory, health check, stop signal) an image cannot
decide; what it could still smuggle in is refused here, each with a code of its own. An image decides what a result says, never
what the wall is: nothing that is found here supports a tier.
"""

import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from providers.docker.recipe import LABEL_PREFIX

_CONTENT_ID: Final = re.compile(r"sha256:[0-9a-f]{64}")
_ENVIRONMENT: Final[Mapping[str, re.Pattern[str]]] = {
    "PATH": re.compile(r"(?:/(?:usr/)?(?:local/)?s?bin)(?::/(?:usr/)?(?:local/)?s?bin)*"),
    "LANG": re.compile(r"[A-Za-z0-9_.@-]{1,32}"),
    "LC_ALL": re.compile(r"[A-Za-z0-9_.@-]{1,32}"),
    "TZ": re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}"),
    "DEBIAN_FRONTEND": re.compile(r"[a-z]{1,16}"),
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), re.compile(r"[0-9]{1,4}")
    ),
}
"""Names an image may set, and to what. Any other could change what a program is before its first line (LD_PRELOAD, PYTHONPATH,
NODE_OPTIONS, BASH_ENV, …), and there is no end to such names."""
_ARCHITECTURES: Final[Mapping[str, str]] = {"x86_64": "amd64", "aarch64": "arm64"}
_MOST_LABELS: Final = 16 << 10
"""Characters of all labels."""
_MOST_FILES: Final = 256
_MOST_BYTES: Final = 4 << 20
_TOP: Final = "plimsoll"
_PARTS: Final = ("providers", "docker", "agent")


def faults_of(inspected: Mapping[str, Any], architecture: str) -> tuple[str, ...]:
    """The code of everything in this inspect answer that is refused; `architecture` is the daemon's own (GET /version)."""
    return tuple(dict.fromkeys(_faults(inspected, architecture)))


def _faults(inspected: Mapping[str, Any], architecture: str) -> Iterator[str]:
    if not _CONTENT_ID.fullmatch(str(inspected.get("Id", ""))):
        yield "image_id"
    if inspected.get("Os") != "linux":
        yield "image_os"
    if _normal(inspected.get("Architecture")) != _normal(architecture):
        yield "image_architecture"
    config = inspected.get("Config")
    if not isinstance(config, Mapping):
        yield "image_config"
        return
    if config.get("Volumes"):
        yield "image_volume"  # a place to write without a size, which outlives the container
    if config.get("Healthcheck") not in (None, {}, {"Test": ["NONE"]}):
        yield "image_healthcheck"  # a program that the daemon would start beside the agent
    if config.get("OnBuild"):
        yield "image_onbuild"
    yield from _label_faults(config.get("Labels") or {})
    yield from _environment_faults(config.get("Env") or [])


def _label_faults(labels: Any) -> Iterator[str]:
    """Our own labels tell a container that is ours; an image must not say that. The daemon repeats all with every event."""
    names = labels if isinstance(labels, Mapping) else ["?"]
    long = labels is names and sum(len(str(name)) + len(str(labels[name])) for name in names) > _MOST_LABELS
    if labels is not names or long or any(_is_ours(name) for name in names):
        yield "image_label"


def _is_ours(name: Any) -> bool:
    """With or without the dot, in any spelling of its letters."""
    return not isinstance(name, str) or name.lower().startswith(LABEL_PREFIX.rstrip("."))


def _environment_faults(entries: Any) -> Iterator[str]:
    if not isinstance(entries, list):
        yield "image_env"
        return
    names = [entry.partition("=")[0] if isinstance(entry, str) else "" for entry in entries]
    if len(set(names)) != len(names):
        yield "image_env"
    for name, entry in zip(names, entries, strict=True):
        value = str(entry).partition("=")[2]
        rule = _ENVIRONMENT.get(name)
        if rule is None:
            yield "image_env"
        elif not rule.fullmatch(value):
            yield "image_env_path" if name == "PATH" else "image_env"


def _normal(architecture: Any) -> str:
    word = str(architecture)
    return _ARCHITECTURES.get(word, word)


# --- the agent ------------------------------------------------------------------------------------------------------------


def agent_matches(archive: bytes) -> bool:
    """Whether a tar of /usr/lib/plimsoll (GET /containers/{id}/archive) holds our agent, byte for byte, and nothing else.

    Nothing else: whatever lies beside the agent's files could be imported in place of one of the standard library's.
    """
    if len(archive) > _MOST_BYTES:
        return False
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            return _files_in(tar) == expected_files()
    except (tarfile.TarError, ValueError, OSError, UnicodeError, EOFError):
        return False


def _files_in(tar: tarfile.TarFile) -> dict[str, bytes] | None:
    """Regular files by path; None when there is anything else, anything twice, or too much."""
    found: dict[str, bytes] = {}
    for count, member in enumerate(tar):
        if count >= _MOST_FILES or member.size > _MOST_BYTES or member.name in found:
            return None
        if member.isdir():
            if member.name.rstrip("/") not in _folders():
                return None
        elif member.type not in tarfile.REGULAR_TYPES or member.issparse() or not _is_readable_only(member):
            return None
        else:
            file = tar.extractfile(member)
            found[member.name] = file.read(_MOST_BYTES) if file else b""
    return found


def _is_readable_only(member: tarfile.TarInfo) -> bool:
    """Owned by root, and writable by nobody else."""
    return member.uid == 0 and not member.mode & 0o022


@cache
def expected_files() -> Mapping[str, bytes]:
    """The agent's files as an image holds them, by their path in such a tar."""
    agent = resources.files("providers.docker.agent")
    here = {
        entry.name: entry.read_bytes()
        for entry in agent.iterdir()
        if entry.is_file() and entry.name.endswith((".py", ".js"))
    }
    inside = {"/".join((_TOP, *_PARTS, name)): content for name, content in here.items()}
    return {**inside, f"{_TOP}/__main__.py": here["__main__.py"]}


@cache
def _folders() -> frozenset[str]:
    return frozenset("/".join((_TOP, *_PARTS[:depth])) for depth in range(len(_PARTS) + 1))
