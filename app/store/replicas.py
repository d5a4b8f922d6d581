"""Replicas that share one database: each owns the runs it started for as long as its lease, by the database's clock."""

from app.store.database import Database


class Replicas:
    """The repository of leases."""

    def __init__(self, database: Database) -> None:
        """Rows live in `database`."""
        self._database = database

    async def beat(self, replica_id: str, ttl_ms: int) -> None:
        """Own one's runs for `ttl_ms` from now. The first comes before the first run; the id is fresh for each process."""
        raise NotImplementedError

    async def leave(self, replica_id: str) -> None:
        """Own nothing any more: what is still open will never be ended by this replica."""
        raise NotImplementedError
