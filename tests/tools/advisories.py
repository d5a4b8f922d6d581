"""Compare the locked versions with the published security advisories, where those can be reached.

Ends with 1 when a locked package has a known vulnerability, or when the comparison broke. Says "not run" and
ends with 0 where the advisories cannot be reached: a package mirror without them answers as if it did not
know any package.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LOCK = Path("requirements") / "dev.lock"
UNREACHABLE = (
    "ConnectionError",
    "ServiceError",
    "Max retries",
    "Name or service",
    "timed out",
    "HTTPError",
    "ProxyError",
)


def audit() -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--format",
        "json",
        "--progress-spinner",
        "off",
        "--timeout",
        "10",
    ]
    return subprocess.run(
        [*command, "--disable-pip", "--require-hashes", "-r", LOCK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def verdict(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        if any(word in done.stderr for word in UNREACHABLE):
            return 0, "not run, the advisories cannot be reached from here"
        return 1, f"the comparison broke\n{done.stdout}{done.stderr}"
    compared = [package for package in packages if "vulns" in package]
    if not compared:
        return 0, "not run, the advisories cannot be reached from here"
    bad = [
        f"{package['name']} {package['version']}: {vuln['id']}, fixed: {vuln['fix_versions'] or 'nowhere'}"
        for package in compared
        for vuln in package["vulns"]
    ]
    if bad:
        return 1, "\n  ".join(["known vulnerabilities", *bad])
    return 0, f"no known vulnerability in {len(compared)} of {len(packages)} packages of {LOCK}"


def main() -> int:
    code, message = verdict(audit())
    print(f"advisories: {message}")
    return code


if __name__ == "__main__":
    sys.exit(main())
