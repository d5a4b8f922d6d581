"""The published client as a judge, asked from outside its environment (see judge.py)."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

PYTHON = ROOT / ".venv-published" / "bin" / "python"
SCRIPT = Path(__file__).with_name("judge.py")

Call = tuple[str, dict[str, Any]]


class Judged(dict[str, Any]):
    """What came of one call."""

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self, self
        result: dict[str, Any] = self["result"]
        return result

    @property
    def error(self) -> dict[str, Any]:
        assert "error" in self, self
        error: dict[str, Any] = self["error"]
        return error

    @property
    def stdout(self) -> bytes:
        return base64.b64decode(self.result["stdout"])

    @property
    def verdict(self) -> tuple[str, str | None]:
        """The error's class, and the reason in its mark."""
        return self.error["class"], self.error["not_dispatched"]


def judge(url: str, token: str | None, *calls: Call, parallel: bool = False, **options: Any) -> list[Judged]:
    """The outcomes of the calls, one after the other or all at once, by one client made with `options`."""
    asked = {
        "url": url,
        "token": token,
        "options": options,
        "parallel": parallel,
        "calls": [{"do": name, "with": given} for name, given in calls],
    }
    # Isolated: no path of ours, no setting of ours.
    done = subprocess.run(
        [PYTHON, "-I", SCRIPT], input=json.dumps(asked).encode(), capture_output=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stderr.decode()
    return [Judged(each) for each in json.loads(done.stdout)]


def javascript(code: str, **given: Any) -> Call:
    return "run_javascript", {"code": code, **given}
