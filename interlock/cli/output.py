"""Print JSON for programs, tables for people, and errors on standard error."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category

FINDING, USAGE, INTERRUPTED = 1, 2, 130
Json = Annotated[bool, typer.Option("--json", envvar="INTERLOCK_JSON", help="Print JSON for programs.")]
COLOURS = {
    Category.WAITING: "yellow", Category.READY: "cyan", Category.HELD: "blue", Category.ACTIVE: "bold blue",
    Category.GATE: "magenta", Category.CLOSING: "yellow", Category.SUCCESS: "green", Category.FAILURE: "red",
    Category.CANCELLED: "dim", Category.DEAD: "bold red", Category.CLOSED: "dim",
}  # fmt: skip
Cell = str | Text


def write_file(path: Path, text: str) -> None:
    """Write a text to a file that the user names.

    Raises:
        InterlockError: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InterlockError(f"'{path}' cannot be written: {error.strerror}") from None


def print_line(text: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(text + "\n")


def print_error(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(text + "\n")


def print_json(value: Any) -> None:
    """Write `value` to standard output as indented JSON."""
    print_line(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_json_line(value: Any) -> None:
    """Write `value` to standard output as one line of JSON, and flush it."""
    print_line(msgspec.json.encode(value).decode())
    sys.stdout.flush()


def make_state_cell(state: str, category: str, outcome: str | None = None) -> Text:
    """Return a state in the colour of its category; one that hides how the work has ended has that behind it."""
    if category == Category.CLOSED and outcome:
        return Text(f"{state} ({outcome})", style=COLOURS.get(Category(outcome), ""))
    return Text(state, style=COLOURS.get(Category(category), "") if category else "")


def on_terminal() -> bool:
    """Return whether a person reads the output."""
    return sys.stdout.isatty()


def make_console() -> Console:
    """Return a console that prints text as it is."""
    return Console(highlight=False, markup=False)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Print a table: folded to the terminal's width, or one line per row with tabs between the cells when piped."""
    if on_terminal():
        drawn = Table(*(Column(head, overflow="fold") for head in heads), box=None, pad_edge=False)
        for row in rows:
            drawn.add_row(*row)
        make_console().print(drawn)
        return
    for line in (heads, *rows):
        print_line("\t".join(" ".join(str(cell).split()) for cell in line))


def format_heads(names: Iterable[str]) -> list[str]:
    """Return the headings of fields: CREATED for created_at, MAX RUNNING for max_running."""
    return [name.removesuffix("_at").replace("_", " ").upper() for name in names]


def print_findings(findings: list[str], summary: str, json: bool) -> None:
    """Print findings and how many there are.

    Raises:
        typer.Exit: there are findings; the exit code is 1.
    """
    if json:
        print_json({"findings": findings, "ok": not findings})
    else:
        for finding in findings:
            print_line(finding)
        print_line(f"{summary}, {format_problems(len(findings))}")
    if findings:
        raise typer.Exit(FINDING)


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 file, 2 files."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_problems(number: int) -> str:
    """Return how many problems a check has found."""
    return f"{format_count(number, 'problem') if number else 'no problems'} found"
