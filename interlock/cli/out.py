"""How the command line speaks: JSON for programs, tables for people, errors for whoever erred."""

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Column, Table

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


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table: folded to the terminal's width, or one line a row where a program may read it."""
    if sys.stdout.isatty():
        drawn = Table(*(Column(head, overflow="fold") for head in heads), box=None, pad_edge=False)
        for row in rows:
            drawn.add_row(*row)
        Console(highlight=False, markup=False).print(drawn)
        return
    lines = [list(heads), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def report(findings: list[str], summary: str, json: bool) -> None:
    """Findings, then how many; exit 1 if there are any."""
    if json:
        dump({"findings": findings, "ok": not findings})
    else:
        for finding in findings:
            say(finding)
        say(f"{summary}, {counted(len(findings), 'finding')}")
    if findings:
        raise typer.Exit(FINDING)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
