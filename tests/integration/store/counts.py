"""What the counts of kept bytes say, and what they should."""

import sqlalchemy as sa

from app.store.answers import TOTAL
from app.store.schema import answers, kept_bytes
from app.store.store import Store


async def counted(store: Store) -> dict[str, int]:
    """Bytes by caller, and over all under TOTAL; nothing is as good as zero."""
    rows = await store._database.fetch(sa.select(kept_bytes.c.scope, kept_bytes.c.bytes))
    return {scope: size for scope, size in rows if size}


async def held(store: Store) -> dict[str, int]:
    """The same, summed up from the rows."""
    sums = sa.select(answers.c.caller_id, sa.func.sum(answers.c.held_bytes)).group_by(answers.c.caller_id)
    found = {caller: int(size) for caller, size in await store._database.fetch(sums) if size}
    return found | {TOTAL: sum(found.values())} if found else {}
