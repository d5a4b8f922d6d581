"""Write openapi.json as the routes describe themselves; with --check, compare only and end with 1 if it differs."""

import difflib
import json
import sys
from pathlib import Path

from app.main import openapi_document

FILE = Path(__file__).resolve().parent.parent.parent / "openapi.json"


def rendered() -> str:
    return json.dumps(openapi_document(), indent=2, ensure_ascii=False) + "\n"


def check(current: str) -> int:
    committed = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    if committed == current:
        return 0
    difference = difflib.unified_diff(
        committed.splitlines(), current.splitlines(), "openapi.json", "routes", n=2
    )
    print("\n".join([*list(difference)[:60], "openapi.json is not what the routes give: run `make openapi`"]))
    return 1


def main(arguments: list[str]) -> int:
    current = rendered()
    if arguments == ["--check"]:
        return check(current)
    FILE.write_text(current, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
