"""`interlock lifecycle`: show lifecycles, draw them, check them."""

import difflib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from interlock.audit.docs import export as exporting
from interlock.audit.docs import render
from interlock.audit.draw import draw_lifecycle
from interlock.audit.model.check import Bounds, CheckReport, check
from interlock.audit.model.properties import PROMISES
from interlock.cli.app_loader import load_registry
from interlock.cli.output import (
    FINDING,
    Json,
    format_count,
    format_problems,
    print_findings,
    print_json,
    print_line,
    print_table,
    write_file,
)
from interlock.kernel.errors import BadLifecycle, Unknown
from interlock.kernel.lifecycle import Lifecycle
from interlock.lifecycles import FOLDER, find, load, shipped

app = typer.Typer(help="Show lifecycles, draw them and check them.", no_args_is_help=True)

Which = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME|FILE]…", help="Names of lifecycles, or your own .toml files (default: all that Interlock ships)."
    ),
]


def find_lifecycle(name: str) -> Lifecycle:
    """Return a lifecycle by its name, also one of a plugin, or the one in a TOML file."""
    known = load_registry().lifecycles(shipped())
    return known[name] if name in known else find(name)


def find_lifecycles(which: Sequence[str] | None) -> list[Lifecycle]:
    """Return the lifecycles of these names or files; without any, those that Interlock ships."""
    return [find_lifecycle(name) for name in which] if which else list(shipped().values())


@app.command("list")
def list_lifecycles(json: Json = False) -> None:
    """List the lifecycles that Interlock knows."""
    lifecycles = load_registry().lifecycles(shipped()).values()
    if json:
        rows = [
            {"name": lifecycle.name, "document": lifecycle.document, "about": lifecycle.about}
            for lifecycle in lifecycles
        ]
        print_json({"lifecycles": rows})
        return
    rows_of_text = [
        (
            lifecycle.name,
            lifecycle.document,
            str(len(lifecycle.states)),
            str(len(lifecycle.moves)),
            lifecycle.about.split(". ")[0].rstrip("."),
        )
        for lifecycle in lifecycles
    ]
    print_table(("NAME", "DOCUMENT", "STATES", "TRANSITIONS", "WHAT IT IS"), rows_of_text)


@app.command("show")
def show_lifecycle(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A lifecycle's name, or your own .toml file.")],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the diagram only.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page that `docs` writes.")] = False,
    json: Json = False,
) -> None:
    """Show the states and transitions of a lifecycle."""
    lifecycle = find_lifecycle(name)
    if json:
        print_json(exporting.describe_lifecycle(lifecycle))
    elif mermaid:
        print_line(render.draw_mermaid(lifecycle, whole=True))
    elif markdown:
        sys.stdout.write(render.render_page(lifecycle))
    else:
        print_lifecycle(lifecycle)


@app.command("draw")
def draw_to_file(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A lifecycle's name, or your own .toml file.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write it to.")] = None,
) -> None:
    """Draw a lifecycle as an SVG: from birth to the ends, with triggers, owners and guards as hints."""
    drawing = draw_lifecycle(find_lifecycle(name))
    if output is None:
        print_line(drawing.rstrip("\n"))
        return
    write_file(output, drawing)
    print_line(f"{output}: the lifecycle {find_lifecycle(name).name}")


def print_lifecycle(lifecycle: Lifecycle) -> None:
    """Print a lifecycle: its states, its transitions, and what they lead to."""
    print_line(f"{lifecycle.name}: {lifecycle.about}\n")
    states = [render.make_state_row(lifecycle, state) for state in lifecycle.states.values()]
    print_table(
        ("STATE", "CATEGORY", "MEANING", "CANCEL", "DEADLINE"), [tuple(map(remove_backticks, row)) for row in states]
    )
    print_line("")
    moves = [render.move_row(move) for move in lifecycle.moves.values()]
    print_table(
        ("FROM", "TRIGGER", "TO", "BY", "EVENT", "GUARD, NOTE"), [tuple(map(remove_backticks, row)) for row in moves]
    )
    print_line("\n↻ opens the next attempt.  Diagram: --mermaid.  For programs: --json.")


