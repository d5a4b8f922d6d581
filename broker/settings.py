"""What the broker is told when it starts, and the minters in its own settings file.

A supervised broker is told on its inherited socket, never by environment or argv; one that is started by hand reads the same
from a TOML file. The file of minters is the operator's alone: it decides what is started, and with which secrets.
"""

import ipaddress
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from broker.addresses import Address, Rules, parse_listed
from broker.credential import CredentialFault
from broker.hooks import HOOK_S, ExecHook, HttpHook
from plimsoll.contract import bounds
from plimsoll.contract.grants import GrantFault, parse_origin
from plimsoll.contract.profiles import HEADER, TAKEN_HEADERS

CONTROL_CHARACTERS: Final = 32
"""Shorter secrets could be guessed."""
_FILE_BYTES: Final = 1 << 20
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_VALUE: Final = re.compile(r"[!-~](?:[ -~]{0,16382}[!-~])?")
_OTHERS_WRITE: Final = 0o022
_OTHERS: Final = 0o077
_KNOWN: Final = {
    *("key", "control", "control_file", "listen", "networks", "ca_file", "minters", "listeners", "peers"),
}

Hooks = Mapping[str, ExecHook | HttpHook]


class Faulty(Exception):
    """The settings cannot be used. The message names setting and rule, never a value of a secret."""


@dataclass(frozen=True, slots=True)
class Given:
    """The settings. `peers` are the uids that may connect to a Unix socket; `listen` is empty when the socket is inherited."""

    key: Path
    control: bytes = field(repr=False)
    rules: Rules = field(default_factory=Rules)
    ca_file: Path | None = None
    hooks: Hooks = field(default_factory=dict, repr=False)
    peers: frozenset[int] = frozenset()
    listen: str = ""


def given(told: Mapping[str, Any]) -> Given:
    """The settings in `told`. Raises Faulty."""
    if unknown := sorted(set(told) - _KNOWN):
        raise Faulty(f"{unknown[0]}: is no setting of the broker")
    ca_file, minters = _text(told, "ca_file"), _text(told, "minters")
    try:
        rules = Rules(parse_listed(_text(told, "networks")), tuple(map(_listener, told.get("listeners", []))))
        peers = frozenset(map(int, told.get("peers", [os.geteuid()])))
    except (ValueError, TypeError) as error:
        raise Faulty(f"networks, listeners or peers: {error}") from None
    return Given(
        key=Path(_required(told, "key")),
        control=_control(told),
        rules=rules,
        ca_file=Path(ca_file) if ca_file else None,
        hooks=read_hooks(Path(minters)) if minters else {},
        peers=peers,
        listen=_text(told, "listen"),
    )


def from_file(path: Path) -> Given:
    """The settings of a broker that is started by hand. Raises Faulty."""
    settings = given(_toml(path, _OTHERS_WRITE))
    if not settings.listen:
        raise Faulty("listen: is required, as in unix:/run/plimsoll-broker/socket or 127.0.0.1:8747")
    return replace(settings, rules=_never_itself(settings.rules, settings.listen))


def _never_itself(rules: Rules, listen: str) -> Rules:
    """The rules with the broker's own listener, which is no API."""
    if listen.startswith("unix:"):
        return rules
    host, _, port = listen.rpartition(":")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
        ours = (None if address.is_unspecified else address), int(port)
    except ValueError:
        raise Faulty("listen: must be unix:/PATH or IP:PORT") from None
    return replace(rules, listeners=(*rules.listeners, ours))


def _text(told: Mapping[str, Any], name: str) -> str:
    value = told.get(name, "")
    if not isinstance(value, str):
        raise Faulty(f"{name}: must be a text")
    return value


def _required(told: Mapping[str, Any], name: str) -> str:
    if not (value := _text(told, name)):
        raise Faulty(f"{name}: is required")
    return value


def _control(told: Mapping[str, Any]) -> bytes:
    secret = _text(told, "control")
    if file := _text(told, "control_file"):
        secret = _read(Path(file), _OTHERS).decode("ascii", "replace").strip()
    if len(secret) < CONTROL_CHARACTERS:
        raise Faulty(f"control_file: must hold a secret of at least {CONTROL_CHARACTERS} characters")
    return secret.encode()


def _listener(pair: Any) -> tuple[Address | None, int]:
    host, port = pair
    return (None if host is None else ipaddress.ip_address(host)), int(port)


