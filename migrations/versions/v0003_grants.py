"""Grant profiles with their sealed boxes and public keys; which profile a run had, and what its calls were.

Nothing is copied: columns with a constant default, or with none, are added in place by both engines.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "grants",
        *(_text("name"), _text("profile")),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        *(_text("description"), _text("catalog"), _text("preamble"), _text("advice"), _text("public_key")),
        *(_integer("created_unix_ms"), _integer("updated_unix_ms")),
        sa.PrimaryKeyConstraint("name", name="pk_grants"),
    )
    op.create_table(
        "retired_keys",
        *(_text("public_key"), _integer("until_unix_ms")),
        sa.PrimaryKeyConstraint("public_key", name="pk_retired_keys"),
    )
    op.add_column("runs", sa.Column("grant_profile", sa.String, nullable=False, server_default=""))
    op.add_column("runs", sa.Column("grant_trace", sa.String))


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)