def remove_backticks(cell: str) -> str:
    """Remove backticks, which are for pages."""
    return cell.replace("`", "")


@app.command("lint")
def lint_files(files: Which = None, json: Json = False) -> None:
    """Check lifecycle files against every rule (default: those that Interlock ships)."""
    paths = [Path(name) for name in files or []] or sorted(FOLDER.glob("*.toml"))
    paths = [FOLDER / f"{path}.toml" if str(path) in list_shipped_names() else path for path in paths]
    findings: list[dict[str, str]] = []
    for path in paths:
        try:
            load(path) if path.suffix == ".toml" or "/" in str(path) else find(str(path))
        except BadLifecycle as bad:
            findings += [{"file": str(path), "message": fault} for fault in bad.faults]
    if json:
        print_json({"files": [str(path) for path in paths], "findings": findings, "ok": not findings})
    else:
        for finding in findings:
            print_line(finding["message"])
        print_line(f"{format_count(len(paths), 'file')} checked, {format_problems(len(findings))}")
    if findings:
        raise typer.Exit(FINDING)


def list_shipped_names() -> set[str]:
    """Return the names alone: a broken file of ours must not keep `lint` from reporting it."""
    return {path.stem for path in FOLDER.glob("*.toml")}


@app.command("export")
def export_lifecycles(
    which: Which = None,
    documents: Annotated[
        bool, typer.Option("--documents", help="Only what the source documents say, without extensions.")
    ] = False,
    json: Json = False,
) -> None:
    """Print lifecycles as data, one entry per single transition."""
    lifecycles = [exporting.describe_lifecycle(lifecycle, documents=documents) for lifecycle in find_lifecycles(which)]
    if json:
        print_json({"lifecycles": lifecycles})
        return
    for lifecycle in lifecycles:
        for move in lifecycle["moves"]:
            marks = " opens_attempt" * move["opens_attempt"] + " extension" * move["extension"]
            path = f"{move['from'] or '(birth)'} -> {move['to']}"
            print_line(
                f"{lifecycle['name']}: {path} {move['trigger']} {move['owner']} "
                f"{move['event']} {move['severity']}{marks}"
            )


@app.command("docs")
def write_docs(
    files: Which = None,
    out: Annotated[Path, typer.Option(help="Folder to write the pages to.")] = Path("docs/lifecycles"),
    check_only: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if a page differs from its lifecycle.")
    ] = False,
    json: Json = False,
) -> None:
    """Write one page per lifecycle: drawing, diagrams, tables, owners, deadlines, events, extensions."""
    wanted = render.render_pages(find_lifecycles(files))
    if not files:
        wanted[Path(render.INDEX)] = render.render_index(shipped().values())
    drift = {page: reason for page, text in wanted.items() if (reason := describe_difference(out / page, text))}
    strays = [] if files else [path for path in list_our_files(out) if path.relative_to(out) not in wanted]
    pages = [page for page in wanted if page.suffix == ".md"]  # each has a drawing beside it
    if check_only:
        findings = [*drift.values(), *(f"{path}: there is no such lifecycle" for path in strays)]
        print_findings(findings, f"{format_count(len(pages), 'page')} in {out} checked", json)
        return
    write_pages(out, {page: wanted[page] for page in drift}, strays)
    if json:
        written, removed = [str(page) for page in drift], [str(path) for path in strays]
        print_json({"folder": str(out), "pages": [str(page) for page in pages], "written": written, "removed": removed})
    else:
        changed = sum(page in drift or page.with_suffix(".svg") in drift for page in pages)
        print_line(f"{format_count(len(pages), 'page')} in {out}, {changed} of them changed")
        for path in strays:
            print_line(f"{path}: removed, there is no such lifecycle")