def _toml(path: Path, forbidden: int) -> dict[str, Any]:
    try:
        return tomllib.loads(_read(path, forbidden).decode())
    except ValueError:
        # No detail: the parser's words could repeat a secret.
        raise Faulty(f"{path} must be TOML in UTF-8") from None


def _read(path: Path, forbidden: int) -> bytes:
    """A regular file of ours or of root's that others cannot reach in the `forbidden` ways. Raises Faulty."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise Faulty(f"{path}: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in {os.geteuid(), 0}:
            raise Faulty(f"{path} must be a regular file of the broker's user or root")
        if found.st_mode & forbidden:
            raise Faulty(f"{path} can be {'reached' if forbidden == _OTHERS else 'changed'} by others")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > _FILE_BYTES:
        raise Faulty(f"{path} must be at most {_FILE_BYTES} bytes")
    return data


def read_hooks(path: Path) -> Hooks:
    """The minters in a file that nobody else can reach. Raises Faulty, naming minter and rule."""
    told = _toml(path, _OTHERS)
    if unknown := sorted(set(told) - {"exec", "http"}):
        raise Faulty(f"{path}: {unknown[0]}: must be exec or http")
    found: dict[str, ExecHook | HttpHook] = {}
    for kind, build in (("exec", _exec), ("http", _http)):
        for name, table in _tables(path, kind, told.get(kind, {})).items():
            if name in found or not bounds.NAME.fullmatch(name):
                raise Faulty(f"{path}: {kind}.{name[:64]}: must have a name of its own, 1 to 64 of [a-z0-9-]")
            try:
                found[name] = build(table)
            except (CredentialFault, GrantFault) as fault:
                raise Faulty(f"{path}: {kind}.{name}: {fault}") from None
            except (KeyError, TypeError, ValueError):
                raise Faulty(f"{path}: {kind}.{name}: lacks a member, or has one of another type") from None
    return found


def _tables(path: Path, kind: str, value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        raise Faulty(f"{path}: {kind}: must hold tables, as in [{kind}.vault]")
    return value


def _exec(table: Mapping[str, Any]) -> ExecHook:
    _only(table, "command", "origins", "environment", "timeout_s")
    timeout_s = table.get("timeout_s", HOOK_S)
    if type(timeout_s) not in {int, float} or not 0 < timeout_s <= HOOK_S:
        raise CredentialFault(f"timeout_s must be a number of seconds, up to {HOOK_S:g}")
    command, environment = tuple(_texts(table["command"])), _pairs(table, "environment")
    if any("\0" in text for text in (*command, *environment.values())):
        raise CredentialFault("command and environment must hold no NUL")
    if not all(map(_VARIABLE.fullmatch, environment)):
        raise CredentialFault("environment must have names of [A-Za-z0-9_]")
    return ExecHook(command, _origins(table), environment, float(timeout_s))


def _http(table: Mapping[str, Any]) -> HttpHook:
    _only(table, "url", "path", "origins", "headers")
    headers = {name.lower(): value for name, value in _pairs(table, "headers").items()}
    if not all(HEADER.fullmatch(name) and name not in TAKEN_HEADERS for name in headers):
        raise CredentialFault(
            "headers must have names of [a-z0-9-], and none that requests use for something else"
        )
    if not all(map(_VALUE.fullmatch, headers.values())):
        raise CredentialFault("headers must have values of visible ASCII")
    return HttpHook(parse_origin(table["url"]), table["path"], _origins(table), tuple(headers.items()))


def _pairs(table: Mapping[str, Any], name: str) -> dict[str, str]:
    value = table.get(name, {})
    if not isinstance(value, dict):
        raise TypeError
    return dict(zip(value, _texts(value.values()), strict=True))


def _only(table: Mapping[str, Any], *known: str) -> None:
    if unknown := sorted(set(table) - set(known)):
        raise CredentialFault(f"{unknown[0]} is no member of a minter")


def _origins(table: Mapping[str, Any]) -> frozenset[str]:
    origins = list(_texts(table["origins"]))
    for origin in origins:
        parse_origin(origin)
    if not origins:
        raise CredentialFault("origins must list what it mints for")
    return frozenset(origins)


def _texts(values: Any) -> list[str]:
    found = [values] if isinstance(values, str) else list(values)
    if isinstance(values, str) or not all(isinstance(value, str) for value in found):
        raise TypeError
    return found
