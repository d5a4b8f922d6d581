"""The tables. A fresh SQLite file is made from here, everything else by `migrations`; a test proves both equal.

Column names of `runs`, `records` and `audit` are the field names of their values. Booleans and enumerations are
checked by the code that writes them, not by the database: a CHECK cannot be changed in SQLite without copying the table.
"""

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False)


def _integer(name: str, *, known: bool = True) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=not known)


def _flag(name: str, *, known: bool = True) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=not known)


callers = sa.Table(
    "callers",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("name", sa.String, nullable=False, unique=True),
    _text("scopes"),
    _integer("created_unix_ms"),
    _integer("revoked_unix_ms", known=False),
)

caller_tokens = sa.Table(
    "caller_tokens",
    metadata,
    sa.Column("sha256", sa.String, primary_key=True),
    sa.Column("caller_id", sa.ForeignKey("callers.id"), nullable=False, index=True),
    _integer("created_unix_ms"),
    _integer("expires_unix_ms", known=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    _text("caller_id"),
    _text("kind"),
    _text("floor"),
    _text("provider"),
    _text("tier"),
    _text("boot_id"),
    _text("trace_id"),
    _text("request_sha256"),
    _text("evidence_sha256"),
    _text("environment"),
    _text("software_identity"),
    _integer("code_bytes"),
    _integer("created_unix_ms"),
    _text("state"),
    _text("reason"),
    _flag("settled"),
    _integer("ended_unix_ms", known=False),
    _integer("exit_code", known=False),
    _flag("timed_out", known=False),
    _flag("oom_killed", known=False),
    _flag("cancelled", known=False),
    _integer("duration_ms", known=False),
    _integer("start_ms", known=False),
    _integer("stdout_bytes", known=False),
    _integer("stderr_bytes", known=False),
    _flag("stdout_truncated", known=False),
    _flag("stderr_truncated", known=False),
    # Since 0002; the defaults are for runs that were there before.
    sa.Column("owner", sa.String, nullable=False, server_default=""),
    sa.Column("kept", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    # Since 0003.
    sa.Column("grant_profile", sa.String, nullable=False, server_default=""),
    sa.Column("grant_trace", sa.String),
    # A caller's pages, an admin's pages and retention, what retention may drop, what a start has to settle.
    sa.Index("ix_runs_caller", "caller_id", "created_unix_ms", "id"),
    sa.Index("ix_runs_created", "created_unix_ms", "id"),
    sa.Index("ix_runs_evidence", "evidence_sha256"),
    sa.Index(
        "ix_runs_unsettled",
        "created_unix_ms",
        "id",
        sqlite_where=sa.text("settled = 0"),
        postgresql_where=sa.text("settled = false"),
    ),
)
"""No foreign key to `callers`: the caller of insecure mode has no row, and callers are never deleted."""

records = sa.Table(
    "records",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.id"), primary_key=True),
    _integer("version"),
    _text("request_sha256"),
    _text("result_sha256"),
    _text("unanswered"),
    _text("provider"),
    _text("isolation"),
    _text("environment"),
    _text("policy"),
    _text("software_identity"),
    _text("software_rule_id"),
    _text("instance"),
    _integer("started_unix_ms"),
    _integer("ended_unix_ms"),
    _text("session"),
    _integer("sequence"),
    _text("previous_sha256"),
    _text("record_sha256"),
)

audit = sa.Table(
    "audit",
    metadata,
    # SQLite counts up by itself only in a column declared INTEGER.
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    _integer("unix_ms"),
    _text("event"),
    _text("caller_id"),
    _text("run_id"),
    _text("kind"),
    _text("floor"),
    _text("provider"),
    _text("tier"),
    _text("request_sha256"),
    _text("reason"),
    _integer("exit_code", known=False),
    _integer("duration_ms", known=False),
    sa.Index("ix_audit_time", "unix_ms"),
)

evidence = sa.Table(
    "evidence",
    metadata,
    sa.Column("sha256", sa.String, primary_key=True),
    _text("provider"),
    _text("tier"),
    _text("facts"),
    _integer("created_unix_ms"),
)

answers = sa.Table(
    "answers",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.id"), primary_key=True),
    _text("caller_id"),
    # Null for an async run without a key; nulls are never equal, so the constraint lets them pass.
    sa.Column("key_sha256", sa.String),
    _text("fingerprint"),
    _integer("expires_unix_ms"),
    _integer("reserved_bytes"),
    _integer("held_bytes"),
    sa.Column("body", sa.LargeBinary),
    sa.UniqueConstraint("caller_id", "key_sha256"),
    sa.Index("ix_answers_expires", "expires_unix_ms"),
)
"""One row a run whose answer is to be kept. While the run can end, `held_bytes` equals `reserved_bytes`; then it is the size of
`body`, or 0 where there is none."""

kept_bytes = sa.Table(
    "kept_bytes",
    metadata,
    sa.Column("scope", sa.String, primary_key=True),
    _integer("bytes"),
)
"""The sum of `held_bytes` by caller, and over all under the scope `""`."""

stored = sa.Table(
    "stored",
    metadata,
    sa.Column("caller_id", sa.String, primary_key=True),
    _integer("runs"),
    _integer("bytes"),
)
"""How many runs a caller has stored, and the bytes they count as."""

grants = sa.Table(
    "grants",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    _text("profile"),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    _text("description"),
    _text("catalog"),
    _text("preamble"),
    _text("advice"),
    _text("public_key"),
    _integer("created_unix_ms"),
    _integer("updated_unix_ms"),
)
"""`sealed` is for the broker's private key alone, and bound to `profile`, which is JSON. `public_key` is what the profile's
tokens are verified with, a JWK as JSON; empty where there is none."""

grant_callers = sa.Table(
    "grant_callers",
    metadata,
    sa.Column("caller", sa.String, primary_key=True),
    sa.Column("profile", sa.String, primary_key=True),
)
"""Names of the callers that each profile allows, as its `profile` lists them."""

retired_keys = sa.Table(
    "retired_keys",
    metadata,
    sa.Column("public_key", sa.String, primary_key=True),
    _integer("until_unix_ms"),
)
"""Public keys of profiles that were removed or applied anew, until no token of theirs is valid any more."""

replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    _integer("lease_until_unix_ms"),
)
"""Who may own an open run, until when by the database's clock."""
