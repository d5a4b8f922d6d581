"""From what the API hands over to a minter: a profile, its sealed box, and who calls.

The broker never reads the database, and does not believe that what it is handed is what was sealed. Step by step:

1. The profile keeps its rules.
2. This caller may use it.
3. The box opens beside this very profile, so nobody altered where the secret goes or what it is used for.
4. A hook that the profile names is in the broker's own settings, is of the profile's type, and mints for its origin. Whoever
   can seal a box of their own can seal a hook's name in it, so the box alone would not do.
5. The secret is a credential, or a key, of the kind the profile says; an HS256 secret serves no other profile.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.vault.unseal import BoxFault, Unsealer, binding_of
from broker import jose
from broker.addresses import AddressFault
from broker.calls import Grant
from broker.credential import CredentialFault, Place
from broker.hooks import ExecHook, ExecMinter, HttpHook, HttpMinter
from broker.mint import Claims, JwtMinter, Minter, OneProfile, StaticMinter
from broker.upstream import Upstream
from plimsoll.contract.grants import GrantFault, Origin, parse_route
from plimsoll.contract.profiles import CredentialType, Profile, check


class ProfileFault(StrEnum):
    """Why a profile is of no use to this run; append-only."""

    MALFORMED = "profile_malformed"
    CALLER = "caller_not_allowed"
    HOOK = "hook_not_for_this"
    CREDENTIAL = "credential_unusable"
    SHARED = "secret_of_another_profile"


@dataclass(frozen=True, slots=True)
class Handed:
    """What the API hands over. `caller_name` is looked for among the allowed callers."""

    profile: Profile
    sealed: bytes = field(repr=False)
    caller_name: str


@dataclass(frozen=True, slots=True)
class Sources:
    """What the broker mints with: its key, its hooks by name, its clock in Unix seconds and its randomness."""

    unsealer: Unsealer
    hooks: Mapping[str, ExecHook | HttpHook]
    connect: Callable[[Origin], Awaitable[Upstream | AddressFault]]
    one_profile: OneProfile
    clock: Callable[[], float]
    randomness: Callable[[int], bytes]


def grant_of(profile: Profile) -> Grant:
    """What a run under `profile` may do. The profile keeps its rules."""
    routes = [parse_route(text) for text in profile.allow]
    return Grant(routes, profile.max_calls, profile.health_check, profile.out_bytes)


def minter_for(handed: Handed, sources: Sources) -> Minter | ProfileFault | BoxFault:
    """Where this run's credential comes from, or why there is none."""
    profile = handed.profile
    # 1. The profile keeps its rules.
    try:
        check(profile)
        place = Place(profile.credential.header, profile.credential.scheme)
    except (GrantFault, CredentialFault):
        return ProfileFault.MALFORMED
    # 2. This caller may use it.
    if handed.caller_name not in profile.allowed_callers:
        return ProfileFault.CALLER
    # 3. The box is this profile's.
    secret = sources.unsealer.open(handed.sealed, binding_of(profile))
    if isinstance(secret, BoxFault):
        return secret
    # 4. The hook is the operator's.
    if profile.credential.type in {CredentialType.EXEC, CredentialType.HTTP}:
        return _hook_minter(profile, place, sources)
    # 5. The secret is of its kind.
    try:
        if profile.credential.type is CredentialType.STATIC:
            return StaticMinter(secret.value, place)
        return _jwt_minter(profile, secret.value, place, sources)
    except (CredentialFault, jose.KeyRefused):
        return ProfileFault.CREDENTIAL


def _hook_minter(profile: Profile, place: Place, sources: Sources) -> Minter | ProfileFault:
    hook, kind = sources.hooks.get(profile.credential.hook), profile.credential.type
    if hook is None or profile.origin not in hook.origins:
        return ProfileFault.HOOK
    audience = profile.credential.audience
    if isinstance(hook, ExecHook) and kind is CredentialType.EXEC:
        return ExecMinter(hook, audience, place)
    if isinstance(hook, HttpHook) and kind is CredentialType.HTTP:
        service = hook.url
        return HttpMinter(hook, lambda: sources.connect(service), audience, place)
    return ProfileFault.HOOK


def _jwt_minter(profile: Profile, secret: bytes, place: Place, sources: Sources) -> Minter | ProfileFault:
    terms = profile.credential
    key = jose.signer(terms.algorithm, secret, terms.key_id)
    if isinstance(key, jose.Hs256) and not sources.one_profile.claim(secret, profile.name):
        return ProfileFault.SHARED
    claims = Claims(terms.issuer, terms.audience, terms.scope, terms.lifetime_s)
    return JwtMinter(key, claims, place, sources.clock, sources.randomness)
