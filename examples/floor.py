"""A program that may be hostile, and a caller that says how strong the wall around it must be.

It asks the service that PLIMSOLL_URL and PLIMSOLL_TOKEN name. With the floor met it prints what came back and the wall it had;
otherwise nothing ran, and it says so and ends with 69, as the command `plimsoll` does. It never tries again with less.
"""

import sys

import plimsoll

FLOOR = "kernel"
REFUSED = 69
UNTRUSTED = "console.log([3, 1, 2].sort().join())"


def main() -> int:
    """Run it behind FLOOR or a stronger wall, or not at all."""
    with plimsoll.Client() as client:
        try:
            run = client.run_javascript(UNTRUSTED, floor=FLOOR, timeout=5)
        except plimsoll.InsufficientIsolation as refused:
            print(f"nothing ran ({refused.not_dispatched}): {refused}")
            return REFUSED
    print(f"{run.text.strip()} behind {run.isolation}, by {run.provider}, on evidence {run.evidence_sha256}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
