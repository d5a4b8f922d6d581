"""The smallest whole example: a private service of its own, one small data transformation, and the wall it had.

It needs no network, no token and no running service: `plimsoll.local` starts `plimsolld` for the length of the block.
"""

import json

import plimsoll

STAFF = [
    {"name": "Ada", "department": "engineering", "salary": 9100},
    {"name": "Grace", "department": "engineering", "salary": 8800},
    {"name": "Florence", "department": "health", "salary": 7400},
    {"name": "Mary", "department": "health", "salary": 6900},
    {"name": "Hedy", "department": "radio", "salary": 8200},
]

PROGRAM = f"""
const staff = {json.dumps(STAFF)};
const totals = {{}};
for (const {{department, salary}} of staff) totals[department] = (totals[department] ?? 0) + salary;
console.log(JSON.stringify(totals));
"""


def main() -> None:
    """Run the program and print one fact a line."""
    with plimsoll.local(provider="wasm") as sandbox:
        run = sandbox.run_javascript(PROGRAM, timeout=5)
    facts = {
        "provider": run.provider,
        "isolation": run.isolation,
        "exit code": run.exit_code,
        "timed out": run.timed_out,
        "stdout cut": run.stdout_truncated,
        "stderr cut": run.stderr_truncated,
        "duration": f"{run.duration_ms} ms",
        "record": run.record.record_sha256,
        "stdout": run.stdout.decode().rstrip("\n"),
    }
    for name, value in facts.items():
        print(f"{name:<14} {value}")


if __name__ == "__main__":
    main()
