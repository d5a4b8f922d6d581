"""The first tables: callers and their tokens, runs with their records, the audit trail, evidence."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _callers()
    _runs()
    _records()
    _audit_and_evidence()


def _text(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String, nullable=False) for name in names]


def _integer(name: str, *, known: bool = True) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=not known)


def _flag(name: str, *, known: bool = True) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=not known)


def _callers() -> None:
    op.create_table(
        "callers",
        *_text("id", "name", "scopes"),
        _integer("created_unix_ms"),
        _integer("revoked_unix_ms", known=False),
        sa.PrimaryKeyConstraint("id", name="pk_callers"),
        sa.UniqueConstraint("name", name="uq_callers_name"),
    )
    op.create_table(
        "caller_tokens",
        *_text("sha256", "caller_id"),
        _integer("created_unix_ms"),
        _integer("expires_unix_ms", known=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_caller_tokens"),
        sa.ForeignKeyConstraint(["caller_id"], ["callers.id"], name="fk_caller_tokens_caller_id_callers"),
    )
    op.create_index("ix_caller_tokens_caller_id", "caller_tokens", ["caller_id"])


def _runs() -> None:
    op.create_table(
        "runs",
        *_text("id", "caller_id", "kind", "floor", "provider", "tier", "boot_id", "trace_id"),
        *_text("request_sha256", "evidence_sha256", "environment", "software_identity"),
        _integer("code_bytes"),
        _integer("created_unix_ms"),
        *_text("state", "reason"),
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
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("ix_runs_caller", "runs", ["caller_id", "created_unix_ms", "id"])
    op.create_index("ix_runs_created", "runs", ["created_unix_ms", "id"])
    op.create_index("ix_runs_evidence", "runs", ["evidence_sha256"])
    op.create_index(
        "ix_runs_unsettled",
        "runs",
        ["created_unix_ms", "id"],
        sqlite_where=sa.text("settled = 0"),
        postgresql_where=sa.text("settled = false"),
    )


def _records() -> None:
    op.create_table(
        "records",
        *_text("run_id"),
        _integer("version"),
        *_text("request_sha256", "result_sha256", "unanswered", "provider", "isolation", "environment"),
        *_text("policy", "software_identity", "software_rule_id", "instance"),
        _integer("started_unix_ms"),
        _integer("ended_unix_ms"),
        *_text("session"),
        _integer("sequence"),
        *_text("previous_sha256", "record_sha256"),
        sa.PrimaryKeyConstraint("run_id", name="pk_records"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_records_run_id_runs"),
    )


def _audit_and_evidence() -> None:
    op.create_table(
        "audit",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, nullable=False
        ),
        _integer("unix_ms"),
        *_text(
            "event", "caller_id", "run_id", "kind", "floor", "provider", "tier", "request_sha256", "reason"
        ),
        _integer("exit_code", known=False),
        _integer("duration_ms", known=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_time", "audit", ["unix_ms"])
    op.create_table(
        "evidence",
        *_text("sha256", "provider", "tier", "facts"),
        _integer("created_unix_ms"),
        sa.PrimaryKeyConstraint("sha256", name="pk_evidence"),
    )
