"""The two commands of the service: `plimsolld` serves, `plimsoll-admin` looks after callers and caches."""

import os
import sys


def serve_main() -> None:
    """Entry point of `plimsolld`."""
    # First of all: whatever this process makes, nobody else may read.
    os.umask(0o077)
    from app.serve import serve  # noqa: PLC0415  # after the umask, and light: providers start before heavy imports

    sys.exit(serve(sys.argv[1:], os.environ))


def admin_main() -> None:
    """Entry point of `plimsoll-admin`."""
    os.umask(0o077)
    from app.admin import run_admin  # noqa: PLC0415  # after the umask

    sys.exit(run_admin(sys.argv[1:], os.environ, sys.stdout, sys.stderr))