def list_our_files(out: Path) -> list[Path]:
    """Return the pages and drawings in a folder that `docs` has written; it leaves others alone."""
    files = sorted([*out.glob("*.md"), *out.glob("*.svg")])
    return [path for path in files if render.MARK in path.read_text(encoding="utf-8", errors="replace")]


def write_pages(out: Path, texts: dict[Path, str], strays: list[Path]) -> None:
    """Write the pages and drawings of lifecycles, and remove those of lifecycles that are gone.

    Refuse to overwrite a file that we did not write.
    """
    ours = list_our_files(out)
    for page in texts:
        if (out / page).exists() and out / page not in ours:
            raise Unknown(f"'{out / page}' was not drawn by us and is not overwritten; move it, or say --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for page, text in texts.items():
            (out / page).write_bytes(text.encode())
        for path in strays:
            path.unlink()
    except OSError as error:
        raise Unknown(f"the pages cannot be written to '{out}': {error.strerror}") from None


def describe_difference(path: Path, text: str) -> str:
    """Return how a page differs from its lifecycle; empty if it does not."""
    if not path.is_file():
        return f"{path}: missing; run `interlock lifecycle docs`"
    present = path.read_bytes()
    if present == text.encode():
        return ""
    old, new = present.decode(errors="replace").splitlines(), text.splitlines()
    lines = difflib.unified_diff(old, new, "the page", "its lifecycle", lineterm="", n=0)
    return f"{path}: differs from its lifecycle; run `interlock lifecycle docs`\n" + "\n".join(list(lines)[2:12])


@app.command("check")
def check_lifecycles(
    which: Which = None,
    attempts: Annotated[int, typer.Option(min=2, max=9, help="Maximum number of attempts of a job.")] = 3,
    messages: Annotated[int, typer.Option(min=1, max=9, help="Maximum number of messages in flight.")] = 3,
    json: Json = False,
) -> None:
    """Explore every order in which things can happen to a job, its lease and two workers, and check what we promise."""
    lifecycles, bounds = find_lifecycles(which), Bounds(attempts, messages)
    known = {**shipped(), **{lifecycle.name: lifecycle for lifecycle in lifecycles}}
    if not which:
        lifecycles = [
            lifecycle for lifecycle in lifecycles if not lifecycle.options.follows
        ]  # explored with what it follows
    if not json:
        bounds_text = f"Within {attempts} attempts, {messages} messages in flight and 2 workers"
        print_line(f"{bounds_text} (and one attempt that is given back or snoozed):\n")
    reports = [explore(lifecycle, known, bounds, quiet=json) for lifecycle in lifecycles]
    broken = [finding for report in reports for finding in report.findings]
    if json:
        print_json({"promises": PROMISES, "reports": reports, "ok": not broken})
    else:
        print_line("\nPromised, and " + ("broken where reported above:" if broken else "kept in every state:"))
        for promise in PROMISES.values():
            print_line(f"  - {promise}")
    if broken:
        raise typer.Exit(FINDING)


def explore(lifecycle: Lifecycle, known: dict[str, Lifecycle], bounds: Bounds, *, quiet: bool) -> CheckReport:
    """Explore a lifecycle, print what came of it unless `quiet`, and return it."""
    began = time.monotonic()
    report = check(lifecycle, known, bounds)
    if not quiet:
        name = f"{report.lifecycle} with {report.followed_by}" if report.followed_by else report.lifecycle
        moves = f"{report.moves_taken} of {report.moves_listed} transitions taken"
        seconds = f"{time.monotonic() - began:.1f} s"
        counts = f"{report.states:>9,} states of {report.rows:>4} rows  {report.steps:>11,} steps"
        print_line(f"{name:<23}{counts}  {moves:<31}{seconds:>8}")
        for finding in report.findings:
            print_line(f"  [{finding.promise}] {finding.text}")
            if finding.trace:
                print_line("    after: " + "; ".join(finding.trace))
    return report
