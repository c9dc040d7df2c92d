"""`interlock graph`: a unit and all below it as a drawing."""

from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Id, Tenant, Url, app_on, unit_of
from interlock.cli.output import say
from interlock.client.graphs import draw_mermaid, draw_svg
from interlock.client.selections import check_value
from interlock.client.trees import read_tree_snapshot
from interlock.kernel.errors import InterlockError

FORMATS = {"mermaid": draw_mermaid, "svg": draw_svg}


def graph(
    unit: Id,
    kind: Annotated[
        str | None,
        typer.Option("--format", help="mermaid or svg; by default as the file's name ends, else mermaid."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
) -> None:
    """Draw a unit and all below it, with its states as colours: Mermaid text, or an SVG for a browser."""
    form = kind or ("svg" if output is not None and output.suffix.lower() == ".svg" else "mermaid")
    check_value("format", form, list(FORMATS))
    with app_on(db, tenant) as app:
        seen = app.read(read_tree_snapshot, app.lifecycles, unit_of(app, unit))
    text = FORMATS[form](seen)
    if output is None:
        say(text.rstrip("\n"))
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InterlockError(f"'{output}' cannot be written: {error.strerror}") from None
    say(f"{output}: {len(seen.nodes)} units")
