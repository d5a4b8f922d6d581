"""Counts the distinct things that tests prove: promises, rows of what is told when things die, hostile programs for each wall.

`make proven` prints it. A change of the tests may make a run shorter; these numbers may only grow.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
GROUPS: Final = {
    "hostile programs under runc": r"tests/security/test_container_\w+\.py::.*\[(.*-)?runc(-.*)?\]",
    "hostile programs under gVisor": r"tests/security/test_container_\w+\.py::.*\[(.*-)?runsc(-.*)?\]",
    "hostile programs behind wasm": r"tests/(security/test_runner_\w+|unit/providers/wasm/test_vm\w*)\.py::",
    "lies of a docker daemon": r"tests/(integration/docker/test_lies\w*|security/test_container_daemon)\.py::",
    "hostile answers to the client": r"tests/integration/client/test_hostile\w*\.py::",
    "tests of the listener and of bodies": r"tests/(integration/http|unit/http|security/test_http)\S*::",
    "all cases": "::",
}


def numbered(page: str, row: str) -> int:
    return len(re.findall(row, (ROOT / "docs" / page).read_text(), re.MULTILINE))


def main() -> int:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    cases = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    found: Counter[str] = Counter({"promises": numbered("guarantees.md", r"^\| \d+ \|")})
    for case in cases:
        found.update(
            name
            for name, pattern in GROUPS.items()
            if re.match(pattern if pattern != "::" else r".*::", case)
        )
    found["rows of what is told when things die"] = sum(
        "test_a_row_names_its_test[" in each for each in cases
    )
    sys.stdout.writelines(f"{count:>6}  {name}\n" for name, count in found.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
