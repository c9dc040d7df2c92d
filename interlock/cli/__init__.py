"""The command line: one verb a command. Exit codes: 0 fine, 1 something was found, 2 wrong use."""

from interlock.cli.main import main

__all__ = ["main"]
