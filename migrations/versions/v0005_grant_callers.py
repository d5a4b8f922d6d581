"""Which callers may use which grant profile, in a table of its own: so a profile is read only for who may use it.

What the profiles of before say is written there. One that cannot be read is of nobody.
"""

import json
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    table = op.create_table(
        "grant_callers",
        sa.Column("caller", sa.String, nullable=False),
        sa.Column("profile", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("caller", "profile", name="pk_grant_callers"),
    )
    connection = op.get_bind()
    found = connection.execute(sa.text("SELECT name, profile FROM grants")).all()
    rows = [{"profile": name, "caller": caller} for name, text in found for caller in _callers(text)]
    if rows:
        connection.execute(sa.insert(table), rows)


def _callers(text: str) -> Iterator[str]:
    try:
        profile = json.loads(text)
    except ValueError:
        return
    listed = profile.get("allowed_callers") if isinstance(profile, dict) else None
    if isinstance(listed, list):
        yield from sorted({each for each in listed if isinstance(each, str)})
