"""`plimsoll-admin`: callers and their tokens, grants and the vault's keys, and the cache of compiled guests.

It works beside a running service.

A new token is the last thing on stdout, shown once; everything else is said on stderr. Exit codes: 0 done, 1 failed, 2 not
understood. Whoever can write the database is an admin, so there is no other login.
"""

import argparse
import asyncio
import os
import pwd
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from app.brokerage import broker_user
from app.dispatch.state import UnsafeStateError, make_state_directory
from app.granting import FILE_CHARACTERS, Reading, listed
from app.identity import DEFAULT_SCOPES, Scope, mint_token, token_sha256
from app.settings import Settings, SettingsError, read_settings
from app.store import exchange
from app.store.store import Store, open_store, other_owner
from app.store.values import (
    AlreadyExists,
    CallerToken,
    NewCaller,
    StoreError,
    StoreUnavailable,
    UnknownCaller,
)
from app.vault import keys
from app.vault.keys import KeyUnusable

_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class _Failed(Exception):
    """Nothing was done; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class _Command:
    """One invocation: its arguments, its settings, and the world it acts on."""

    arguments: argparse.Namespace
    settings: Settings
    environ: Mapping[str, str] = field(repr=False)
    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    clock: Callable[[], int]
    random_bytes: Callable[[int], bytes]

    def say(self, text: str) -> None:
        print(text, file=self.stderr)

    def new_token(self) -> tuple[str, CallerToken]:
        """A token and what the store keeps of it."""
        token = mint_token(self.random_bytes)
        sha256 = token_sha256(token)
        assert sha256 is not None  # noqa: S101 - a token just made is well formed
        return token, CallerToken(sha256, self.arguments.expires)

    def hand_over(self, token: str) -> None:
        """The token alone on stdout, after all that was to be said."""
        self.stderr.flush()
        print(token, file=self.stdout, flush=True)


def run_admin(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdout: TextIO,
    stderr: TextIO,
    *,
    stdin: TextIO | None = None,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> int:
    """Run one command and return its exit code."""
    try:
        with redirect_stdout(stdout), redirect_stderr(stderr):
            arguments = _parser(clock).parse_args(argv)
        settings = read_settings(environ)
        stdin = stdin or sys.stdin
        command = _Command(arguments, settings, environ, stdin, stdout, stderr, clock, random_bytes)
        if arguments.alone:
            done: int = arguments.alone(command)
            return done
        _refuse_wrong_user(settings, argv, environ)
        asyncio.run(_with_store(command))
    except SystemExit as stop:  # argparse has said what it had to say
        return int(stop.code or 0)
    except SettingsError as error:
        print(error, file=stderr)
        return 2
    except (_Failed, StoreError, KeyUnusable, UnsafeStateError, OSError) as error:
        print(f"plimsoll-admin: {_sentence(error)}", file=stderr)
        return 1
    return 0


def _sentence(error: Exception) -> str:
    if isinstance(error, StoreUnavailable) and error.outcome == "unknown":
        return f"{error}: whether it was done is not known, `callers list` shows it"
    return str(error)


def _shown_once(what: str, expires_unix_ms: int | None) -> str:
    end = "does not expire" if expires_unix_ms is None else f"ends at {exchange.iso(expires_unix_ms)}"
    return f"{what} {end}; it is on standard output, shown this once"


def _where(database_url: str) -> str:
    """The database for an operator's eyes: the file, or only that it is the one of the setting, which may hold a password."""
    prefix = "sqlite+aiosqlite:///"
    if not database_url.startswith(prefix):
        return "the database of PLIMSOLL_DATABASE_URL"
    return database_url.removeprefix(prefix)


async def _with_store(command: _Command) -> None:
    run: Callable[[_Command, Store], Awaitable[None]] = command.arguments.run
    async with open_store(command.settings.database_url, clock=command.clock, sole_owner=False) as store:
        await run(command, store)


async def _create(command: _Command, store: Store) -> None:
    name = command.arguments.name
    # Which database, because a service with other settings would never see this caller.
    where = _where(command.settings.database_url)
    scopes = frozenset(command.arguments.scope or DEFAULT_SCOPES)
    token, kept = command.new_token()
    caller = NewCaller(command.random_bytes(16).hex(), name, scopes, (kept,))
    try:
        await store.callers.create(caller)
    except AlreadyExists:
        raise _Failed(
            f"the name {name} was used before; a name is never given twice (rotate gives it a new token)"
        ) from None
    command.say(f"caller {name}, id {caller.id}, may {', '.join(sorted(scopes))}, in {where}")
    command.say(_shown_once("its token", kept.expires_unix_ms))
    command.hand_over(token)


