"""`interlock list`: jobs, runs and steps, the newest first."""

from collections.abc import Iterable

from interlock.cli.options import (
    DEFAULT,
    NO_FILTERS,
    After,
    Filters,
    Limit,
    Tenant,
    Url,
    add_filter_options,
    open_app,
    select,
)
from interlock.cli.output import (
    Cell,
    Json,
    format_heads,
    make_state_cell,
    on_terminal,
    print_json,
    print_line,
    print_table,
)
from interlock.client import json_views
from interlock.client.durations import format_time
from interlock.client.inbox import format_view_id
from interlock.kernel.ids import parse_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.store.connection import Connection
from interlock.store.queries.lists import read_newest_units
from interlock.store.queries.views import Filter, View

FIELDS = ("id", "task", "state", "queue", "attempt", "worker", "created_at", "changed_at", "key")


@add_filter_options()
def list_jobs(
    filters: Filters = NO_FILTERS,
    limit: Limit = 50,
    after: After = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List jobs, runs and steps, the newest first."""
    with open_app(db, tenant) as app:
        selected = select(app, filters).filter
        older_than = None if after is None else parse_id(after)
        page, following = app.read(read_page, app.lifecycles.values(), selected, limit, older_than)
    if json:
        print_json({"units": [json_views.make_job(view) for view in page], "more": following is not None})
        return
    print_table(format_heads(FIELDS), [make_row(view) for view in page])
    if on_terminal() and following is not None:
        print_line(f"\nThere are more: --after {following}")


def read_page(
    connection: Connection,
    tenant: int,
    lifecycles: Iterable[Lifecycle],
    selected: Filter,
    limit: int,
    after: int | None,
) -> tuple[list[View], str | None]:
    """Return up to `limit` units, however far apart they are, and the id after which the next page begins."""
    kinds, views = tuple(lifecycles), list[View]()
    while True:
        page = read_newest_units(connection, tenant, kinds, selected, limit - len(views), after)
        views += page.units
        if page.next is None or len(views) == limit:
            return views, page.next
        after = parse_id(page.next)


def make_row(view: View) -> list[Cell]:
    """Make a row of the list of jobs."""
    unit, body = view.unit, view.body
    return [
        format_view_id(view), body.task, make_state_cell(unit.state, unit.category, unit.outcome), view.queue,
        str(unit.attempt), view.holder or "", format_time(body.created_at), format_time(unit.changed_at),
        body.key or "",
    ]  # fmt: skip
