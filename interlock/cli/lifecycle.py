"""`interlock lifecycle`: look at the law, draw it, check it."""

import difflib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from interlock.audit.docs import export as exporting
from interlock.audit.docs import render
from interlock.audit.model.check import Bounds, CheckReport, check
from interlock.audit.model.properties import PROMISES
from interlock.cli.output import FINDING, Json, counted, dump, report, say, table
from interlock.kernel.errors import BadLifecycle, Unknown
from interlock.kernel.lifecycle import Lifecycle
from interlock.lifecycles import FOLDER, find, load, shipped

app = typer.Typer(help="Look at lifecycles, draw them and check them.", no_args_is_help=True)

Which = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME|FILE]…", help="Names of lifecycles, or your own .toml files; all of ours if none."),
]


def chosen(which: Sequence[str] | None) -> list[Lifecycle]:
    return [find(name) for name in which] if which else list(shipped().values())


@app.command("list")
def listing(json: Json = False) -> None:
    """List the lifecycles that Interlock knows."""
    lifecycles = shipped().values()
    if json:
        rows = [
            {"name": lifecycle.name, "document": lifecycle.document, "about": lifecycle.about}
            for lifecycle in lifecycles
        ]
        dump({"lifecycles": rows})
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
    table(("NAME", "DOCUMENT", "STATES", "MOVES", "WHAT IT IS"), rows_of_text)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A lifecycle's name, or your own .toml file.")],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the diagram only.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page that `docs` writes.")] = False,
    json: Json = False,
) -> None:
    """Show the states and moves of one lifecycle."""
    lifecycle = find(name)
    if json:
        dump(exporting.describe_lifecycle(lifecycle))
    elif mermaid:
        say(render.mermaid(lifecycle, whole=True))
    elif markdown:
        sys.stdout.write(render.page(lifecycle))
    else:
        show_text(lifecycle)


def show_text(lifecycle: Lifecycle) -> None:
    say(f"{lifecycle.name}: {lifecycle.about}\n")
    states = [render.state_row(lifecycle, state) for state in lifecycle.states.values()]
    table(("STATE", "CATEGORY", "MEANING", "CANCEL", "DEADLINE"), [tuple(map(plain, row)) for row in states])
    say("")
    moves = [render.move_row(move) for move in lifecycle.moves.values()]
    table(("FROM", "TRIGGER", "TO", "BY", "EVENT", "GUARD, NOTE"), [tuple(map(plain, row)) for row in moves])
    say("\n↻ opens the next attempt.  Diagram: --mermaid.  For programs: --json.")


def plain(cell: str) -> str:
    return cell.replace("`", "")


@app.command()
def lint(files: Which = None, json: Json = False) -> None:
    """Check lifecycle files against every rule; ours, if none is named."""
    paths = [Path(name) for name in files or []] or sorted(FOLDER.glob("*.toml"))
    paths = [FOLDER / f"{path}.toml" if str(path) in shipped_names() else path for path in paths]
    findings: list[dict[str, str]] = []
    for path in paths:
        try:
            load(path) if path.suffix == ".toml" or "/" in str(path) else find(str(path))
        except BadLifecycle as bad:
            findings += [{"file": str(path), "message": fault} for fault in bad.faults]
    if json:
        dump({"files": [str(path) for path in paths], "findings": findings, "ok": not findings})
    else:
        for finding in findings:
            say(finding["message"])
        say(f"{counted(len(paths), 'file')} checked, {counted(len(findings), 'finding')}")
    if findings:
        raise typer.Exit(FINDING)


def shipped_names() -> set[str]:
    """The names alone: a broken file of ours must not keep `lint` from saying so."""
    return {path.stem for path in FOLDER.glob("*.toml")}


@app.command()
def export(
    which: Which = None,
    documents: Annotated[
        bool, typer.Option("--documents", help="Only what the source documents say: leave extensions out.")
    ] = False,
    json: Json = False,
) -> None:
    """Print lifecycles as data, one entry for each single hop."""
    lifecycles = [exporting.describe_lifecycle(lifecycle, documents=documents) for lifecycle in chosen(which)]
    if json:
        dump({"lifecycles": lifecycles})
        return
    for lifecycle in lifecycles:
        for move in lifecycle["moves"]:
            marks = " opens_attempt" * move["opens_attempt"] + " extension" * move["extension"]
            path = f"{move['from'] or '(birth)'} -> {move['to']}"
            say(
                f"{lifecycle['name']}: {path} {move['trigger']} {move['owner']} "
                f"{move['event']} {move['severity']}{marks}"
            )


