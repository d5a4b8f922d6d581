"""`plimsoll`: run one program and see the wall it had, from a shell. Exit statuses are in `command`."""

from plimsoll.cli.command import main

__all__ = ["main"]
