"""`interlock validate-log`: is every line of a transition log a legal move?"""

import io
import sys
from typing import Annotated, BinaryIO

import msgspec
import typer

from interlock.audit.log.checker import Checker
from interlock.audit.log.state import LogFinding, amount
from interlock.cli.output import FINDING, Json, say
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import find, shipped

DOCUMENT = "003"
BUFFER = 1 << 18

File = Annotated[str, typer.Argument(metavar="FILE", help="A transitions.jsonl; - is standard input.")]
Strict = Annotated[bool, typer.Option("--strict", help="Find also what is not in document 003: our extensions.")]
FromBirth = Annotated[bool, typer.Option("--from-birth", help="The log is whole: every entity begins in it.")]
MaxRetries = Annotated[
    int | None, typer.Option("--max-retries", min=0, help="For tasks whose max_retries the log does not give.")
]
Lifecycles = Annotated[
    list[str] | None,
    typer.Option("--lifecycle", metavar="FILE", help="A lifecycle of your own (.toml) whose moves are in the log."),
]


def validate_log(
    file: File,
    strict: Strict = False,
    from_birth: FromBirth = False,
    max_retries: MaxRetries = None,
    files: Lifecycles = None,
    json: Json = False,
) -> None:
    """Check a transition log: shape, legality, invariants, order in time."""
    lifecycles = {lifecycle.name: lifecycle for lifecycle in shipped().values() if lifecycle.document == DOCUMENT}
    lifecycles |= {lifecycle.name: lifecycle for lifecycle in map(find, files or [])}
    checker = Checker(lifecycles.values(), strict=strict, from_birth=from_birth, max_retries=max_retries)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a log may hold any letter, a terminal may not
    try:
        with opened(file) as stream:
            found = print_json(checker, file, stream) if json else print_text(checker, file, stream)
    except BrokenPipeError:
        raise  # whoever read the findings has seen enough
    except (OSError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) else "out of memory"
        raise InterlockError(f"{file}: stopped after line {checker.number}: {reason}") from None
    if found:
        raise typer.Exit(FINDING)


def opened(file: str) -> BinaryIO:
    """The log, open for reading as it comes."""
    try:
        return open(0 if file == "-" else file, "rb", buffering=BUFFER, closefd=file != "-")
    except OSError as error:
        raise InterlockError(f"{file}: cannot be read: {error.strerror}") from None


def print_text(checker: Checker, file: str, stream: BinaryIO) -> int:
    """A line for each finding as soon as it is found, and a summary; the answer is the number of findings."""
    found = 0
    for finding in checker.findings(stream):
        found += 1
        say(f"{file}:{finding.line}: [{finding.rule}] {subject(finding)}{finding.message}")
    parts = [f"{amount(checker.lines, 'line')} checked", amount(found, "finding")]
    if checker.mid_life:
        parts.append(f"{checker.mid_life} of {checker.entities} entities first seen in mid-life")
    if checker.ledger.not_followed:
        parts.append(f"{amount(checker.ledger.not_followed, 'mention')} of workers or workstreams not followed")
    say(f"{file}: {', '.join(parts)}")
    return found


def subject(finding: LogFinding) -> str:
    return f"{finding.entity}: " if finding.entity else ""


def print_json(checker: Checker, file: str, stream: BinaryIO) -> int:
    """One object, written as it comes to be known; the answer is the number of findings."""
    sys.stdout.write(f'{{"file": {as_json(file)}, "findings": [')
    found = 0
    for found, finding in enumerate(checker.findings(stream), 1):
        sys.stdout.write(f"{',' if found > 1 else ''}\n  {as_json(finding)}")
    summary = {
        "lines": checker.lines,
        "entities": checker.entities,
        "first_seen_in_mid_life": checker.mid_life,
        "not_followed": checker.ledger.not_followed,
        "ok": not found,
    }
    say(f"\n], {as_json(summary)[1:]}")
    return found


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
