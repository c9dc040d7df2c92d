"""How the command line speaks: JSON for programs, tables for people, errors for whoever erred."""

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from interlock.kernel.lifecycle import Category

FINDING, USAGE = 1, 2
Json = Annotated[bool, typer.Option("--json", envvar="INTERLOCK_JSON", help="Print JSON for programs.")]
COLOURS = {
    Category.WAITING: "yellow", Category.READY: "cyan", Category.HELD: "blue", Category.ACTIVE: "bold blue",
    Category.GATE: "magenta", Category.CLOSING: "yellow", Category.SUCCESS: "green", Category.FAILURE: "red",
    Category.CANCELLED: "dim", Category.DEAD: "bold red", Category.CLOSED: "dim",
}  # fmt: skip
Cell = str | Text


def say(text: str) -> None:
    """A line for people, on standard output."""
    sys.stdout.write(text + "\n")


def complain(text: str) -> None:
    """A line about what was wrong, on standard error."""
    sys.stderr.write(text + "\n")


def dump(value: Any) -> None:
    """`value` as indented JSON, on standard output."""
    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def dump_line(value: Any) -> None:
    """`value` as one line of JSON, at once."""
    say(msgspec.json.encode(value).decode())
    sys.stdout.flush()


def state_cell(state: str, category: str) -> Text:
    """A state in the colour of what it means."""
    return Text(state, style=COLOURS.get(Category(category), "") if category else "")


def on_terminal() -> bool:
    return sys.stdout.isatty()


def console() -> Console:
    return Console(highlight=False, markup=False)


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """A table: folded to the terminal's width, or a line a row with tabs where a program may read it."""
    if on_terminal():
        drawn = Table(*(Column(head, overflow="fold") for head in heads), box=None, pad_edge=False)
        for row in rows:
            drawn.add_row(*row)
        console().print(drawn)
        return
    for line in (heads, *rows):
        say("\t".join(" ".join(str(cell).split()) for cell in line))


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
