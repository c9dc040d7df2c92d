"""`interlock graph`: a job and all below it as a drawing."""

from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Id, Tenant, Url, find_unit, open_app
from interlock.cli.output import print_line, write_file
from interlock.client.graphs import draw_mermaid, draw_svg
from interlock.client.selections import check_value
from interlock.client.trees import read_tree_snapshot

FORMATS = {"mermaid": draw_mermaid, "svg": draw_svg}


def draw_graph(
    unit: Id,
    kind: Annotated[
        str | None,
        typer.Option("--format", help="mermaid or svg (default: by the file's name, else mermaid)."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write it to.")] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
) -> None:
    """Draw a job or run and all below it, coloured by state: Mermaid text, or an SVG for a browser."""
    drawing = kind or ("svg" if output is not None and output.suffix.lower() == ".svg" else "mermaid")
    check_value("format", drawing, list(FORMATS))
    with open_app(db, tenant) as app:
        tree = app.read(read_tree_snapshot, app.lifecycles, find_unit(app, unit))
    text = FORMATS[drawing](tree)
    if output is None:
        print_line(text.rstrip("\n"))
        return
    write_file(output, text)
    print_line(f"{output}: {len(tree.nodes)} jobs and steps")
