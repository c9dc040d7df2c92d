"""Options and arguments that several commands of `interlock ci` share."""

from pathlib import Path
from typing import Annotated

import typer

HERE = Path(".")
LIMIT_MAX = 10_000
Folder = Annotated[
    Path, typer.Option("--folder", "-C", metavar="FOLDER", help="A folder of the repository (default: this one).")
]
RunId = Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run, as in ci_run_4r1 (default: the newest).")]
OfRun = Annotated[str | None, typer.Option("--run", metavar="RUN", help="Of this run (default: the newest).")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="A job by its name, as in test or test:3.12.")]
Limit = Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="How many.")]
AtOnce = Annotated[int | None, typer.Option("--at-once", "-j", min=1, max=64, help="Jobs at a time.")]
Sandbox = Annotated[
    bool, typer.Option("--sandbox", help="Run jobs in bubblewrap, without network unless a job asks for it.")
]  # fmt: skip