async def _rotate(command: _Command, store: Store) -> None:
    token, kept = command.new_token()
    overlap: int = command.arguments.overlap
    await _known(command, store.callers.rotate(command.arguments.name, kept, overlap))
    command.say(f"older tokens of {command.arguments.name} end at {exchange.iso(command.clock() + overlap)}")
    command.say(_shown_once("the new one", kept.expires_unix_ms))
    command.hand_over(token)


async def _revoke(command: _Command, store: Store) -> None:
    await _known(command, store.callers.revoke(command.arguments.name))
    command.say(f"{command.arguments.name} is revoked, and its name is never given again")


async def _known(command: _Command, work: Awaitable[None]) -> None:
    try:
        await work
    except UnknownCaller:
        raise _Failed(f"there is no caller {command.arguments.name}, or it was revoked") from None


async def _list(command: _Command, store: Store) -> None:
    for caller in await store.callers.all():
        if command.arguments.json:
            print(exchange.line(caller), file=command.stdout)
            continue
        ends = [_until(token.expires_unix_ms, command.clock()) for token in caller.tokens]
        state = "revoked" if caller.revoked_unix_ms is not None else "; ".join(ends) or "no token"
        scopes = ",".join(sorted(caller.scopes))
        print(f"{caller.name}  {caller.id}  {scopes}  {state}", file=command.stdout)


async def _import(command: _Command, store: Store) -> None:
    reader = exchange.Reader(lambda: command.random_bytes(16).hex())
    new = reader.read(_text(command))
    faults = reader.faults or [
        (reader.numbers[position], rule) for position, rule in await store.callers.import_(new)
    ]
    if faults:
        lines = [f"line {number}: {rule}" for number, rule in faults]
        raise _Failed("nothing was imported\n" + "\n".join(lines))
    command.say(f"imported {len(new)} callers")


def _text(command: _Command, most: int = -1) -> str:
    """What the file holds, or of a longer one a character more than `most`."""
    source: str = command.arguments.file
    limit = most + 1 if most >= 0 else -1
    try:
        if source == "-":
            return command.stdin.read(limit)
        with Path(source).open(encoding="utf-8") as file:
            return file.read(limit)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise _Failed(f"{source!a}: {why}") from None


def _vault_init(command: _Command) -> int:
    """The pair of keys: the private one for the broker's user, the public one for whoever seals."""
    settings = command.settings
    user = broker_user(settings)
    make_state_directory(settings.data_dir, below=settings.data_dir)
    private = settings.vault_private
    if user is not None and not private.parent.exists():
        private.parent.mkdir(mode=0o700)
        os.chown(private.parent, user.uid, user.gid)
    keys.make_pair(private, settings.vault_public)
    if user is not None:
        os.chown(private, user.uid, user.gid)
    command.say(f"the broker's key is {private}, and what it opens is sealed with {settings.vault_public}")
    command.say(
        "keep a copy of the first where nobody else reads it: without it every profile is to be applied again"
    )
    return 0


async def _apply(command: _Command, store: Store) -> None:
    source: str = command.arguments.file
    folder = None if source == "-" else Path(source).parent
    public = command.settings.vault_public
    if not public.exists():
        raise _Failed(
            f"{public} is not there: start the service with a broker, or use `plimsoll-admin vault init`"
        )
    reading = Reading(command.environ, keys.read_public(public), folder)
    text = _text(command, FILE_CHARACTERS)
    if len(text) > FILE_CHARACTERS:
        raise _Failed(f"{source!a}: must be at most {FILE_CHARACTERS} characters")
    reading.read(text)
    if reading.faults:
        raise _Failed("nothing was applied:\n" + "\n".join(reading.faults))
    await store.grants.apply(reading.found)
    for grant in reading.found:
        command.say(f"{grant.profile.name} is applied, for {', '.join(grant.profile.allowed_callers)}")
    known = {each.name for each in await store.callers.all()}
    for name in sorted({name for grant in reading.found for name in grant.profile.allowed_callers} - known):
        command.say(f"there is no caller {name} yet; whoever is given that name may use these profiles")


async def _grants(command: _Command, store: Store) -> None:
    for grant in await store.grants.all():
        print(listed(grant), file=command.stdout)


async def _remove(command: _Command, store: Store) -> None:
    name = command.arguments.name
    if not await store.grants.remove(name):
        raise _Failed(f"there is no grant profile {name}")
    command.say(f"{name} is removed; runs that have it already keep it to their end")


