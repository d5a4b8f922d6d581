"""From a sealed secret to an API that verifies, and nowhere else."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from app.vault import keys, seal, unseal
from app.vault.unseal import BoxFault
from broker.addresses import AddressFault
from broker.calls import Clocks
from broker.lease import Leases, Terms
from broker.mint import MintFault, OneProfile
from broker.profiles import Handed, Sources, grant_of, minter_for
from broker.upstream import Limits, Upstream, connect, trust
from plimsoll.contract.grants import Origin, parse_origin
from plimsoll.contract.profiles import CredentialTerms, CredentialType, Profile
from tests.integration.broker.apis import HOME, Request, answer, canned, serve
from tests.unit.broker.test_jose import EC, ED, PUBLISHED, pem
from tests.unit.broker.verifying import NotVerified, verify

TLS = trust()
LIMITS = Limits(connect_s=10, first_byte_s=30, total_s=30)
RUN = "a" * 32


def profile(origin: Origin, algorithm: str = "EdDSA") -> Profile:
    terms = CredentialTerms(CredentialType.JWT, "hr", issuer="plimsoll", scope="read", algorithm=algorithm)
    return Profile("hr-read", str(origin), ("GET /v1/employees/*",), ("reporting",), terms)


class Vault:
    """A pair of key files, and what each side does with its own."""

    def __init__(self, folder: Path) -> None:
        self.private, self.public = folder / "vault.private", folder / "vault.public"
        keys.make_pair(self.private, self.public)

    def seal(self, secret: bytes, bound: Profile) -> bytes:
        return seal.seal(secret, seal.binding_of(bound), keys.read_public(self.public))

    def sources(self) -> Sources:
        return Sources(
            unseal.load(self.private),
            {},
            go,
            OneProfile(os.urandom(32)),
            time.time,
            os.urandom,
        )


async def go(origin: Origin) -> Upstream | AddressFault:
    return await connect(origin, HOME, TLS, LIMITS)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path)


@asynccontextmanager
async def calling(vault: Vault, bound: Profile, sealed: bytes) -> AsyncIterator[bytes | BoxFault | object]:
    """The answer to one call of a run under this profile, or why there was no run."""
    minter = minter_for(Handed(bound, sealed, "reporting"), vault.sources())
    if not hasattr(minter, "mint"):
        yield minter
        return
    async with Leases(Clocks(time.monotonic, time.time), os.urandom) as leases:
        shown = await leases.register(
            Terms(RUN, bound.name, "caller-7", "worker", 30),
            grant_of(bound),
            minter,
            lambda: go(parse_origin(bound.origin)),
        )
        assert not isinstance(shown, MintFault)
        assert isinstance(shown, bytes), shown
        calls = leases.calls_of(shown, RUN, "worker")
        assert calls is not None
        async with calls.call(b'{"method":"GET","path":"/v1/employees/7"}') as answer:
            yield answer


@pytest.mark.parametrize(("algorithm", "key"), [("EdDSA", pem(ED)), ("ES256", pem(EC))])
async def test_an_api_verifies_with_published_keys_alone(vault: Vault, algorithm: str, key: bytes) -> None:
    published = {PUBLISHED[algorithm]["kid"]: PUBLISHED[algorithm]}

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        token = request.values("authorization")[0].removeprefix(b"Bearer ").decode()
        try:
            claims = verify(
                token, published, algorithm=algorithm, issuer="plimsoll", audience="hr", now=time.time()
            )
        except NotVerified:
            writer.write(answer(b"", status="401 Unauthorized"))
        else:
            writer.write(answer(f"{claims['sub']} may {claims['scope']}".encode()))

    async with serve(reply) as api:
        bound = profile(api.origin, algorithm)
        async with calling(vault, bound, vault.seal(key, bound)) as answered:
            assert isinstance(answered, bytes)
            assert json.loads(answered)["body"] == "caller-7 may read"


async def test_an_altered_origin_gets_no_connection(vault: Vault) -> None:
    async with serve(canned(answer())) as evil, serve(canned(answer())) as api:
        sealed = vault.seal(pem(ED), profile(api.origin))
        async with calling(vault, profile(evil.origin), sealed) as answered:
            assert answered is BoxFault.BOUND_ELSEWHERE
        renamed = replace(profile(api.origin), name="other")
        async with calling(vault, renamed, sealed) as answered:
            assert answered is BoxFault.BOUND_ELSEWHERE
    assert (evil.connections, api.connections) == (0, 0)
