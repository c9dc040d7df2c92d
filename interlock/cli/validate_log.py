"""`interlock validate-log`: check that every line of a transition log is a legal transition."""

import io
import sys
from typing import Annotated, BinaryIO

import msgspec
import typer

from interlock.audit.log.checker import Checker
from interlock.audit.log.state import LogFinding, amount
from interlock.cli.output import FINDING, Json, format_problems, print_line
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import find, shipped

DOCUMENT = "003"
BUFFER = 1 << 18

File = Annotated[str, typer.Argument(metavar="FILE", help="A transitions.jsonl; - is standard input.")]
Strict = Annotated[bool, typer.Option("--strict", help="Also report our extensions, which document 003 does not list.")]
FromBirth = Annotated[bool, typer.Option("--from-birth", help="The log is complete: every entity begins in it.")]
MaxRetries = Annotated[
    int | None, typer.Option("--max-retries", min=0, help="For tasks whose max_retries the log does not give.")
]
Lifecycles = Annotated[
    list[str] | None,
    typer.Option("--lifecycle", metavar="FILE", help="A lifecycle file of your own whose transitions are in the log."),
]


def validate_log(
    file: File,
    strict: Strict = False,
    from_birth: FromBirth = False,
    max_retries: MaxRetries = None,
    files: Lifecycles = None,
    json: Json = False,
) -> None:
    """Check a transition log: format, legal transitions, invariants, order in time."""
    lifecycles = {lifecycle.name: lifecycle for lifecycle in shipped().values() if lifecycle.document == DOCUMENT}
    lifecycles |= {lifecycle.name: lifecycle for lifecycle in map(find, files or [])}
    checker = Checker(lifecycles.values(), strict=strict, from_birth=from_birth, max_retries=max_retries)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a log may hold any letter, a terminal may not
    try:
        with open_log(file) as stream:
            findings = print_as_json(checker, file, stream) if json else print_as_text(checker, file, stream)
    except BrokenPipeError:
        raise  # whoever read the findings has seen enough
    except (OSError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) else "out of memory"
        raise InterlockError(f"{file}: stopped after line {checker.number}: {reason}") from None
    if findings:
        raise typer.Exit(FINDING)


def open_log(file: str) -> BinaryIO:
    """Open a log for reading.

    Raises:
        InterlockError: it cannot be read.
    """
    try:
        return open(0 if file == "-" else file, "rb", buffering=BUFFER, closefd=file != "-")
    except OSError as error:
        raise InterlockError(f"{file}: cannot be read: {error.strerror}") from None


def print_as_text(checker: Checker, file: str, stream: BinaryIO) -> int:
    """Print each finding as soon as it is found, and a summary; return the number of findings."""
    findings = 0
    for finding in checker.findings(stream):
        findings += 1
        print_line(f"{file}:{finding.line}: [{finding.rule}] {format_subject(finding)}{finding.message}")
    parts = [f"{amount(checker.lines, 'line')} checked", format_problems(findings)]
    if checker.mid_life:
        parts.append(f"{checker.mid_life} of {checker.entities} entities first seen in mid-life")
    if checker.ledger.not_followed:
        parts.append(f"{amount(checker.ledger.not_followed, 'mention')} of workers or workstreams not followed")
    print_line(f"{file}: {', '.join(parts)}")
    return findings


def format_subject(finding: LogFinding) -> str:
    """Return what a finding is about, as it stands before its text."""
    return f"{finding.entity}: " if finding.entity else ""


def print_as_json(checker: Checker, file: str, stream: BinaryIO) -> int:
    """Print one object, piece by piece; return the number of findings."""
    sys.stdout.write(f'{{"file": {encode(file)}, "findings": [')
    findings = 0
    for findings, finding in enumerate(checker.findings(stream), 1):
        sys.stdout.write(f"{',' if findings > 1 else ''}\n  {encode(finding)}")
    summary = {
        "lines": checker.lines,
        "entities": checker.entities,
        "first_seen_in_mid_life": checker.mid_life,
        "not_followed": checker.ledger.not_followed,
        "ok": not findings,
    }
    print_line(f"\n], {encode(summary)[1:]}")
    return findings


def encode(value: object) -> str:
    """Encode a value as JSON text."""
    return msgspec.json.encode(value).decode()
