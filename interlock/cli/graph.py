"""`interlock graph`: draw a job and all below it."""

from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Id, Tenant, Url, find_unit, open_app
from interlock.cli.output import print_line, write_file
from interlock.client.graphs import draw_mermaid, draw_svg
from interlock.client.progress import WORKSTREAM
from interlock.client.selections import check_value
from interlock.client.stages import read_stage_snapshot
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
    """Draw a job or run and all below it, coloured by state: Mermaid text, or an SVG for a browser.

    A workstream with more than 1,000 tasks is drawn by stage.
    """
    drawing = kind or ("svg" if output is not None and output.suffix.lower() == ".svg" else "mermaid")
    check_value("format", drawing, list(FORMATS))
    with open_app(db, tenant) as app:
        number = find_unit(app, unit)
        tree = app.read(read_tree_snapshot, app.lifecycles, number)
        by_stage = tree.cut and tree.nodes[0].lifecycle == WORKSTREAM
        if by_stage:
            tree = app.read(read_stage_snapshot, number)
    text = FORMATS[drawing](tree)
    if output is None:
        print_line(text.rstrip("\n"))
        return
    write_file(output, text)
    print_line(f"{output}: {len(tree.nodes)} {'boxes, by stage' if by_stage else 'jobs and steps'}")
