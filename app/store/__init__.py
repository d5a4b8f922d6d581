"""The database: repositories over one schema, on SQLite for one machine and Postgres for many.

Rows are not the contract: repositories take and return the values of `app.store.values`, and nothing outside this room
imports a table. No code, output or token is ever stored here; of a token only its SHA-256.
"""