def _fill_cache(command: _Command) -> int:
    """Compile the guests in a process of their own, isolated and without our environment, as the service runs them."""
    settings = command.settings
    fill = [sys.executable, "-I", "-m", "providers.wasm.cache", str(settings.cache_dir)]
    fill += ["--memory-mb", str(settings.memory_of("wasm"))]
    done = subprocess.run(fill, env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    command.stdout.write(done.stdout)
    command.stderr.write(done.stderr)
    return 0 if done.returncode == 0 else 1


def _refuse_wrong_user(settings: Settings, argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Never touch another user's SQLite database: what root makes there, the service cannot open."""
    if found := other_owner(settings.database_url):
        directory, owner = found
        raise _Failed(f"{directory} belongs to {_user(owner)}: run {_as_user(owner, argv, environ)}")


def _as_user(owner: int, argv: Sequence[str], environ: Mapping[str, str]) -> str:
    become = "runuser" if os.geteuid() == 0 else "sudo"
    names = ("PLIMSOLL_DATA_DIR", "PLIMSOLL_DATABASE_URL")
    places = [f"{name}={environ[name]}" for name in names if environ.get(name)]
    return shlex.join([become, "-u", _user(owner), "--", "env", *places, "plimsoll-admin", *argv])


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def _until(expires_unix_ms: int | None, now_unix_ms: int) -> str:
    if expires_unix_ms is None:
        return "without end"
    when = exchange.iso(expires_unix_ms)
    return f"until {when}" if expires_unix_ms > now_unix_ms else f"expired at {when}"


def _parser(clock: Callable[[], int]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("plimsoll-admin", description="Looks after callers, grants and caches.")
    parser.set_defaults(alone=None)
    rooms = parser.add_subparsers(required=True, metavar="callers|vault|grants|cache")
    callers = rooms.add_parser("callers", help="who may call").add_subparsers(
        required=True, metavar="COMMAND"
    )
    expires = argparse.ArgumentParser(add_help=False)
    until = "30d, 12h, or an ISO 8601 date or time; never when absent"
    expires.add_argument("--expires", type=_moment(clock), metavar="WHEN", help=f"end of the token: {until}")

    create = callers.add_parser("create", parents=[expires], help="make a caller and print its token")
    create.add_argument("name", type=_name, metavar="NAME")
    scopes = "may be given several times; code:run and records:read when absent"
    create.add_argument("--scope", action="append", type=Scope, choices=list(Scope), help=scopes)
    create.set_defaults(run=_create)
    listing = callers.add_parser("list", help="show all callers")
    listing.add_argument("--json", action="store_true", help="one object a line, as `import` reads it")
    listing.set_defaults(run=_list)
    rotate = callers.add_parser("rotate", parents=[expires], help="print a new token and end the others")
    rotate.add_argument("name", type=_name, metavar="NAME")
    overlap = "how long the others stay good: 24h unless given, 0s ends them now"
    rotate.add_argument("--overlap", type=_duration, default=_duration("24h"), help=overlap)
    rotate.set_defaults(run=_rotate)
    revoke = callers.add_parser("revoke", help="end a caller and all its tokens for good")
    revoke.add_argument("name", type=_name, metavar="NAME")
    revoke.set_defaults(run=_revoke)
    taking = callers.add_parser("import", help="add callers from JSON lines, all or none")
    taking.add_argument("file", metavar="FILE", help="- is stdin")
    taking.set_defaults(run=_import)

    _grant_commands(rooms)
    cache = rooms.add_parser("cache", help="compiled guests").add_subparsers(required=True, metavar="COMMAND")
    filling = cache.add_parser("fill", help="compile what a service would compile at its start")
    filling.set_defaults(alone=_fill_cache)
    return parser


def _grant_commands(rooms: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    vault = rooms.add_parser("vault", help="keys for secrets at rest").add_subparsers(
        required=True, metavar="COMMAND"
    )
    making = vault.add_parser("init", help="make the pair of keys; an existing one is never overwritten")
    making.set_defaults(alone=_vault_init)
    grants = rooms.add_parser("grants", help="what runs may call").add_subparsers(
        required=True, metavar="COMMAND"
    )
    applying = grants.add_parser("apply", help="add or replace profiles from TOML, all or none")
    applying.add_argument("file", metavar="FILE", help="- is stdin")
    applying.set_defaults(run=_apply)
    grants.add_parser("list", help="show all profiles").set_defaults(run=_grants)
    removing = grants.add_parser("remove", help="forget a profile")
    removing.add_argument("name", metavar="NAME")
    removing.set_defaults(run=_remove)


def _name(text: str) -> str:
    if rule := exchange.name_rule(text):
        raise argparse.ArgumentTypeError(rule)
    return text


def _duration(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError("must be a number with s, m, h or d, like 24h")
    return int(match[1]) * _UNIT_MS[match[2]]


def _moment(clock: Callable[[], int]) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            moment = clock() + _duration(text) if _DURATION.fullmatch(text) else exchange.unix_ms(text)
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError("must be like 30d or an ISO 8601 date or time") from None
        if moment <= clock():
            raise argparse.ArgumentTypeError("must be in the future")
        return moment

    return read
