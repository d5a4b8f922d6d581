"""Run by Alembic: applies revisions on the connection it was handed, inside the transaction its owner has open."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=False)
context.run_migrations()
