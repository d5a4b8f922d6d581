"""What schemathesis makes of openapi.json, lawful and broken, the live service answers as openapi.json says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.openapi.conftest import Served
from tests.support.service import ROOT

DOCUMENT = ROOT / "openapi.json"
CONFIG = Path(__file__).with_name("schemathesis.toml")
SEED, EXAMPLES = 1, 25


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.component("schemathesis")
def test_every_answer_is_one_that_the_document_declares(served: Served, tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)),
        *("run", str(DOCUMENT), "--url", served.running.url, "--no-color"),
        *("--seed", str(SEED), "--max-examples", str(EXAMPLES), "--continue-on-failure"),
    ]
    environ = {"PATH": os.defpath, "HOME": str(tmp_path), "PLIMSOLL_TEST_TOKEN": served.token}
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, check=False, timeout=150)
    output = done.stdout.decode(errors="replace")
    assert done.returncode == 0, output + done.stderr.decode(errors="replace")
    every = sum(len(operations) for operations in json.loads(DOCUMENT.read_text())["paths"].values())
    assert f"{every} selected / {every} total" in output
    assert not [line for line in served.running.lines() if line["event"] == "unhandled"]
