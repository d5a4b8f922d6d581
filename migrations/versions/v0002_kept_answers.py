"""Kept answers with their keys and byte counts; who owns a run, and until when; cancel requests.

Nothing is copied: columns with a constant default are added in place by both engines.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    _runs()
    _answers()
    _replicas()


def _text(name: str, *, known: bool = True) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=not known)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _runs() -> None:
    op.add_column("runs", sa.Column("owner", sa.String, nullable=False, server_default=""))
    for name in ("kept", "cancel_requested"):
        op.add_column("runs", sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false()))


def _answers() -> None:
    op.create_table(
        "answers",
        *(_text("run_id"), _text("caller_id"), _text("key_sha256", known=False), _text("fingerprint")),
        *(_integer("expires_unix_ms"), _integer("reserved_bytes"), _integer("held_bytes")),
        sa.Column("body", sa.LargeBinary),
        sa.PrimaryKeyConstraint("run_id", name="pk_answers"),
        sa.UniqueConstraint("caller_id", "key_sha256", name="uq_answers_caller_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_answers_run_id_runs"),
    )
    op.create_index("ix_answers_expires", "answers", ["expires_unix_ms"])
    op.create_table(
        "kept_bytes",
        *(_text("scope"), _integer("bytes")),
        sa.PrimaryKeyConstraint("scope", name="pk_kept_bytes"),
    )


def _replicas() -> None:
    op.create_table(
        "replicas",
        *(_text("id"), _integer("lease_until_unix_ms")),
        sa.PrimaryKeyConstraint("id", name="pk_replicas"),
    )
