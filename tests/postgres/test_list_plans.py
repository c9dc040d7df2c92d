"""What a list costs PostgreSQL is what it looks at, also if its tables have grown since they were analyzed."""

from interlock.client.app import App
from interlock.kernel.commands import Submit, Work
from interlock.store.connection import Connection
from interlock.store.queries.lists import read_newest_units
from interlock.store.queries.views import Filter
from tests.store.databases import fresh_postgres

JOBS, LISTS = 4_000, 8
READ = (
    "SELECT (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname IN ('unit', 'body')) + "
    "(SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE relname IN ('unit', 'body'))"
)


def count_read(connection: Connection, tenant: int) -> int:
    connection.rows("SELECT pg_stat_force_next_flush()")
    return int(connection.rows(READ)[0][0])


def test_a_list_that_fits_nothing_reads_each_job_once(server: str) -> None:
    """It is asked so often that the server plans it for all values, and not for these."""
    with fresh_postgres(server, "lists") as url, App(url) as app:
        for _ in range(JOBS // 1_000):
            app.send(Submit(work=tuple(Work(task="mail") for _ in range(1_000))))
        before = app.read(count_read)
        for _ in range(LISTS):
            assert app.read(read_newest_units, app.lifecycles.values(), Filter(task="none"), 25).units == []
        app.read(count_read)
        assert app.read(count_read) - before <= 3 * LISTS * JOBS  # each of both tables, and their indexes
