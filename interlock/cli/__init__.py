"""The command line: one file per command. Exit codes: 0 success, 1 something was found, 2 wrong use."""

from interlock.cli.main import main

__all__ = ["main"]
