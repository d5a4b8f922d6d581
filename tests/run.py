"""Runs layers of tests: `run.py LAYER… [-- PYTEST FLAGS]`. First side by side, then, alone, what measures time.

The last lines say what was left out, and which command runs it. How many run at once is `TEST_WORKERS`. `run.py changed` runs
the long tests of what the last commits changed; `run.py durations` notes how long each file took.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.docker import available, prepare  # noqa: E402 - as below
from tests.support.layers import COMPONENTS, DURATIONS, layer_of  # noqa: E402 - found by the line above

COMMANDS: Final = {
    "fast": ("make test", "no docker daemon, no database server, no browser"),
    "walls": ("make test-walls", "containers, Postgres, a browser, published clients; takes root"),
    "long": ("make test-long", "soak, floods and repetitions at full size, the wasm guest built anew"),
}
LONG_TESTS: Final = {
    "tests/soak/test_soak.py": ("app/", "broker/", "providers/", "migrations/", "tests/soak/"),
    "tests/unit/providers/wasm/test_rebuild.py": ("providers/wasm/guest/", "requirements/guest"),
}
"""Long tests that are quick at small size, with what they are about."""
_COMMITS: Final = 40
_SHOWN: Final = 25
_TABLE: Final = re.compile(r"(<!-- durations -->\n\n)(?:\|[^\n]*\n)*")
RESULTS: Final = ROOT / "build" / "tests"
_NOTHING: Final = 5
"""pytest's exit status when it chose no test."""
_LIMIT_S: Final = {"fast": 1800.0, "walls": 4000.0, "long": 4 * 3600.0}


def required() -> set[str]:
    return {name.strip() for name in os.environ.get("PLIMSOLL_REQUIRE", "").split(",") if name.strip()}


def workers(layer: str) -> str:
    """As many as there are processors; twice as many where tests mostly wait."""
    there = os.cpu_count() or 1
    return os.environ.get("TEST_WORKERS", str(2 * there if layer == "fast" else there))


def make_image() -> None:
    """The sandbox image, before any test's time runs: on a new machine its base takes minutes. Without it, tests say so."""
    if not available()[0]:
        return
    with tempfile.TemporaryDirectory(prefix="pd-") as place, suppress(subprocess.SubprocessError):
        prepare(Path(place))


def run_layer(layer: str, flags: Sequence[str]) -> list[str]:
    """Both parts of a layer; what was wrong."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    asked = RESULTS / f"{layer}.asked"
    asked.unlink(missing_ok=True)
    environ = {**os.environ, "PLIMSOLL_TEST_LAYER": layer, "PLIMSOLL_ASKED": str(asked)}
    if layer == "walls":
        make_image()
    parts = {
        "beside": ["-n", workers(layer), "--dist", "loadscope", "--no-loadscope-reorder", "-m", "not alone"],
        "alone": ["-m", "alone"],
    }
    wrong = []
    for part, words in parts.items():
        report = RESULTS / f"{layer}-{part}.xml"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *words, *flags]
        ended = subprocess.run(
            command, cwd=ROOT, env=environ, check=False, timeout=_LIMIT_S[layer]
        ).returncode
        if ended not in {0, _NOTHING}:
            wrong.append(f"{layer}, {part}: exit status {ended}")
    if not flags:
        never = (required() & COMPONENTS[layer]) - set(asked.read_text().split())
        wrong += [
            f"PLIMSOLL_REQUIRE names {name}, and no test of {layer} asked for it" for name in sorted(never)
        ]
    return wrong


def changed() -> list[str]:
    """The long tests that something of the last commits may have broken."""
    commits = subprocess.run(
        ["git", "rev-list", f"-{_COMMITS}", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    since = commits.stdout.split()[-1]
    told = subprocess.run(
        ["git", "diff", "--name-only", since], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = told.stdout.split()
    return sorted(
        test for test, places in LONG_TESTS.items() if any(each.startswith(places) for each in files)
    )


def note_durations(layers: Sequence[str]) -> None:
    """Add up seconds by file from the reports of these layers, for who deals them out and for CONTRIBUTING.md."""
    found: defaultdict[str, float] = defaultdict(float)
    for layer in layers:
        for report in RESULTS.glob(f"{layer}-*.xml"):
            for case in ET.parse(report).iter("testcase"):
                file = re.sub(r"/[A-Z].*", "", case.get("classname", "").replace(".", "/"))
                found[f"{file}.py"] += float(case.get("time", 0))
    known = {name: value for name, value in found.items() if (ROOT / name).is_file()}
    past = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    kept = {name: value for name, value in past.items() if (ROOT / name).is_file()}
    merged = kept | {name: round(value, 1) for name, value in known.items()}
    DURATIONS.write_text(json.dumps(dict(sorted(merged.items())), indent=1) + "\n")
    page = ROOT / "CONTRIBUTING.md"
    page.write_text(_TABLE.sub(lambda found: f"{found[1]}{table(merged)}\n", page.read_text()))


def table(known: Mapping[str, float]) -> str:
    """The longest files, each layer's sum, and what one CI run may be made of."""
    layers: defaultdict[str, float] = defaultdict(float)
    for name, value in known.items():
        layers[layer_of(ROOT / name)] += value
    longest = sorted(known.items(), key=lambda each: -each[1])[:_SHOWN]
    rows = [f"| `{name}` | {layer_of(ROOT / name)} | {value:.0f} |" for name, value in longest]
    rows += [f"| all of `{layer}` | {layer} | {value:.0f} |" for layer, value in sorted(layers.items())]
    return "\n".join(["| file | layer | s |", "|---|---|---|", *rows])


def main(words: Sequence[str]) -> int:
    if words[:1] == ["durations"]:
        note_durations(words[1:] or list(COMMANDS))
        return 0
    if words[:1] == ["changed"]:
        chosen = changed()
        sys.stdout.write(f"Of the long tests: {', '.join(chosen) or 'none'}\n")
        words = ["long", "--", *chosen, *words[2:]]
        if not chosen:
            return 0
    cut = words.index("--") if "--" in words else len(words)
    layers, flags = words[:cut], words[cut + 1 :]
    if not layers or not set(layers) <= COMMANDS.keys():
        sys.stderr.write(f"{__doc__}\nLayers: {', '.join(COMMANDS)}\n")
        return 64
    wrong: list[str] = []
    for layer in layers:
        began = time.monotonic()
        wrong += run_layer(layer, flags)
        sys.stdout.write(f"{layer}: {time.monotonic() - began:.0f} s with {workers(layer)} workers\n")
    for each in wrong:
        sys.stdout.write(f"FAILED {each}\n")
    for layer in COMMANDS.keys() - set(layers):
        command, what = COMMANDS[layer]
        sys.stdout.write(f"Left out: {what}. `{command}` runs it.\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
