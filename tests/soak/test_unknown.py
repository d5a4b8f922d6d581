"""An unknown grant profile and a foreign one, asked for in turn: the medians of 2,000 refusals each lie close together.

The foreign one has a catalogue that takes many times as long to read as a refusal takes. That no row of it is read is shown
without a clock in tests/integration/store/test_unknown.py; this looks at the whole service. SOAK_RUNS says how many.
"""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest

from tests.integration.grants.conftest import BROKER, Granted, api
from tests.integration.service.stand import Stand

ASKS = int(os.environ.get("SOAK_RUNS", "0"))
CATALOG = 24 << 20
MOST = 1.5
"""Far beyond chance: both do the same work, in turn, so that whatever else the machine does meets both."""


@pytest.mark.slow
@pytest.mark.timeout(600 + ASKS)
@pytest.mark.skipif(not ASKS, reason="a long test: SOAK_RUNS says how many refusals (make soak)")
def test_a_foreign_profile_takes_as_long_as_an_unknown_one(tmp_path: Path) -> None:
    granted = Granted(Stand(tmp_path, "", dict(BROKER)))
    took: dict[str, list[float]] = {"hr-read": [], "no-such": []}
    with granted.stand.service() as served, api() as server:
        granted.profile(server)
        with closing(sqlite3.connect(granted.stand.file, timeout=30)) as database, database:
            database.execute("UPDATE grants SET catalog = ?", ["x" * CATALOG])
        for _ in range(ASKS):
            for name, times in took.items():
                began = time.perf_counter()
                answer = granted.run(served, "out:x", caller="another", profile=name)
                times.append(time.perf_counter() - began)
                assert answer.status_code == 403
    foreign, unknown = median(took["hr-read"]), median(took["no-such"])
    print(f"median of {ASKS}: foreign {foreign * 1e3:.3f} ms, unknown {unknown * 1e3:.3f} ms")
    assert max(foreign, unknown) < MOST * min(foreign, unknown)
