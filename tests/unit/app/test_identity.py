"""Tokens carry a checksum, and only their digest is looked up."""

import hashlib
import os

from hypothesis import given
from hypothesis import strategies as st

from app.identity import Caller, Scope, mint_token, token_sha256


def test_a_minted_token_is_well_formed_and_known_by_its_digest() -> None:
    token = mint_token(os.urandom)
    assert token_sha256(token) == hashlib.sha256(token.encode()).hexdigest()


@given(st.integers(0, 54), st.sampled_from("abcXYZ019-_"))
def test_one_changed_character_is_garbage(position: int, letter: str) -> None:
    token = mint_token(lambda size: bytes(range(size)))
    changed = token[:position] + letter + token[position + 1 :]
    assert (token_sha256(changed) is None) == (changed != token)


@given(st.text(max_size=100))
def test_garbage_has_no_digest(text: str) -> None:
    assert token_sha256(text) is None


def test_an_admin_reads_records_and_may_not_run_code() -> None:
    admin = Caller("a" * 32, "admin", frozenset({Scope.ADMIN}))
    assert admin.may(Scope.READ_RECORDS)
    assert not admin.may(Scope.RUN)
