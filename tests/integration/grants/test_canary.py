"""The credential is nowhere but in the broker and at the API: a search for it in everything else."""

import base64
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.grants.conftest import CANARY, Api, Granted, broker_pid, processes_of
from tests.integration.grants.test_ends import pause, shown
from tests.integration.service.stand import json_of, keyed

# In base64, at each alignment, a part that does not depend on what stands around it.
FORMS = [CANARY.encode(), *(base64.b64encode(bytes(n) + CANARY.encode())[6:-8] for n in range(3))]


def regions(pid: int) -> Iterator[bytes]:
    """All memory of a process that can be written, in pieces."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if found is None or "[vvar]" in line:
                continue
            start, end = int(found[1], 16), int(found[2], 16)
            try:
                memory.seek(start)
                yield memory.read(end - start)
            except (OSError, ValueError, OverflowError):
                continue


def holds(data: bytes) -> bool:
    return any(form in data for form in FORMS)


def files_below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read the memory of a process that forbids it")
def test_the_credential_is_in_no_memory_file_argument_or_environment_but_the_brokers(
    on_sqlite: Granted, hr: Api
) -> None:
    with on_sqlite.stand.service() as served, ThreadPoolExecutor() as pool:
        on_sqlite.profile(hr)
        file = on_sqlite.stand.folder / "lease"
        hold = hr.holds["/v1/employees/held"] = threading.Event()
        # A run that is under way, one that ended and is kept, one that failed: each has had its lease.
        running = pool.submit(
            on_sqlite.run, served, f"call:GET=/v1/employees/1 call:show>{file} call:GET=/v1/employees/held"
        )
        shown(file)
        end = time.monotonic() + 60
        while len(hr.seen) < 2:
            pause(end)
        service = served.running.process.pid
        everyone = {service: ["service"]} | processes_of(service)
        broker = broker_pid(service)
        assert len(everyone) >= 3
        for pid in everyone:
            for name in ("cmdline", "environ"):
                assert not holds(Path(f"/proc/{pid}/{name}").read_bytes()), (pid, name)
            found = any(holds(region) for region in regions(pid))
            assert found is (pid == broker), (pid, everyone[pid])
        hold.set()
        answers = [json_of(running.result(60))]
        answers.append(json_of(on_sqlite.run(served, "call:GET=/v1/employees", headers=keyed("canary"))))
        on_sqlite.run(served, "call:GET=/v1/employees die")
        views = [served.get(each["id"], token=on_sqlite.caller("reporting")) for each in answers]
        assert not holds(json.dumps([answers, views]).encode())
        listed = on_sqlite.admin("grants", "list")
        assert not holds((listed.stdout + listed.stderr).encode())
    searched = list(files_below(on_sqlite.stand.folder))
    assert any(path.suffix == ".db" for path in searched)
    assert [path for path in searched if holds(path.read_bytes())] == []
    assert all(headers["authorization"] == f"Bearer {CANARY}" for _, _, headers in hr.seen)
    assert hr.origin.encode() not in served.running.log.read_bytes()