@app.command()
def docs(
    files: Which = None,
    out: Annotated[Path, typer.Option(help="The folder that the pages are written to.")] = Path("docs/lifecycles"),
    check_only: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if a page differs from its lifecycle.")
    ] = False,
    json: Json = False,
) -> None:
    """Draw one page a lifecycle: diagram, tables, owners, deadlines, events, extensions."""
    wanted = render.pages(chosen(files))
    if not files:
        wanted[Path(render.INDEX)] = render.index(shipped().values())
    drift = {page: reason for page, text in wanted.items() if (reason := difference(out / page, text))}
    strays = [] if files else [path for path in drawn_by_us(out) if path.relative_to(out) not in wanted]
    if check_only:
        told = [*drift.values(), *(f"{path}: there is no such lifecycle" for path in strays)]
        report(told, f"{counted(len(wanted), 'page')} in {out} checked", json)
        return
    write(out, {page: wanted[page] for page in drift}, strays)
    if json:
        written, removed = [str(page) for page in drift], [str(path) for path in strays]
        dump({"folder": str(out), "pages": [str(page) for page in wanted], "written": written, "removed": removed})
    else:
        say(f"{counted(len(wanted), 'page')} in {out}, {len(drift)} of them written anew")
        for path in strays:
            say(f"{path}: removed, there is no such lifecycle")


def drawn_by_us(out: Path) -> list[Path]:
    """The pages in a folder that `docs` has written; anybody else's are none of our business."""
    pages = sorted(out.glob("*.md"))
    return [path for path in pages if render.MARK in path.read_text(encoding="utf-8", errors="replace")]


def write(out: Path, texts: dict[Path, str], strays: list[Path]) -> None:
    ours = drawn_by_us(out)
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


def difference(path: Path, text: str) -> str:
    """How a page differs from what the data draws; empty if it does not."""
    if not path.is_file():
        return f"{path}: missing; run `interlock lifecycle docs`"
    found = path.read_bytes()
    if found == text.encode():
        return ""
    old, new = found.decode(errors="replace").splitlines(), text.splitlines()
    lines = difflib.unified_diff(old, new, "the page", "its lifecycle", lineterm="", n=0)
    return f"{path}: differs from its lifecycle; run `interlock lifecycle docs`\n" + "\n".join(list(lines)[2:12])


@app.command("check")
def check_lifecycles(
    which: Which = None,
    attempts: Annotated[int, typer.Option(min=2, max=9, help="Attempts of the unit.")] = 3,
    messages: Annotated[int, typer.Option(min=1, max=9, help="Messages under way at once.")] = 3,
    json: Json = False,
) -> None:
    """Explore everything that can happen to a unit between two workers, and prove what we promise."""
    lifecycles, bounds = chosen(which), Bounds(attempts, messages)
    known = {**shipped(), **{lifecycle.name: lifecycle for lifecycle in lifecycles}}
    if not which:
        lifecycles = [
            lifecycle for lifecycle in lifecycles if not lifecycle.options.follows
        ]  # explored with what it follows
    if not json:
        bounds_text = f"Within {attempts} attempts, {messages} messages in flight and 2 workers"
        say(f"{bounds_text} (and one attempt that is given back or snoozed):\n")
    reports = [explored(lifecycle, known, bounds, quiet=json) for lifecycle in lifecycles]
    broken = [finding for one in reports for finding in one.findings]
    if json:
        dump({"promises": PROMISES, "reports": reports, "ok": not broken})
    else:
        say("\nPromised, and " + ("broken where said above:" if broken else "kept in every state:"))
        for promise in PROMISES.values():
            say(f"  - {promise}")
    if broken:
        raise typer.Exit(FINDING)


def explored(lifecycle: Lifecycle, known: dict[str, Lifecycle], bounds: Bounds, *, quiet: bool) -> CheckReport:
    began = time.monotonic()
    found = check(lifecycle, known, bounds)
    if not quiet:
        name = f"{found.lifecycle} with {found.followed_by}" if found.followed_by else found.lifecycle
        moves = f"{found.moves_taken} of {found.moves_listed} moves taken"
        seconds = f"{time.monotonic() - began:.1f} s"
        counts = f"{found.states:>9,} states of {found.rows:>4} rows  {found.steps:>11,} steps"
        say(f"{name:<23}{counts}  {moves:<24}{seconds:>8}")
        for finding in found.findings:
            say(f"  [{finding.promise}] {finding.text}")
            if finding.trace:
                say("    after: " + "; ".join(finding.trace))
    return found
