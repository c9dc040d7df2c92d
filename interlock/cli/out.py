"""How the command line speaks: JSON for programs, tables for people, errors for whoever erred."""

import sys
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

FINDING, USAGE = 1, 2
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def say(text: str) -> None:
    """A line for people, on standard output."""
    sys.stdout.write(text + "\n")


def complain(text: str) -> None:
    """A line about what was wrong, on standard error."""
    sys.stderr.write(text + "\n")


def dump(value: Any) -> None:
    """`value` as indented JSON, on standard output."""
    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """A table that is as wide as the terminal, or as wide as it needs to be in a pipe."""
    console = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 200)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        drawn.add_column(head, overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    console.print(drawn)
