"""How much each caller has stored: counted from here on as it changes, and once from what is there.

A SQLite file that cannot shrink is made over by the service itself, since that cannot be done inside a transaction.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "stored",
        sa.Column("caller_id", sa.String, nullable=False),
        sa.Column("runs", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("caller_id", name="pk_stored"),
    )
    op.execute(
        "INSERT INTO stored (caller_id, runs, bytes) SELECT caller_id, count(*),"
        " 2048 * count(*) + coalesce(sum(length(grant_trace)), 0) FROM runs GROUP BY caller_id"
    )
