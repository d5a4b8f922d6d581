"""Grant profiles for a private service: its own `plimsoll-admin grants apply`, on its own data.

The command reads each secret once, from an environment that holds nothing but what is passed here, and seals it. It is the one
beside the service's program, because another version could mean another database.
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from plimsoll.client.errors import InvalidOption, LocalServiceError

COMMAND = "plimsoll-admin"
APPLY_S = 60.0

_NAME = re.compile(r"(?!PLIMSOLL_|SANDBOX_)[A-Z][A-Z0-9_]*")


def apply_grants(
    program: str, environment: Mapping[str, str], profiles: object, secrets: Mapping[str, str]
) -> None:
    """Add or replace `profiles`, a file's text, all or none. Raises InvalidOption, LocalServiceError with every fault."""
    text = _text("profiles", profiles)
    secret_values = {_name(name): _text(f"secrets: the value of {name}", secrets[name]) for name in secrets}
    command = Path(program).with_name(COMMAND)
    try:
        done = subprocess.run(  # noqa: S603 - it stands beside the program that the caller named
            [command, "grants", "apply", "-"],
            env={**environment, **secret_values},
            input=text.encode(),
            capture_output=True,
            timeout=APPLY_S,
            check=False,
        )
    except OSError as error:
        raise LocalServiceError(f"{command} could not be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise LocalServiceError(f"{command} did not end within {APPLY_S:.0f} seconds") from None
    if done.returncode:
        faults = done.stderr.decode(errors="backslashreplace").strip().splitlines()
        raise LocalServiceError("\n".join(["no grant profile was applied", *faults]), errors=faults)


def _name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidOption(f"secrets: {name!r} is no name for a variable that holds a secret")
    return name


def _text(what: str, value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise InvalidOption(f"{what} must be text")
    return value
