"""`interlock why`: explain what keeps a job, a schedule or a worker in its state."""

from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Tenant, Url, find_unit, open_app
from interlock.cli.output import Json, print_json, print_line
from interlock.client.schedules import explain_schedule
from interlock.client.why import explain
from interlock.store.queries.views import schedule_of
from interlock.store.queries.workers import find_worker_named


def explain_job(
    unit: Annotated[
        str,
        typer.Argument(
            metavar="ID|SCHEDULE|WORKER",
            help="A job, run or step (job_4r1), or the name of a schedule or worker.",
        ),
    ],
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Explain why a job, a schedule or a worker is in its state, what it waits for, and what would move it on."""
    with open_app(db, tenant) as app:
        schedule = app.read(schedule_of, unit)
        if schedule is None:
            worker = app.read(find_worker_named, unit)
            explanation = app.read(explain, app.lifecycles, find_unit(app, unit) if worker is None else worker)
            print_json(explanation) if json else print_line(explanation.text)
            return
        text = app.read(explain_schedule, unit)
    reason = "removed" if schedule.removed_at else "paused" if schedule.paused_at else "scheduled"
    print_json({"schedule": unit, "reason": reason, "answer": text, "text": text}) if json else print_line(text)
